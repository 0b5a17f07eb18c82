//! The live streams of a log: who is there, and how to wake them.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Waker,
};

use super::{core::Core, lock};
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

/// One stream's place. It is given back when this is dropped.
pub(super) struct StreamSeat {
    core: Arc<Core>,
    number: u64,
}

impl Streams {
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

impl StreamSeat {
    /// A place, if fewer than `max` are taken, and by this tenant fewer than a
    /// quarter of them: no tenant can shut the others out.
    pub(super) fn take(core: &Arc<Core>, tenant: Option<Tenant>, max: usize) -> Option<Self> {
        let mut seats = lock(&core.streams.seats);
        let own = seats.iter().filter(|seat| seat.tenant == tenant).count();
        if seats.len() >= max || (tenant.is_some() && own >= max.div_ceil(4)) {
            return None;
        }
        let number = core.streams.numbers.fetch_add(1, Relaxed);
        seats.push(Listener { number, tenant, waker: None });
        drop(seats);
        Some(Self { core: Arc::clone(core), number })
    }

    pub(super) fn core(&self) -> &Core {
        &self.core
    }

    pub(super) fn wake_me(&self, waker: &Waker) {
        let mut seats = lock(&self.core.streams.seats);
        if let Some(seat) = seats.iter_mut().find(|seat| seat.number == self.number) {
            match &mut seat.waker {
                Some(old) => old.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
    }
}

impl Drop for StreamSeat {
    fn drop(&mut self) {
        lock(&self.core.streams.seats).retain(|seat| seat.number != self.number);
    }
}
