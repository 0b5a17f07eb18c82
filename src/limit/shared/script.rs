//! The call of the script: its arguments, and its reply.

use std::time::Duration;

use bytes::Bytes;

use super::mirror::{Knowledge, Mirrored, ServerCounts};
#[cfg(feature = "smooth")]
use crate::limit::engine::meter::Gauge;
use crate::{
    limit::{
        decision::{Decision, Marks, NO_MARKS, Spend, UNCHARGED},
        plan::{Limited, Plan},
        quota::Rule,
    },
    redis::{RedisFailure, Reply, Script, unexpected},
    tenant::Standing,
    util::clock::{Moment, UnixTime, saturating_nanos},
};

pub(super) static SCRIPT: Script = Script::new(include_str!("limit.lua"));

/// Returns the quotas of a plan as the script reads them.
pub(super) fn packed(plan: &Plan) -> Bytes {
    plan.packed(pack)
}

/// A longer interval of a smooth quota is rounded up to microseconds, so that doubles hold all multiples of it that the script needs.
#[cfg(feature = "smooth")]
const EXACT: u64 = 1_000_000;

/// Packs quotas. Times are rounded up to microseconds, so that nothing comes back earlier than asked for. The interval of a smooth
/// quota is in nanoseconds.
fn pack(limits: &[Limited]) -> Bytes {
    // a plan has at most 6 quotas, and a name at most 32 bytes
    let length_of = |bytes: usize| u8::try_from(bytes).unwrap_or(u8::MAX);
    let mut packed = vec![length_of(limits.len())];
    for limited in limits {
        let Limited { quota, most, is_for_anonymous, bit, .. } = limited;
        let window = saturating_nanos(quota.window());
        let micros = window.div_ceil(1000);
        let (rule, length, fine) = match quota.rule() {
            Rule::Window { slices } => (b'w', micros, (window / u64::from(slices)).max(1).div_ceil(1000)),
            #[cfg(feature = "smooth")]
            Rule::Smooth { interval } => {
                let interval = if let Gauge::Smooth(pace) = limited.gauge { pace.interval } else { interval };
                (b's', interval.next_multiple_of(if interval < EXACT { 1 } else { 1000 }), u64::from(*most))
            }
            Rule::Fixed => (b'f', micros, 0),
            Rule::Concurrent => (b'c', 0, 0),
        };
        packed.extend([rule, u8::from(*is_for_anonymous), u8::from(quota.is_shadow()), *bit]);
        packed.extend(most.to_be_bytes());
        for number in [length, fine, micros] {
            // none has more than 55 bits
            let [_, low @ ..] = number.to_be_bytes();
            packed.extend(low);
        }
        packed.push(length_of(quota.name().len()));
        packed.extend(quota.name().bytes());
    }
    packed.into()
}

/// A decision of the script, and what identifies the spend.
pub(super) struct Answer {
    pub(super) decision: Decision,
    /// When the state of the tenant began or got another plan, in microseconds of the server.
    pub(super) generation: u64,
    /// In microseconds of the server.
    pub(super) marks: Marks,
    /// The units of a lease, with those that were needed.
    pub(super) granted: u32,
    /// How long a lease lasts from the time of the call. Zero for a spend.
    pub(super) lifetime: Duration,
    pub(super) counts: ServerCounts,
    /// What the server knew when the call was sent.
    pub(super) knowledge: Knowledge,
    /// The call and the charge of the mirror, or its refusal of what the server has admitted.
    pub(super) mirrored: Result<Mirrored, Decision>,
}

impl Answer {
    fn new(decision: Decision, counts: ServerCounts) -> Self {
        Self {
            decision,
            generation: 0,
            marks: NO_MARKS,
            granted: 0,
            lifetime: Duration::ZERO,
            counts,
            knowledge: Knowledge::default(),
            mirrored: Ok((None, Spend::default())),
        }
    }

    /// Reads a reply that has arrived now. Wall-clock times are those of the server.
    pub(super) fn from_script_reply(reply: Reply, plan: &Plan, now: Moment) -> Result<Self, RedisFailure> {
        let Reply::Bytes(packed) = reply else { return Err(unexpected()) };
        let mut reader = Reader(&packed);
        let mut counts = ServerCounts { used: [0; Plan::MAX_QUOTAS], at: UnixTime::from_nanos(0) };
        let [kind] = reader.bytes()?;
        let unix = reader.micros()?.ok_or_else(unexpected)?;
        let now = (now, UnixTime::from_nanos(unix.saturating_mul(1000)));
        counts.at = now.1;
        if kind == b'f' {
            let limit = u32::from_be_bytes(reader.bytes()?);
            let wait = Duration::from_micros(reader.micros()?.ok_or_else(unexpected)?);
            reader.counts(plan, &mut counts)?;
            let full = Standing::new(OPEN_CALLS, limit, 0, now.0 + wait, now).inexact();
            return Ok(Self::new(Decision::refused_by(full), counts));
        }
        let (standing, place) = reader.standing(plan, now)?.unzip();
        if let (Some(standing), Some(used)) = (&standing, place.and_then(|place| counts.used.get_mut(place))) {
            *used = standing.limit().saturating_sub(standing.remaining());
        }
        if kind == b'r' {
            reader.counts(plan, &mut counts)?;
            return Ok(Self::new(Decision::refused_by(standing.ok_or_else(unexpected)?), counts));
        }
        let generation = reader.micros()?.ok_or_else(unexpected)?;
        let shadow = reader.standing(plan, now)?.map(|(standing, _)| Box::new(standing));
        let granted = u32::from_be_bytes(reader.bytes()?);
        let lifetime = Duration::from_micros(reader.micros()?.ok_or_else(unexpected)?);
        let mut marks = NO_MARKS;
        for (mark, _) in marks.iter_mut().zip(plan.limits()) {
            if let Some(micros) = reader.micros()? {
                *mark = Moment::from_nanos(micros);
            }
        }
        reader.counts(plan, &mut counts)?;
        for (used, mark) in counts.used.iter_mut().zip(&marks) {
            let own = if *mark == UNCHARGED { 0 } else { granted };
            *used = used.saturating_sub(own);
        }
        let decision = Decision::admitted(standing, shadow);
        Ok(Self { generation, marks, granted, lifetime, ..Self::new(decision, counts) })
    }
}

/// The name that is shown if a key has as many open calls as the server keeps.
const OPEN_CALLS: &str = "open-calls";

/// The bit of the number of a quota that marks an estimate.
const INEXACT: u8 = 128;

/// Reads a packed reply from its start.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], RedisFailure> {
        let (first, rest) = self.0.split_first_chunk().ok_or_else(unexpected)?;
        self.0 = rest;
        Ok(*first)
    }

    /// Reads a time. Returns `None` if it never comes.
    fn micros(&mut self) -> Result<Option<u64>, RedisFailure> {
        let number = f64::from_be_bytes(self.bytes()?);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the script sends whole numbers, and casts saturate"
        )]
        Ok((number >= 0.0).then_some(number as u64))
    }

    /// Reads the units that count, if there are several quotas or open calls. Otherwise, the standing has them.
    fn counts(&mut self, plan: &Plan, counts: &mut ServerCounts) -> Result<(), RedisFailure> {
        if plan.limits().len() > 1 || !self.0.is_empty() {
            for (used, _) in counts.used.iter_mut().zip(plan.limits()) {
                *used = u32::from_be_bytes(self.bytes()?);
            }
        }
        Ok(())
    }

    /// Reads the number of a quota, the units left, and how long until there are more.
    fn standing(&mut self, plan: &Plan, now: (Moment, UnixTime)) -> Result<Option<(Standing, usize)>, RedisFailure> {
        let ([place], remaining) = (self.bytes()?, u32::from_be_bytes(self.bytes()?));
        let is_inexact = place & INEXACT != 0;
        // a request that is larger than the limit never fits
        let wait = self.micros()?.map(Duration::from_micros);
        let Some(place) = usize::from(place & !INEXACT).checked_sub(1) else { return Ok(None) };
        let Limited { quota, .. } = plan.limits().get(place).ok_or_else(unexpected)?;
        let reset = wait.map_or(Standing::NEVER, |wait| now.0 + wait);
        let exact = Standing::new(quota.name(), quota.limit(), remaining, reset, now);
        Ok(Some((if is_inexact { exact.inexact() } else { exact }, place)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::quota::Quota;

    #[test]
    fn a_reply_that_is_cut_off_or_names_no_quota_is_an_error() {
        let plan = Plan::from(Quota::per_minute(5).unwrap());
        let now = Moment::from_nanos(7);
        let read = |packed: &[u8]| Answer::from_script_reply(Reply::Bytes(packed.to_vec().into()), &plan, now);
        let numbers = |numbers: &[f64]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();
        let standing = |place: u8| [&[place, 0, 0, 0, 3][..], &numbers(&[2e6])].concat();
        let reply = |place| {
            let (generation, shadow) = (numbers(&[9e6]), standing(0));
            let time = numbers(&[1.5e6]);
            [b"a", &time[..], &standing(place), &generation, &shadow, &[0, 0, 0, 4], &numbers(&[1e6, 8e6])].concat()
        };
        let whole = reply(1);
        let answer = read(&whole).unwrap();
        let standing = answer.decision.standing.unwrap();
        assert_eq!((standing.remaining(), standing.reset()), (3, now + Duration::from_secs(2)));
        // by the time of the server
        assert_eq!(standing.reset_unix(), Some(UnixTime::from_nanos(3_500_000_000)));
        // without the four of this call
        assert_eq!((answer.counts.used[0], answer.counts.at), (0, UnixTime::from_nanos(1_500_000_000)));
        assert_eq!((answer.generation, answer.granted, answer.lifetime), (9_000_000, 4, Duration::from_secs(1)));
        assert_eq!(answer.marks[0], Moment::from_nanos(8_000_000));
        assert!((0..whole.len()).all(|length| read(&whole[..length]).is_err()));
        assert!(read(&reply(2)).is_err(), "the plan has one quota");
        let full = [b"f", &numbers(&[1.5e6])[..], &[0, 0, 4, 0], &numbers(&[1e6])].concat();
        let standing = read(&full).unwrap().decision.standing.unwrap();
        assert_eq!((standing.policy(), standing.limit(), standing.remaining()), (OPEN_CALLS, 1024, 0));
        assert!((0..full.len()).all(|length| read(&full[..length]).is_err()));
        assert!(read(&[b"r", &[0; 21][..]].concat()).is_err(), "a refusal is by a quota");
    }
}
