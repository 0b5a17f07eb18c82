//! A fair queue: a bounded number of jobs run, and waiting tenants take turns.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::{support::fair_queue::FairQueue, tenant::Tenant, util::lock::lock};

/// The queue in front of the hashing threads.
///
/// Waiting tenants get the free turns one after the other, no matter how many jobs each has. In a full queue, the tenant with
/// the most waiting jobs loses its last one to a tenant with fewer.
#[derive(Clone)]
pub(super) struct Turns {
    queue: Arc<Mutex<Queue>>,
    concurrency: usize,
    waiting: usize,
}

#[derive(Default)]
struct Queue {
    running: usize,
    /// Callers without a tenant wait together.
    jobs: FairQueue<Option<Tenant>, Job>,
}

type Job = oneshot::Sender<Turn>;

/// The right to run. The next job gets it when it is dropped.
pub(super) struct Turn(Option<Turns>);

impl Turns {
    pub(super) fn new(concurrency: usize, waiting: usize) -> Self {
        Self { queue: Arc::default(), concurrency, waiting }
    }

    /// Waits for a turn. Returns `None` if too many jobs are waiting.
    pub(super) async fn next(&self, tenant: Option<&Tenant>) -> Option<Turn> {
        let (job, turn) = oneshot::channel();
        let refused = {
            let mut queue = lock(&self.queue);
            if queue.running < self.concurrency {
                queue.running += 1;
                return Some(Turn(Some(self.clone())));
            }
            let tenant = tenant.cloned();
            let refused =
                if queue.jobs.len() < self.waiting { None } else { queue.make_room(self.waiting, &tenant)? };
            queue.jobs.push(tenant, job);
            refused
        };
        drop(refused);
        // an error if another tenant took the place
        turn.await.ok()
    }
}

impl Queue {
    /// Makes room for a job of this tenant: by removing the jobs whose callers are gone, or else by taking the last job of a
    /// tenant that has at least two more. Returns the job that lost its place, or `None` if there is no room.
    fn make_room(&mut self, most: usize, tenant: &Option<Tenant>) -> Option<Option<Job>> {
        self.jobs.retain(|job| !job.is_closed());
        if self.jobs.len() < most {
            return Some(None);
        }
        self.jobs.displace(tenant).map(Some)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.0.take() else { return };
        loop {
            let next = {
                let mut queue = lock(&turns.queue);
                let next = queue.jobs.pop();
                queue.running -= usize::from(next.is_none());
                next
            };
            // the caller of the next job may be gone
            match next.map(|next| next.send(Self(Some(turns.clone())))) {
                None | Some(Ok(())) => return,
                Some(Err(mut unused)) => unused.0 = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    use proptest::{collection::vec, prelude::*};

    use super::*;

    type Waiting = Pin<Box<dyn Future<Output = Option<Turn>>>>;

    /// Asks for a turn, and polls once.
    fn queue_for_turn(turns: &Turns, tenant: &str) -> Waiting {
        let (turns, tenant) = (turns.clone(), Tenant::parse(tenant).unwrap());
        let mut waiting: Waiting = Box::pin(async move { turns.next(Some(&tenant)).await });
        assert!(poll(&mut waiting).is_none());
        waiting
    }

    fn poll(waiting: &mut Waiting) -> Option<Option<Turn>> {
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    fn acquire_turn(turns: &Turns) -> Turn {
        let mut first: Waiting = Box::pin({
            let turns = turns.clone();
            async move { turns.next(None).await }
        });
        poll(&mut first).flatten().unwrap()
    }

    /// Ends one turn after the other, and returns whose they were.
    fn order(mut running: Turn, mut waiting: Vec<(&'static str, Waiting)>) -> Vec<&'static str> {
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(running);
            let mut ready = None;
            waiting.retain_mut(|(tenant, waiting)| match poll(waiting) {
                None => true,
                Some(turn) => {
                    assert!(ready.is_none());
                    ready = turn.map(|turn| (*tenant, turn));
                    false
                }
            });
            let (tenant, turn) = ready.unwrap();
            order.push(tenant);
            running = turn;
        }
        order
    }

    #[test]
    fn a10_a_flood_of_one_tenant_leaves_the_others_their_turn() {
        let turns = Turns::new(1, 100);
        let running = acquire_turn(&turns);
        let tenants = ["acme"; 5].into_iter().chain(["globex", "globex", "umbrella"]);
        let waiting = tenants.map(|tenant| (tenant, queue_for_turn(&turns, tenant))).collect();
        let expected = ["acme", "globex", "umbrella", "acme", "globex", "acme", "acme", "acme"];
        assert_eq!(order(running, waiting), expected);
        assert_eq!(lock(&turns.queue).running, 0);
    }

    #[test]
    fn a10_a_full_queue_has_room_for_a_tenant_with_fewer_waiting_jobs() {
        let turns = Turns::new(1, 4);
        let running = acquire_turn(&turns);
        let mut acme: Vec<_> = (0..4).map(|_| queue_for_turn(&turns, "acme")).collect();
        let refused = |tenant: &str| {
            let (turns, tenant) = (turns.clone(), Tenant::parse(tenant).unwrap());
            let mut waiting: Waiting = Box::pin(async move { turns.next(Some(&tenant)).await });
            poll(&mut waiting).is_some_and(|turn| turn.is_none())
        };
        assert!(refused("acme"));
        let globex: Vec<_> = (0..2).map(|_| queue_for_turn(&turns, "globex")).collect();
        // the newest of the others lost their places, and both have two now
        assert!((0..2).all(|_| poll(&mut acme.pop().unwrap()).is_some_and(|turn| turn.is_none())));
        assert!(refused("globex") && refused("acme"));
        // callers that have gone make room for anyone
        drop(acme.pop());
        let more = queue_for_turn(&turns, "globex");
        assert!(refused("globex"));
        let waiting = acme.into_iter().map(|it| ("acme", it)).chain(globex.into_iter().map(|it| ("globex", it)));
        let waiting = waiting.chain([("globex", more)]).collect();
        assert_eq!(order(running, waiting), ["acme", "globex", "globex", "globex"]);
    }

    proptest! {
        /// Callers come, give up and finish in any order.
        #[test]
        fn a10_no_turn_is_lost_and_no_bound_exceeded(steps in vec((0..4_usize, 0..10_usize), 1..200)) {
            let turns = Turns::new(2, 5);
            let (mut running, mut waiting): (Vec<Turn>, Vec<Waiting>) = (Vec::new(), Vec::new());
            for (kind, at) in steps {
                match kind {
                    0 | 1 => {
                        let (turns, tenant) = (turns.clone(), Tenant::parse(format!("tenant{}", at % 3)).unwrap());
                        waiting.push(Box::pin(async move { turns.next(Some(&tenant)).await }));
                    }
                    2 if at < running.len() => drop(running.remove(at)),
                    _ if at < waiting.len() => drop(waiting.remove(at)),
                    _ => {}
                }
                // twice, because a new caller can take the place of an earlier one
                for _ in 0..2 {
                    waiting.retain_mut(|waiting| match poll(waiting) {
                        None => true,
                        Some(turn) => {
                            running.extend(turn);
                            false
                        }
                    });
                }
                prop_assert!(running.len() <= 2 && waiting.len() <= 5);
                prop_assert!(waiting.is_empty() || running.len() == 2);
                prop_assert_eq!(lock(&turns.queue).running, running.len());
            }
            drop((running, waiting));
            prop_assert_eq!(lock(&turns.queue).running, 0);
        }
    }
}
