//! Calls that overlap in every way, step by step.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Barrier},
    task::{Context, Poll, Waker},
    thread,
};

use proptest::{collection::vec, prelude::*, test_runner::Config};

use super::{
    StoredUsers, UserError, Users,
    model::{acme, name, new_user, user},
    names::FOREVER,
    row::{Name, Owner},
};
use crate::{
    gate::MaybeReady,
    session::UserId,
    store::{Entry, Key, Memory, Record, Store, StoreError, Version, WriteOutcome},
    testing::{ManualClock, block_on},
};

/// A store that lets others go first before each step.
#[derive(Clone, Default)]
struct Slow(Arc<Memory>);

impl Slow {
    async fn others_first() {
        let mut polled = false;
        poll_fn(|_| match std::mem::replace(&mut polled, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

impl Store for Slow {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        let (memory, key) = (Arc::clone(&self.0), key.clone());
        MaybeReady::Pending(async move {
            Self::others_first().await;
            memory.get(&key).wait().await
        })
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        Self::others_first().await;
        self.0.insert(key, record).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        Self::others_first().await;
        self.0.swap(key, expected, record).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        Self::others_first().await;
        self.0.take(key).await
    }
}

struct Plain(Arc<Memory>);

impl Store for Plain {
    fn get(&self, key: &Key) -> MaybeReady<impl Future<Output = Result<Option<Entry>, StoreError>> + Send + 'static> {
        self.0.get(key)
    }

    async fn insert(&self, key: &Key, record: Record) -> Result<WriteOutcome, StoreError> {
        self.0.insert(key, record).await
    }

    async fn swap(&self, key: &Key, expected: Version, record: Record) -> Result<WriteOutcome, StoreError> {
        self.0.swap(key, expected, record).await
    }

    async fn take(&self, key: &Key) -> Result<Option<Entry>, StoreError> {
        self.0.take(key).await
    }
}

#[derive(Clone, Debug)]
enum Call {
    Create(Vec<usize>),
    Add(usize),
    RemoveName(usize),
    Remove,
}

fn call() -> impl Strategy<Value = (usize, Call)> {
    let any_user = || 0..5_usize;
    prop_oneof![
        4 => (any_user(), vec(0..4_usize, 1..4)).prop_map(|(user, names)| (user, Call::Create(names))),
        4 => (any_user(), 0..4_usize).prop_map(|(user, name)| (user, Call::Add(name))),
        1 => (any_user(), 0..4_usize).prop_map(|(user, name)| (user, Call::RemoveName(name))),
        1 => any_user().prop_map(|user| (user, Call::Remove)),
    ]
}

fn start(users: &StoredUsers, id: usize, call: Call) -> Pin<Box<dyn Future<Output = Result<(), UserError>> + Send>> {
    let users = users.clone();
    Box::pin(async move {
        match call {
            Call::Create(names) => users.create(&acme(), new_user(id, &names)).await.map(|_| ()),
            Call::Add(number) => users.add_identifier(&acme(), &user(id), &name(number)).await,
            Call::RemoveName(number) => users.remove_identifier(&acme(), &user(id), &name(number)).await,
            Call::Remove => users.remove(&acme(), &user(id)).await,
        }
    })
}

fn find(users: &StoredUsers, number: usize) -> Option<UserId> {
    block_on(users.find(&acme(), &name(number))).unwrap().map(|account| account.id().clone())
}

/// Whether, beside this call, another of the same user could take the name again.
fn may_lose(calls: &[(usize, Call)], at: usize, number: usize) -> bool {
    let (id, _) = calls[at];
    calls.iter().enumerate().any(|(other, (user, call))| {
        other != at
            && *user == id
            && match call {
                Call::Add(name) | Call::RemoveName(name) => *name == number,
                // one that is refused undoes the account
                Call::Create(_) | Call::Remove => true,
            }
    })
}

proptest! {
    #![proptest_config(Config::with_cases(3_000))]
    #[test]
    fn whatever_overlaps_a_name_that_was_given_stays_given(
        calls in vec(call(), 2..5),
        schedule in vec(0..5_usize, 0..60),
    ) {
        let memory = Arc::new(Memory::new());
        let clock = ManualClock::new();
        let slow = StoredUsers::new(Slow(Arc::clone(&memory))).clock(clock.clone());
        let plain = StoredUsers::new(Plain(memory)).clock(clock);
        // users 0 and 1 are there, with names that nobody asks for
        for id in 0..2 {
            block_on(plain.create(&acme(), new_user(id, &[10 + id]))).unwrap();
        }
        // what has broken off has left names that count for nobody: of a user that is there and of one that is not
        for (number, id) in [(2, 0), (3, 2)] {
            let name = Name::of(&name(number));
            let (acme, owner) = (acme(), Owner(user(id)));
            let outcome = block_on(plain.names.insert(Some(&acme), name.as_bytes(), &owner, FOREVER)).unwrap();
            assert!(matches!(outcome, WriteOutcome::Done(_)));
        }
        let mut running: Vec<_> = calls.iter().map(|(id, call)| Some(start(&slow, *id, call.clone()))).collect();
        let mut given: Vec<(usize, usize)> = Vec::new();
        let finish = (0..4_000).map(|step| step % calls.len());
        for at in schedule.iter().copied().filter(|at| *at < calls.len()).chain(finish) {
            let Some(future) = &mut running[at] else { continue };
            if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                running[at] = None;
                let numbers = match &calls[at].1 {
                    Call::Create(names) if answer.is_ok() => names.clone(),
                    Call::Add(name) if answer.is_ok() => vec![*name],
                    _ => Vec::new(),
                };
                given.extend(numbers.into_iter().filter(|name| !may_lose(&calls, at, *name)).map(|name| (name, calls[at].0)));
            }
            for (number, id) in &given {
                prop_assert_eq!(find(&plain, *number), Some(user(*id)), "name {} after {:?}", number, calls[at]);
            }
        }
        prop_assert!(running.iter().all(Option::is_none), "a call goes on forever");
        for number in 0..4 {
            let holder = find(&plain, number);
            let claimed = block_on(plain.create(&acme(), new_user(90 + number, &[number])));
            prop_assert_eq!(claimed.is_ok(), holder.is_none(), "name {}: {:?}", number, claimed);
        }
    }
}

#[test]
fn of_many_that_want_the_same_names_at_once_one_gets_them() {
    for _ in 0..50 {
        let users = StoredUsers::new(Memory::new());
        let barrier = Barrier::new(8);
        let made: Vec<_> = thread::scope(|scope| {
            let create = |id: usize| {
                let (users, barrier) = (&users, &barrier);
                // in any order
                let names = if id.is_multiple_of(2) { [1, 2] } else { [2, 1] };
                move || {
                    barrier.wait();
                    block_on(users.create(&acme(), new_user(id, &names)))
                }
            };
            let all: Vec<_> = (0..8).map(|id| scope.spawn(create(id))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let winners: Vec<_> = made.iter().filter_map(|made| made.as_ref().ok()).collect();
        assert_eq!(winners.len(), 1, "{made:?}");
        assert!(made.iter().filter_map(|made| made.as_ref().err()).all(|error| matches!(error, UserError::Taken)));
        assert!([1, 2].iter().all(|number| find(&users, *number).as_ref() == Some(winners[0])));
        let there = (0..8).filter(|id| block_on(users.get(&acme(), &user(*id))).unwrap().is_some());
        assert_eq!(there.count(), 1, "who lost has left an account");
    }
}
