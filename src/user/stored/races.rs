//! Calls that overlap in every possible order, step by step.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Barrier},
    task::{Context, Poll, Waker},
    thread,
};

use proptest::{collection::vec, prelude::*, test_runner::Config};

use super::{
    StoredUsers, UserError,
    index::Owner,
    model::{acme, globex, name, new_user, user},
    row::Name,
};
use crate::{
    gate::MaybeReady,
    session::UserId,
    store::{Entry, Key, Memory, Record, Store, StoreError, Version, WriteOutcome},
    tenant::Tenant,
    testing::{ManualClock, block_on},
    user::Users,
    util::clock::UnixTime,
};

/// A store that yields to the other calls before each step.
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

/// Returns whether another call of the same user could remove the name again.
fn may_lose(calls: &[(usize, Call)], at: usize, number: usize) -> bool {
    let (id, _) = calls[at];
    calls.iter().enumerate().any(|(other, (user, call))| {
        other != at
            && *user == id
            && match call {
                Call::Add(name) | Call::RemoveName(name) => *name == number,
                // a refused creation deletes the account
                Call::Create(_) | Call::Remove => true,
            }
    })
}

proptest! {
    #![proptest_config(Config::with_cases(3_000))]
    #[test]
    fn an_assigned_name_is_never_lost_to_an_overlapping_call(
        calls in vec(call(), 2..5),
        schedule in vec(0..5_usize, 0..60),
    ) {
        let memory = Arc::new(Memory::new());
        let clock = ManualClock::new();
        let slow = StoredUsers::with_clock(Slow(Arc::clone(&memory)), clock.clone());
        let plain = StoredUsers::with_clock(Plain(memory), clock);
        // users 0 and 1 exist, with names that no call uses
        for id in 0..2 {
            block_on(plain.create(&acme(), new_user(id, &[10 + id]))).unwrap();
        }
        // interrupted calls left index rows that count for no account, of an existing user and of an unknown one
        for (number, id) in [(2, 0), (3, 2)] {
            let name = Name::from_identifier(&name(number));
            let (acme, owner) = (acme(), Owner(user(id).as_str().to_owned()));
            let outcome = block_on(plain.index.names.insert(Some(&acme), name.as_bytes(), &owner, UnixTime::FOREVER)).unwrap();
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
        prop_assert!(running.iter().all(Option::is_none), "a call never ends");
        for number in 0..4 {
            let holder = find(&plain, number);
            let claimed = block_on(plain.create(&acme(), new_user(90 + number, &[number])));
            prop_assert_eq!(claimed.is_ok(), holder.is_none(), "name {}: {:?}", number, claimed);
        }
    }
}

#[test]
fn one_of_many_simultaneous_calls_gets_the_same_names() {
    for _ in 0..50 {
        let users = StoredUsers::new(Memory::new());
        let barrier = Barrier::new(8);
        let made: Vec<_> = thread::scope(|scope| {
            let create = |id: usize| {
                let (users, barrier) = (&users, &barrier);
                // in both orders
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
        let there = (0..8).filter(|id| block_on(users.by_id(&acme(), &user(*id))).unwrap().is_some());
        assert_eq!(there.count(), 1, "a refused call left an account behind");
    }
}

/// A call for an id in one of two tenants.
#[derive(Clone, Copy, Debug)]
enum IdCall {
    Create,
    Remove,
    /// Claims the id again.
    AddName,
}

fn id_call() -> impl Strategy<Value = (bool, usize, IdCall)> {
    let call = prop_oneof![4 => Just(IdCall::Create), 2 => Just(IdCall::Remove), 1 => Just(IdCall::AddName)];
    (any::<bool>(), 0..2_usize, call)
}

fn tenant(second: bool) -> Tenant {
    if second { globex() } else { acme() }
}

fn start_id_call(
    users: &StoredUsers,
    (second, id, call): (bool, usize, IdCall),
) -> Pin<Box<dyn Future<Output = Result<(), UserError>> + Send>> {
    let (users, tenant) = (users.clone(), tenant(second));
    Box::pin(async move {
        match call {
            IdCall::Create => users.create(&tenant, new_user(id, &[id])).await.map(|_| ()),
            IdCall::Remove => users.remove(&tenant, &user(id)).await,
            IdCall::AddName => users.add_identifier(&tenant, &user(id), &name(10 + id)).await,
        }
    })
}

proptest! {
    #![proptest_config(Config::with_cases(3_000))]
    #[test]
    fn an_id_is_never_in_two_tenants(
        calls in vec(id_call(), 2..6),
        schedule in vec(0..6_usize, 0..80),
        stale in any::<bool>(),
    ) {
        let memory = Arc::new(Memory::new());
        let clock = ManualClock::new();
        let slow = StoredUsers::with_clock(Slow(Arc::clone(&memory)), clock.clone());
        let plain = StoredUsers::with_clock(Plain(memory), clock);
        let exists = |second, id| block_on(plain.by_id(&tenant(second), &user(id))).unwrap().is_some();
        // an account to remove, and an index row that an interrupted call left behind
        block_on(plain.create(&acme(), new_user(0, &[0]))).unwrap();
        if stale {
            let (owner, id) = (Owner("globex".to_owned()), user(1));
            let outcome = block_on(plain.index.ids.insert(None, id.as_str().as_bytes(), &owner, UnixTime::FOREVER)).unwrap();
            assert!(matches!(outcome, WriteOutcome::Done(_)));
        }
        let mut running: Vec<_> = calls.iter().map(|call| Some(start_id_call(&slow, *call))).collect();
        let mut given: Vec<(bool, usize)> = Vec::new();
        let finish = (0..4_000).map(|step| step % calls.len());
        for at in schedule.iter().copied().filter(|at| *at < calls.len()).chain(finish) {
            let Some(future) = &mut running[at] else { continue };
            if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                running[at] = None;
                let (second, id, call) = calls[at];
                // another creation or removal in the same tenant may delete the account
                let may_vanish = calls.iter().enumerate().any(|(other, (its, its_id, call))| {
                    other != at && (*its, *its_id) == (second, id) && !matches!(call, IdCall::AddName)
                });
                if matches!(call, IdCall::Create) && answer.is_ok() && !may_vanish {
                    given.push((second, id));
                }
            }
            for (second, id) in &given {
                prop_assert!(exists(*second, *id), "{} vanished after {:?}", id, calls[at]);
            }
        }
        prop_assert!(running.iter().all(Option::is_none), "a call never ends");
        for id in 0..2 {
            let (here, elsewhere) = (exists(false, id), exists(true, id));
            prop_assert!(!(here && elsewhere), "{} is in two tenants", id);
            let third = Tenant::parse("initech").unwrap();
            let created = block_on(plain.create(&third, new_user(id, &[id])));
            prop_assert_eq!(created.is_ok(), !here && !elsewhere, "{}: {:?}", id, created);
        }
    }
}

#[test]
fn one_of_many_tenants_gets_the_same_id() {
    for _ in 0..50 {
        let users = StoredUsers::new(Memory::new());
        let barrier = Barrier::new(8);
        let tenants: Vec<Tenant> = (0..8).map(|number| Tenant::parse(format!("t{number}")).unwrap()).collect();
        let created: Vec<_> = thread::scope(|scope| {
            let create = |tenant| {
                let (users, barrier) = (&users, &barrier);
                move || {
                    barrier.wait();
                    block_on(users.create(tenant, new_user(1, &[1])))
                }
            };
            let all: Vec<_> = tenants.iter().map(|tenant| scope.spawn(create(tenant))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let winners = created.iter().filter(|created| created.is_ok()).count();
        let accounts = tenants.iter().filter(|tenant| block_on(users.by_id(tenant, &user(1))).unwrap().is_some());
        assert_eq!((winners, accounts.count()), (1, 1), "{created:?}");
        let refused = created.iter().filter_map(|created| created.as_ref().err());
        assert!(refused.into_iter().all(|error| matches!(error, UserError::Exists)));
    }
}

#[test]
fn a_late_removal_releases_nothing_of_a_new_account() {
    // one removal reads the account, another one removes it, and it is created again before the first one continues
    for steps in 1..12 {
        let memory = Arc::new(Memory::new());
        let slow = StoredUsers::new(Slow(Arc::clone(&memory)));
        let plain = StoredUsers::new(Plain(memory));
        block_on(plain.create(&acme(), new_user(1, &[1]))).unwrap();
        let mut late = start_id_call(&slow, (false, 1, IdCall::Remove));
        let mut context = Context::from_waker(Waker::noop());
        let done = (0..steps).any(|_| late.as_mut().poll(&mut context).is_ready());
        if done {
            break;
        }
        let _ = block_on(plain.remove(&acme(), &user(1)));
        block_on(plain.create(&acme(), new_user(1, &[1]))).unwrap();
        while late.as_mut().poll(&mut context).is_pending() {}
        let exists = block_on(plain.by_id(&acme(), &user(1))).unwrap().is_some();
        assert_eq!(find(&plain, 1).is_some(), exists, "{steps}");
        assert_eq!(block_on(plain.create(&globex(), new_user(1, &[1]))).is_err(), exists, "{steps}");
    }
}
