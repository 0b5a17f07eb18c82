//! A clock for all processes of a machine, and numbers that are equal in each run.

use tokio::time::Instant;
use tollgate::clock::{Clock, Moment, SystemClock, UnixTime};

/// The monotonic clock of the machine.
#[derive(Debug)]
pub(crate) struct MachineClock {
    wall: SystemClock,
    base: Instant,
    nanos_at_base: u64,
}

impl MachineClock {
    pub(crate) fn new() -> Self {
        let base = Instant::now();
        // the only way in std to its number: `Instant { tv_sec: 1, tv_nsec: 2 }`
        let shown = format!("{:?}", base.into_std());
        let mut numbers = shown.split(|c: char| !c.is_ascii_digit()).filter_map(|text| text.parse::<u64>().ok());
        let nanos_at_base = numbers.next().unwrap() * 1_000_000_000 + numbers.next().unwrap();
        assert!(shown.contains("tv_sec") && numbers.next().is_none(), "{shown}");
        Self { wall: SystemClock::new(), base, nanos_at_base }
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.nanos_at_base) + self.base.elapsed()
    }

    fn unix(&self, _: Moment) -> UnixTime {
        self.wall.read().1
    }
}

/// Numbers that are the same each time (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }
}
