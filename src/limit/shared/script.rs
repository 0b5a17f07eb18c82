//! The call of the script: its arguments, and its reply.

use std::{fmt::Write, time::Duration};

#[cfg(feature = "smooth")]
use crate::limit::engine::meter::Gauge;
use crate::{
    limit::{
        decision::{Decision, Marks, NO_MARKS},
        plan::{Limited, Plan},
        quota::Rule,
    },
    redis::{RedisFailure, Reply, Script, unexpected},
    tenant::Standing,
    util::clock::{Moment, UnixTime, saturating_nanos},
};

pub(super) static SCRIPT: Script = Script::new(include_str!("limit.lua"));

/// Returns the quotas of a plan as the script reads them. Times are rounded up to microseconds, so that nothing comes back
/// earlier than asked for.
pub(super) fn quotas(plan: &Plan) -> String {
    let mut text = String::new();
    for limited in plan.limits() {
        let Limited { quota, most, is_for_anonymous, bit, .. } = limited;
        let window = saturating_nanos(quota.window());
        let (rule, length, fine) = match quota.rule() {
            Rule::Window { slices } => ('w', window, (window / u64::from(slices)).max(1).div_ceil(1000)),
            #[cfg(feature = "smooth")]
            Rule::Smooth { interval } => match limited.gauge {
                Gauge::Smooth(pace) => ('s', pace.interval, u64::from(pace.burst)),
                _ => ('s', interval, u64::from(*most)),
            },
            Rule::Fixed => ('f', window, 0),
        };
        let (anonymous, shadow) = (u8::from(*is_for_anonymous), u8::from(quota.is_shadow()));
        let (name, length, window) = (quota.name(), length.div_ceil(1000), window.div_ceil(1000));
        // writing to a string can't fail
        _ = writeln!(text, "{name} {rule} {anonymous} {shadow} {length} {fine} {most} {window} {bit}");
    }
    text
}

/// A decision of the script, and what identifies the spend.
pub(super) struct Answer {
    pub(super) decision: Decision,
    /// When the state of the tenant began, in microseconds of the server.
    pub(super) generation: u64,
    /// In microseconds of the server.
    pub(super) marks: Marks,
    /// The units of a lease, with those that were needed.
    pub(super) granted: u32,
    /// How long a lease lasts from the time of the call. Zero for a spend.
    pub(super) lifetime: Duration,
}

impl Answer {
    /// Reads a reply that has arrived now.
    pub(super) fn read(reply: Reply, plan: &Plan, now: (Moment, UnixTime)) -> Result<Self, RedisFailure> {
        let Reply::List(parts) = reply else { return Err(unexpected()) };
        let number = |at: usize| parts.get(at).and_then(Reply::number);
        let standing = |at: usize| match number(at) {
            Some(0) => Ok(None),
            Some(place) => {
                let place = usize::try_from(place - 1).map_err(|_| unexpected())?;
                let limited = plan.limits().get(place).ok_or_else(unexpected)?;
                let remaining = number(at + 1).and_then(|units| u32::try_from(units).ok()).ok_or_else(unexpected)?;
                // a request that is larger than the limit never fits
                let wait = number(at + 2).map(Duration::from_micros);
                let reset = wait.map_or(Standing::NEVER, |wait| now.0 + wait);
                let quota = &limited.quota;
                Ok(Some(Standing::new(quota.name(), quota.limit(), remaining, reset, now)))
            }
            None => Err(unexpected()),
        };
        let marks = |first: usize| {
            let mut marks = NO_MARKS;
            for (mark, at) in marks.iter_mut().zip(first..) {
                if let Some(micros) = number(at) {
                    *mark = Moment::from_nanos(micros);
                }
            }
            marks
        };
        let required = |at: usize| number(at).ok_or_else(unexpected);
        let spent =
            |decision, generation| Self { decision, generation, marks: NO_MARKS, granted: 0, lifetime: Duration::ZERO };
        match parts.first() {
            Some(Reply::Bytes(word)) if word == "refused" => {
                Ok(spent(Decision::refused_by(standing(1)?.ok_or_else(unexpected)?), 0))
            }
            Some(Reply::Bytes(word)) if word == "admitted" => {
                let decision = Decision::admitted(standing(1)?, standing(4)?.map(Box::new));
                Ok(Self { marks: marks(8), ..spent(decision, required(7)?) })
            }
            Some(Reply::Bytes(word)) if word == "leased" => {
                let granted = u32::try_from(required(5)?).map_err(|_| unexpected())?;
                let (decision, lifetime) =
                    (Decision::admitted(standing(1)?, None), Duration::from_micros(required(6)?));
                Ok(Self { marks: marks(7), granted, lifetime, ..spent(decision, required(4)?) })
            }
            _ => Err(unexpected()),
        }
    }
}
