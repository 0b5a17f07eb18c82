use std::{collections::VecDeque, time::Duration};

/// How many times are kept.
const KEPT: usize = 16;
/// The time of a message as long as none was sent.
const AT_FIRST: Duration = Duration::from_millis(200);

/// How long the last few messages kept their places, with all their attempts. A decoy takes as long as one of them.
///
/// The fastest and the slowest quarter are left out, so that a receiver who is slow on purpose makes no decoy slower than the
/// messages to others. If the gateway becomes faster or slower, decoys follow a few messages later.
#[derive(Debug, Default)]
pub(super) struct RecentTimes(VecDeque<Duration>);

impl RecentTimes {
    pub(super) fn note(&mut self, time: Duration) {
        if self.0.len() >= KEPT {
            self.0.pop_front();
        }
        self.0.push_back(time);
    }

    /// Returns one of the usual times, chosen by a random number.
    pub(super) fn draw(&self, random: u32) -> Duration {
        let mut times: Vec<_> = self.0.iter().copied().collect();
        times.sort_unstable();
        let outer = times.len() / 4;
        let usual = times.get(outer..times.len() - outer).unwrap_or_default();
        usual.get(random as usize % usual.len().max(1)).copied().unwrap_or(AT_FIRST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoy_takes_a_usual_time_of_the_last_messages() {
        let (ms, mut recent) = (Duration::from_millis, RecentTimes::default());
        let drawn = |recent: &RecentTimes| {
            let mut drawn: Vec<_> = (0..64).map(|random| recent.draw(random).as_millis()).collect();
            drawn.sort_unstable();
            drawn.dedup();
            drawn
        };
        assert_eq!(drawn(&recent), [200]);
        recent.note(ms(7));
        assert_eq!(drawn(&recent), [7]);
        (1..=16).for_each(|time| recent.note(ms(time)));
        assert_eq!(drawn(&recent), [5, 6, 7, 8, 9, 10, 11, 12]);
        // a quarter of them changes nothing
        (0..4).for_each(|_| recent.note(ms(90_000)));
        assert!(drawn(&recent).iter().all(|time| *time <= 16));
        (0..12).for_each(|_| recent.note(ms(90_000)));
        assert_eq!(drawn(&recent), [90_000]);
        assert_eq!(recent.0.len(), KEPT);
    }
}
