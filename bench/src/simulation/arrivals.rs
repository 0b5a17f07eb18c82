//! The requests of a run.

use super::budget::Micros;
use crate::random::Random;

/// A request of a tenant.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub at: Micros,
    pub tenant: u32,
    pub units: u32,
    /// Which of the nodes that serve the tenant gets it, as a random number.
    pub draw: u64,
}

/// Returns requests in the order of time. The tenant with rank `r` gets a share of `1 / r` (Zipf), gaps are exponential,
/// and one request in ten costs 5 units.
pub fn arrivals(seed: u64, requests: u64, tenants: u64, lasts: Micros) -> Vec<Arrival> {
    let mut random = Random(seed);
    let gap = lasts as f64 / requests as f64;
    let mut now = 0.0;
    let arrival = |_| {
        now += -gap * fraction(&mut random).ln();
        // the inverse of the sum of 1 / r, which is close to a logarithm
        let rank = (tenants as f64 + 1.0).powf(fraction(&mut random));
        Arrival {
            at: now as Micros,
            tenant: (rank as u32).saturating_sub(1),
            units: if random.below(10) == 0 { 5 } else { 1 },
            draw: random.below(u64::MAX),
        }
    };
    (0..requests).map(arrival).collect()
}

/// Returns a number above zero and at most 1.
pub fn fraction(random: &mut Random) -> f64 {
    (random.below(1 << 53) + 1) as f64 / (1_u64 << 53) as f64
}
