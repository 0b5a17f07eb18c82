//! The live streams of a log: who is there, and how to wake them.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Waker,
};

use super::lock;
use crate::tenant::Tenant;

#[derive(Debug, Default)]
pub(super) struct Streams {
    seats: Mutex<Vec<Listener>>,
    numbers: AtomicU64,
    beats: AtomicU64,
}

#[derive(Debug)]
struct Listener {
    number: u64,
    tenant: Option<Tenant>,
    waker: Option<Waker>,
}

impl Streams {
    /// The number of a place, if there is one among `max` for this tenant, or
    /// for an operator. A tenant gets at most a quarter of them, so that none
    /// can shut the others out, and all tenants together leave one to operators.
    pub(super) fn enter(&self, tenant: Option<Tenant>, max: usize) -> Option<u64> {
        let mut seats = lock(&self.seats);
        let tenants = seats.iter().filter(|seat| seat.tenant.is_some()).count();
        let own = seats.iter().filter(|seat| seat.tenant == tenant).count();
        // of a single place nothing can be kept back
        let for_tenants = max.saturating_sub(1).max(1);
        if seats.len() >= max || (tenant.is_some() && (own >= max.div_ceil(4) || tenants >= for_tenants)) {
            return None;
        }
        let number = self.numbers.fetch_add(1, Relaxed);
        seats.push(Listener { number, tenant, waker: None });
        Some(number)
    }

    /// Wakes this stream once there is something new.
    pub(super) fn wait(&self, number: u64, waker: &Waker) {
        if let Some(seat) = lock(&self.seats).iter_mut().find(|seat| seat.number == number) {
            match &mut seat.waker {
                Some(old) => old.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
    }

    pub(super) fn leave(&self, number: u64) {
        lock(&self.seats).retain(|seat| seat.number != number);
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.seats).len()
    }

    /// Counts one more heartbeat.
    pub(super) fn beat(&self) {
        self.beats.fetch_add(1, Relaxed);
    }

    pub(super) fn beats(&self) -> u64 {
        self.beats.load(Relaxed)
    }

    pub(super) fn wake(&self) {
        let wakers: Vec<Waker> = lock(&self.seats).iter_mut().filter_map(|seat| seat.waker.take()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}
