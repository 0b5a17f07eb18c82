//! [`Slot`]: what a node knows about the budget of one tenant.

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;

use crate::util::clock::{Moment, UnixTime};

/// A reading of both clocks of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockReading {
    /// The clock that only moves forward.
    pub steady: Moment,
    /// The wall clock, which also counts the time while a machine is suspended.
    pub wall: UnixTime,
}

impl ClockReading {
    /// Returns the time since an earlier reading by the clock that shows more.
    pub fn since(self, earlier: Self) -> Duration {
        let wall = self.wall.as_nanos().saturating_sub(earlier.wall.as_nanos());
        self.steady.since(earlier.steady).max(Duration::from_nanos(wall))
    }
}

/// A request that a node decides on.
#[derive(Clone, Copy, Debug)]
pub struct LeaseRequest {
    /// The units that the request costs, at least one.
    pub units: u32,
    /// A number that differs between plans.
    pub plan: u32,
    /// How long a lease of this plan lasts.
    pub lifetime: Duration,
}

/// The next step of a request.
#[derive(Debug)]
pub enum LeaseStep<T> {
    /// The request is admitted by a lease in hand, at the clock reading that was given.
    Admitted(Admission<T>),
    /// The request is refused, because the server has refused the same number of units a moment ago.
    Refused(T),
    /// This call must be sent. `LeaseSlots::replied` takes the reply.
    Call(LeaseCall),
    /// Another request has sent a call. This one asks again after its end.
    Wait(CallEnd),
    /// The request must be checked without a lease.
    Plain,
}

/// An admitted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission<T> {
    /// The number of the lease that it has used, or zero if the server has charged the request alone.
    pub lease: u64,
    /// The units that are left of the lease.
    pub left: u32,
    /// The terms of the reply.
    pub terms: T,
}

/// A call of the operation `lease`.
#[derive(Clone, Debug)]
pub struct LeaseCall {
    /// The number of the call, and of the lease that it gets.
    pub number: u64,
    /// The clocks before the call was sent.
    pub sent: ClockReading,
    /// The units that the request needs.
    pub needed: u32,
    /// The most units that the node wants.
    pub most: u32,
    /// How long the lease may last.
    pub lifetime: Duration,
    /// The plan of the request.
    pub plan: u32,
    end: CallEnd,
}

/// The reply to a call.
#[derive(Clone, Debug)]
pub enum LeaseReply<T> {
    /// The server has charged these units, and the rest after those needed can be used for the lifetime. It is zero if
    /// there is no rest.
    Granted {
        /// The units, with those needed.
        granted: u32,
        /// How long the lease lasts from the time of the call.
        lifetime: Duration,
        /// The terms of admissions and of a return.
        terms: T,
    },
    /// The server has refused the units needed, and will do so for this time.
    Refused {
        /// How long.
        wait: Duration,
        /// The terms of the refusal.
        terms: T,
    },
    /// There is no reply.
    Failed,
}

/// The end of a call that other requests wait for. It is closed after a reply, and opened for all of them if the call ends
/// without one.
#[derive(Clone, Debug)]
pub struct CallEnd(Arc<Semaphore>);

impl CallEnd {
    /// Waits until the call has ended. Returns whether there was a reply.
    pub(crate) async fn wait_for_reply(&self) -> bool {
        self.0.acquire().await.is_err()
    }
}

/// The lease, the known refusal and the call under way of one tenant.
#[derive(Debug)]
pub(super) struct Slot<T> {
    plan: u32,
    lease: Option<Lease<T>>,
    refusal: Option<Refusal<T>>,
    call: Option<(u64, CallEnd)>,
    /// The units of all requests that wait for the call.
    waiting: u32,
    /// The most units of the next lease.
    size: u32,
    touched: ClockReading,
}

/// Units that were charged at once. A charge without a rest is remembered like a lease with nothing left, because the time
/// until the next one tells how many to take.
#[derive(Debug)]
struct Lease<T> {
    number: u64,
    sent: ClockReading,
    /// How long after `sent` it can be used.
    lasts: Duration,
    granted: u32,
    left: u32,
    requests: u32,
    terms: T,
}

#[derive(Debug)]
struct Refusal<T> {
    sent: ClockReading,
    lasts: Duration,
    units: u32,
    terms: T,
}

/// Units of a lease that can't be used any more.
pub(super) type Unused<T> = Option<(u32, T)>;

impl<T: Clone> Slot<T> {
    pub(super) fn new(plan: u32, now: ClockReading) -> Self {
        Self { plan, lease: None, refusal: None, call: None, waiting: 0, size: 1, touched: now }
    }

    /// Decides on a request. Returns the units that a change of the plan or the end of a lease leaves, too.
    pub(super) fn request(
        &mut self,
        request: LeaseRequest,
        now: ClockReading,
        largest: u32,
        next_number: &mut u64,
    ) -> (LeaseStep<T>, Unused<T>) {
        self.touched = now;
        let unused = if self.plan == request.plan { self.expire(now) } else { self.adopt(request.plan) };
        (self.step(request, now, largest, next_number), unused)
    }

    fn step(&mut self, request: LeaseRequest, now: ClockReading, largest: u32, next_number: &mut u64) -> LeaseStep<T> {
        if let Some(lease) = self.lease.as_mut().filter(|lease| lease.left >= request.units) {
            lease.left -= request.units;
            lease.requests = lease.requests.saturating_add(1);
            return LeaseStep::Admitted(Admission {
                lease: lease.number,
                left: lease.left,
                terms: lease.terms.clone(),
            });
        }
        if let Some(refusal) = self.refusal.as_ref().filter(|refusal| request.units == refusal.units) {
            return LeaseStep::Refused(refusal.terms.clone());
        }
        if let Some((_, end)) = &self.call {
            self.waiting = self.waiting.saturating_add(request.units);
            return LeaseStep::Wait(end.clone());
        }
        if let Some(lease) = &self.lease {
            // used up before its end
            self.size = lease.granted.saturating_mul(2);
        }
        let all = std::mem::take(&mut self.waiting).saturating_add(request.units);
        let end = CallEnd(Arc::new(Semaphore::new(0)));
        let number = *next_number;
        *next_number += 1;
        self.call = Some((number, end.clone()));
        LeaseStep::Call(LeaseCall {
            number,
            sent: now,
            needed: request.units,
            most: self.size.max(all).min(largest).max(request.units),
            lifetime: request.lifetime,
            plan: request.plan,
            end,
        })
    }

    /// Takes the reply to a call, and returns the step of the request that has sent it, or `None` if there is no reply.
    pub(super) fn replied(&mut self, call: &LeaseCall, reply: LeaseReply<T>) -> (Option<LeaseStep<T>>, Unused<T>) {
        let is_current = self.call.as_ref().is_some_and(|(number, _)| *number == call.number);
        let mut waiting = 0;
        if is_current {
            self.call = None;
            // after a refusal or a failure, no request waits for units
            waiting = std::mem::take(&mut self.waiting);
        }
        let (step, unused) = match reply {
            LeaseReply::Granted { granted, lifetime, terms } => {
                let left = granted.saturating_sub(call.needed);
                let (number, lasts) =
                    if lifetime.is_zero() { (0, call.lifetime) } else { (call.number, usable(lifetime)) };
                let admission = Admission { lease: number, left, terms: terms.clone() };
                let lease = Lease { number, sent: call.sent, lasts, granted, left, requests: 1, terms };
                let unused = if is_current {
                    self.waiting = waiting.saturating_sub(left);
                    self.lease.replace(lease).and_then(Lease::rest)
                } else {
                    lease.rest()
                };
                (Some(LeaseStep::Admitted(admission)), unused)
            }
            LeaseReply::Refused { wait, terms } => {
                if is_current {
                    let (sent, lasts) = (call.sent, wait.min(call.lifetime));
                    self.refusal = Some(Refusal { sent, lasts, units: call.needed, terms: terms.clone() });
                }
                (Some(LeaseStep::Refused(terms)), None)
            }
            LeaseReply::Failed => (None, None),
        };
        match step {
            Some(_) => call.end.0.close(),
            // each of those who wait passes the unit on
            None => call.end.0.add_permits(1),
        }
        (step, unused)
    }

    /// Puts the units of a request back into the lease that it has used. Returns the lease, unless it was replaced.
    pub(super) fn refund(&mut self, number: u64, units: u32) -> Option<Admission<T>> {
        let lease = self.lease.as_mut().filter(|lease| number != 0 && lease.number == number)?;
        lease.left = lease.left.saturating_add(units).min(lease.granted);
        self.refusal = None;
        Some(Admission { lease: number, left: lease.left, terms: lease.terms.clone() })
    }

    /// Ends what has expired.
    pub(super) fn expire(&mut self, now: ClockReading) -> Unused<T> {
        self.refusal.take_if(|refusal| now.since(refusal.sent) >= refusal.lasts);
        let lease = self.lease.take_if(|lease| now.since(lease.sent) >= lease.lasts)?;
        // a single request needs no lease
        self.size = if lease.requests > 1 { lease.granted.saturating_sub(lease.left).max(1) } else { 1 };
        lease.rest()
    }

    /// Forgets what holds for another plan.
    fn adopt(&mut self, plan: u32) -> Unused<T> {
        let unused = self.clear();
        (self.plan, self.size) = (plan, 1);
        unused
    }

    /// Drops the lease, and that of a call under way.
    pub(super) fn clear(&mut self) -> Unused<T> {
        (self.call, self.refusal, self.waiting) = (None, None, 0);
        self.lease.take().and_then(Lease::rest)
    }

    /// Forgets a known refusal, because units have come back.
    pub(super) fn ask_again(&mut self) {
        self.refusal = None;
    }

    pub(super) fn left(&self, now: ClockReading) -> u32 {
        self.lease.as_ref().filter(|lease| now.since(lease.sent) < lease.lasts).map_or(0, |lease| lease.left)
    }

    /// Returns whether the slot can be forgotten.
    pub(super) fn is_idle(&self, now: ClockReading, after: Duration) -> bool {
        self.lease.is_none() && self.call.is_none() && now.since(self.touched) >= after
    }
}

impl<T> Lease<T> {
    fn rest(self) -> Unused<T> {
        (self.left > 0).then_some((self.left, self.terms))
    }
}

/// Returns how long after sending the call a lease can be used. The clocks of a node and of the server may differ in rate by a
/// hundredth.
fn usable(lifetime: Duration) -> Duration {
    lifetime - lifetime / 100
}
