//! The meters of a plan that replaces another.

use std::iter::zip;

use super::meter::{Context, Gauge, Meter};
use crate::{limit::plan::Limited, util::clock::Moment};

/// Creates the meters of a new plan from those of the old one. Each starts from the meter of the quota with its name, or
/// else from the one that knows most. If anonymous requests were not counted apart until now, all that was spent counts as
/// theirs.
pub(super) fn convert(old: &[Limited], mut meters: Vec<Meter>, new: &[Limited], context: Context<'_>) -> Vec<Meter> {
    for (meter, was) in zip(&mut meters, old) {
        meter.refresh(was.gauge, context);
    }
    let sources: Vec<Option<usize>> = new
        .iter()
        .map(|is| {
            if let Gauge::Concurrent = is.gauge {
                return None;
            }
            let same = |for_anonymous| {
                let same = |was: &Limited| {
                    was.quota.name() == is.quota.name()
                        && was.is_for_anonymous == for_anonymous
                        && was.gauge.counts_units()
                };
                old.iter().position(same)
            };
            let same_name = same(is.is_for_anonymous).or_else(|| same(false));
            same_name.or_else(|| best_informed(old, &meters, is, context.now))
        })
        .collect();
    let mut left: Vec<_> = zip(old, meters).map(|(was, meter)| (was.gauge, Some(meter))).collect();
    let converted = zip(new, 1..).map(|(is, next)| {
        let source = sources.get(next - 1).copied().flatten();
        let Some((was, meter)) = source.and_then(|source| left.get_mut(source)) else { return Meter::new(is.gauge) };
        let needed_again = sources.iter().skip(next).any(|other| *other == source);
        let taken = match needed_again {
            true => meter.as_ref().map(|meter| meter.copied(*was, context)),
            false => meter.take(),
        };
        taken.map_or_else(|| Meter::new(is.gauge), |meter| meter.converted(*was, is.gauge, context))
    });
    let converted = converted.collect();
    for dropped in left.into_iter().filter_map(|(_, meter)| meter) {
        context.bytes.give_back(dropped.heap_bytes());
    }
    converted
}

/// Returns the meter that a new quota starts from. It must be of an enforced quota, because a shadow does not count requests
/// that it would refuse. The longest log that covers the new window is best, then the meter that counts most.
fn best_informed(old: &[Limited], meters: &[Meter], is: &Limited, now: Moment) -> Option<usize> {
    let rank = |was: &Limited, meter: &Meter| {
        let window = was.quota.window();
        let covers_window = matches!(was.gauge, Gauge::Window(_)) && window >= is.quota.window();
        let counts = if covers_window { 0 } else { meter.used(was.gauge, now) };
        (!was.is_for_anonymous, !was.quota.is_shadow(), covers_window, counts, window)
    };
    let ranked = zip(old, meters).map(|(was, meter)| (was.gauge.counts_units(), rank(was, meter)));
    let best = ranked.enumerate().filter(|(_, (counts_units, _))| *counts_units).max_by_key(|(_, rank)| *rank);
    best.map(|(index, _)| index)
}
