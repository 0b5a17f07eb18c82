//! Models of the slots of leases.
//!
//! Bounds: one node with a lock, a server with at most 8 units, one tenant, 2 or 3 threads, and 1 to 3 calls of each. All
//! interleavings are tried, except in `each_unit_is_admitted_once`: there, threads are interrupted at most 5 times.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use tollgate_models::util;

/// Defines the models for a copy of the slot.
macro_rules! models {
    ($copy:ident) => {
        #[allow(dead_code, clippy::all, reason = "copies, some of them with a fault")]
        mod $copy {
            mod slot {
                include!(concat!(env!("OUT_DIR"), "/", stringify!($copy), ".rs"));
            }
            mod slots {
                include!(concat!(env!("OUT_DIR"), "/slots.rs"));
            }

            use std::time::Duration;

            use loom::{
                sync::{Arc, Mutex},
                thread,
            };

            use self::{
                slot::{Admission, ClockReading, LeaseCall, LeaseReply, LeaseRequest, LeaseStep},
                slots::LeaseSlots,
            };
            use crate::util::clock::{Moment, UnixTime};

            const LIFETIME: Duration = Duration::from_secs(1);

            /// A node and its server. The terms of a lease are the plan it was asked for with.
            struct Node {
                slots: Mutex<LeaseSlots<(), u32>>,
                server: Mutex<Server>,
            }

            struct Server {
                left: u32,
                /// So many calls fail first.
                failures: u32,
            }

            fn at(seconds: u64) -> ClockReading {
                let nanos = seconds * 1_000_000_000;
                ClockReading { steady: Moment::from_nanos(nanos), wall: UnixTime::from_nanos(nanos) }
            }

            impl Node {
                fn new(units: u32, failures: u32) -> Arc<Self> {
                    let slots = Mutex::new(LeaseSlots::new(4, LIFETIME, 1));
                    Arc::new(Self { slots, server: Mutex::new(Server { left: units, failures }) })
                }

                /// Asks for a unit of a plan. Returns the number of the lease if it was admitted.
                fn ask(&self, plan: u32) -> Option<u64> {
                    let request = LeaseRequest { units: 1, plan, lifetime: LIFETIME };
                    let mut step = Some(self.with(|slots| slots.request(&(), request, at(0))));
                    loop {
                        step = match step? {
                            LeaseStep::Admitted(Admission { lease, terms, .. }) => {
                                assert_eq!(terms, plan, "a lease of another plan");
                                return Some(lease);
                            }
                            LeaseStep::Call(call) => {
                                let reply = self.server.lock().unwrap().reply(&call);
                                self.with(|slots| slots.replied(&(), &call, reply))
                            }
                            LeaseStep::Wait(end) => {
                                let has_reply = tollgate_models::finish(end.wait_for_reply());
                                has_reply.then(|| self.with(|slots| slots.request(&(), request, at(0))))
                            }
                            LeaseStep::Plain => {
                                let server = &mut *self.server.lock().unwrap();
                                server.left = server.left.checked_sub(1)?;
                                return Some(0);
                            }
                            LeaseStep::Refused(_) => return None,
                        }
                    }
                }

                /// Gives the unit of a request back, to its lease or to the server.
                fn refund(&self, lease: u64) {
                    if self.with(|slots| slots.refund(&(), lease, 1)).is_none() {
                        self.server.lock().unwrap().left += 1;
                    }
                }

                /// Uses the slots under their lock. What must be returned is sent after it.
                fn with<T>(&self, change: impl FnOnce(&mut LeaseSlots<(), u32>) -> T) -> T {
                    let mut slots = self.slots.lock().unwrap();
                    let changed = change(&mut slots);
                    let returns = slots.take_returns();
                    drop(slots);
                    for unused in returns {
                        self.server.lock().unwrap().left += unused.units;
                    }
                    changed
                }

                /// Returns the units that are neither at the server nor in a lease.
                fn spent(&self, units: u32) -> u32 {
                    let held = self.slots.lock().unwrap().left(&(), at(0));
                    units - self.server.lock().unwrap().left - held
                }
            }

            impl Server {
                fn reply(&mut self, call: &LeaseCall) -> LeaseReply<u32> {
                    if self.failures > 0 {
                        self.failures -= 1;
                        return LeaseReply::Failed;
                    }
                    if self.left < call.needed {
                        return LeaseReply::Refused { wait: LIFETIME, terms: call.plan };
                    }
                    let granted = call.most.min(self.left);
                    self.left -= granted;
                    LeaseReply::Granted { granted, lifetime: LIFETIME, terms: call.plan }
                }
            }

            /// Three requests at once for two units.
            pub(super) fn each_unit_is_admitted_once() {
                tollgate_models::explore(Some(5), || {
                    let node = Node::new(2, 0);
                    let others = [(); 2].map(|()| {
                        let node = Arc::clone(&node);
                        thread::spawn(move || node.ask(1).is_some())
                    });
                    let own = node.ask(1).is_some();
                    let admitted = others.map(|other| other.join().unwrap()).into_iter().chain([own]);
                    assert_eq!(admitted.filter(|is_admitted| *is_admitted).count(), 2);
                    assert_eq!(node.spent(2), 2);
                });
            }

            /// Three requests at once, whose first call fails. Those who wait for it learn it, and nobody waits for ever.
            pub(super) fn a_call_without_a_reply_ends_every_wait() {
                tollgate_models::explore(None, || {
                    let node = Node::new(8, 1);
                    let others = [(); 2].map(|()| {
                        let node = Arc::clone(&node);
                        thread::spawn(move || u32::from(node.ask(1).is_some()))
                    });
                    let own = u32::from(node.ask(1).is_some());
                    let admitted = own + others.map(|other| other.join().unwrap()).iter().sum::<u32>();
                    assert!(admitted <= 2, "one has sent the call that failed");
                    assert_eq!(node.spent(8), admitted);
                });
            }

            /// The plan changes while a call is under way. Its lease is not used for the new plan.
            pub(super) fn a_late_reply_is_not_used_for_another_plan() {
                tollgate_models::explore(None, || {
                    let node = Node::new(8, 0);
                    // a lease of two units, so that the next ones are larger
                    assert!(node.ask(1).is_some() && node.ask(1).is_some() && node.ask(1).is_some());
                    let other = {
                        let node = Arc::clone(&node);
                        thread::spawn(move || u32::from(node.ask(1).is_some()))
                    };
                    let own = [(); 2].map(|()| u32::from(node.ask(2).is_some())).iter().sum::<u32>();
                    assert_eq!(3 + own + other.join().unwrap(), node.spent(8));
                });
            }

            /// The node ends while a call is under way. It holds nothing afterwards.
            pub(super) fn a_node_that_has_ended_holds_nothing() {
                tollgate_models::explore(None, || {
                    let node = Node::new(8, 0);
                    assert!(node.ask(1).is_some() && node.ask(1).is_some());
                    let others = [(); 2].map(|()| {
                        let node = Arc::clone(&node);
                        thread::spawn(move || u32::from(node.ask(1).is_some()))
                    });
                    node.with(LeaseSlots::close);
                    let admitted = 2 + others.map(|other| other.join().unwrap()).iter().sum::<u32>();
                    assert_eq!(node.slots.lock().unwrap().left(&(), at(0)), 0);
                    assert_eq!(node.spent(8), admitted);
                });
            }

            /// Units come back while other requests use up, replace or end their lease.
            pub(super) fn a_refund_counts_once() {
                tollgate_models::explore(None, || {
                    let node = Node::new(4, 0);
                    assert!(node.ask(1).is_some());
                    let refunded = node.ask(1).unwrap();
                    let others = [false, true].map(|is_sweep| {
                        let node = Arc::clone(&node);
                        thread::spawn(move || match is_sweep {
                            true => {
                                node.with(|slots| slots.sweep(at(2)));
                                0
                            }
                            false => u32::from(node.ask(1).is_some()),
                        })
                    });
                    node.refund(refunded);
                    let admitted = 1 + others.map(|other| other.join().unwrap()).iter().sum::<u32>();
                    assert_eq!(node.spent(4), admitted);
                });
            }
        }
    };
}

models!(slot);

#[test]
fn each_unit_is_admitted_once() {
    slot::each_unit_is_admitted_once();
}

#[test]
fn a_call_without_a_reply_ends_every_wait() {
    slot::a_call_without_a_reply_ends_every_wait();
}

#[test]
fn a_late_reply_is_not_used_for_another_plan() {
    slot::a_late_reply_is_not_used_for_another_plan();
}

#[test]
fn a_node_that_has_ended_holds_nothing() {
    slot::a_node_that_has_ended_holds_nothing();
}

#[test]
fn a_refund_counts_once() {
    slot::a_refund_counts_once();
}

// copies that are weakened in one place, and what the model that notices it says
tollgate_models::faults! {
    slot_that_takes_every_reply: a_late_reply_is_not_used_for_another_plan, "a lease of another plan";
    slot_that_ends_no_wait_after_a_reply: each_unit_is_admitted_once, "deadlock";
    slot_that_ends_no_wait_without_a_reply: a_call_without_a_reply_ends_every_wait, "deadlock";
}
