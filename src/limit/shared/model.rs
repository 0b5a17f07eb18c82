//! Compares the script with the limiter in memory, on a real server: the same calls at the same times get the same answers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, dead_code, reason = "helpers of tests")]

#[path = "../../../tests/support/programs.rs"]
mod programs;
#[path = "../../../tests/support/redis_server.rs"]
pub(super) mod redis_server;

use std::time::Duration;

use proptest::{collection::vec, option, prelude::*, sample::select, test_runner::Config};
use tokio::runtime::Runtime;

use super::{
    SharedLimiter,
    open_calls::{CallId, OpenCalls},
    script::Answer,
    shared_limiter::is_untracked,
};
#[cfg(feature = "smooth")]
use super::{leasing::identity, script};
use crate::{
    limit::{
        decision::{Ask, CallAsk, CallEnd, CallInMemory, Decision, OpenCall, Payer, RefusalReason, Spend},
        limiter::Limiter,
        plan::{Plan, PlanKind},
        plans::table::Plans,
        quota::Quota,
    },
    redis::RedisConfig,
    tenant::{LimitKey, Standing},
    testing::ManualClock,
    util::clock::{Clock, UnixTime},
};

#[derive(Clone, Debug)]
enum Step {
    Spend {
        units: u32,
        is_anonymous: bool,
    },
    Refund {
        which: usize,
    },
    /// Opens a call. Without a lifetime, its units are charged now.
    Open {
        units: u32,
        more: u32,
        millis: u32,
        is_anonymous: bool,
    },
    /// Ends a call, with what it has used or its estimate.
    End {
        which: usize,
        used: Option<u32>,
    },
    /// Renews the slots of all calls.
    Renew,
    /// A late renewal adds a call that has ended, whose end is then sent again.
    EndAgain {
        which: usize,
    },
    Reset,
    Advance {
        micros: u64,
    },
    Plan {
        which: usize,
    },
    /// The plan before comes back.
    PlanBack,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let micros =
        [1, 999, 40_000, 99_999, 100_000, 249_999, 250_000, 500_001, 666_667, 1_000_000, 2_000_000, 11_000_000];
    let step = prop_oneof![
        8 => (0..5_u32, any::<bool>()).prop_map(|(units, is_anonymous)| Step::Spend { units, is_anonymous }),
        1 => Just(Step::Spend { units: 30, is_anonymous: false }),
        3 => (0..100_usize).prop_map(|which| Step::Refund { which }),
        5 => (0..5_u32, 0..5_u32, select(vec![0, 1, 40, 250, 1_000, 5_000]), any::<bool>())
            .prop_map(|(units, more, millis, is_anonymous)| Step::Open { units, more, millis, is_anonymous }),
        4 => (0..100_usize, option::of(0..12_u32)).prop_map(|(which, used)| Step::End { which, used }),
        1 => Just(Step::Renew),
        1 => (0..100_usize).prop_map(|which| Step::EndAgain { which }),
        1 => Just(Step::Reset),
        6 => select(micros.to_vec()).prop_map(|micros| Step::Advance { micros }),
        1 => (0..100_usize).prop_map(|which| Step::Plan { which }),
        1 => Just(Step::PlanBack),
    ];
    vec(step, 1..80)
}

/// Plans of every rule, alone and together, whose times are whole microseconds.
fn plans() -> Vec<Plan> {
    let second = Duration::from_secs(1);
    let window = |limit, seconds: u32, slices| Quota::new(limit, second * seconds).unwrap().slices(slices).unwrap();
    let named = |quota: Quota, name| quota.with_name(name).unwrap();
    let concurrent = |limit| Quota::concurrent(limit).unwrap();
    let fixed = |limit, seconds: u32| Quota::fixed(limit, second * seconds).unwrap();
    let mut plans = vec![
        Plan::from(window(5, 1, 4)),
        Plan::from(window(2, 1, 4)),
        Plan::from(window(9, 3, 1)),
        Plan::new([named(window(7, 1, 3), "burst"), window(12, 10, 10)]).unwrap(),
        Plan::from(fixed(6, 2)),
        Plan::from(window(10, 4, 8).reserve(0.4).unwrap()),
        Plan::new([window(8, 2, 3), named(fixed(3, 1).shadow(), "trial")]).unwrap(),
        Plan::new([named(fixed(4, 1).reserve(0.5).unwrap(), "calendar"), window(20, 5, 240)]).unwrap(),
        Plan::new([window(4, 1, 2).shadow().reserve(0.5).unwrap()]).unwrap(),
        Plan::from(concurrent(2)),
        Plan::new([concurrent(3), window(9, 1, 4)]).unwrap(),
        Plan::new([named(concurrent(1).shadow(), "trial"), window(5, 2, 2), named(fixed(7, 3), "calendar")]).unwrap(),
        Plan::unlimited(),
        Plan::denied(),
    ];
    #[cfg(feature = "smooth")]
    {
        let smooth = |units, burst| Quota::smooth(units, second, burst).unwrap();
        plans.extend([
            Plan::from(smooth(5, 3)),
            Plan::from(smooth(5, 8)),
            Plan::from(smooth(4, 6).reserve(0.5).unwrap()),
            Plan::new([smooth(10, 10), named(window(15, 5, 5), "long"), named(smooth(2, 5).shadow(), "trial")])
                .unwrap(),
        ]);
    }
    plans
}

/// All that a standing shows: the policy, its limit, what remains, the wait, and whether that is exact.
type ShownStanding = (&'static str, u32, u32, Option<Duration>, bool);

/// All that a decision shows.
type Shown = (bool, Option<RefusalReason>, Option<ShownStanding>, Option<&'static str>);

fn standing_of(standing: &Standing) -> ShownStanding {
    let wait = (standing.reset() != Standing::NEVER).then(|| standing.time_until_reset());
    (standing.policy(), standing.limit(), standing.remaining(), wait, standing.is_exact())
}

fn summarize_decision(decision: &Decision) -> Shown {
    let standing = decision.standing().map(standing_of);
    (decision.is_admitted(), decision.refusal_reason(), standing, decision.would_refuse())
}

struct Both {
    memory: Limiter,
    shared: SharedLimiter,
    clock: ManualClock,
    tenant: LimitKey,
}

impl Both {
    async fn call(&self, operation: &str, ask: Ask, more: &[&[u8]]) -> Option<Answer> {
        let micros = (self.clock.read().1.as_nanos() / 1000).to_string();
        let plan = self.shared.plans().plan(&self.tenant);
        self.shared.0.server.call_at(&micros, operation, &self.tenant, &plan, ask, more).await.unwrap()
    }

    async fn spend(&self, units: u32, is_anonymous: bool) -> Decision {
        let ask = Ask { refundable: true, ..Ask::new(units, is_anonymous) };
        let plan = self.shared.plans().plan(&self.tenant);
        match plan.kind() {
            PlanKind::Limited { .. } if is_untracked(&plan, ask) => Decision::UNTRACKED,
            PlanKind::Limited { .. } => {
                self.shared.with_spend(self.call("spend", ask, &[]).await.unwrap(), &self.tenant, &plan, ask)
            }
            PlanKind::Unlimited { .. } => Decision::UNLIMITED,
            PlanKind::Denied { .. } => Decision::DENIED,
        }
    }

    /// Opens a call at the server, and returns its id.
    async fn open(&self, ask: Ask) -> (Decision, CallId) {
        let id = OpenCalls::random_id().unwrap();
        let plan = self.shared.plans().plan(&self.tenant);
        let decision = match plan.kind() {
            PlanKind::Limited { .. } if !ask.call.opens_under(plan.limits()) => {
                self.shared.with_spend(self.call("spend", ask, &[]).await.unwrap(), &self.tenant, &plan, ask)
            }
            PlanKind::Limited { .. } => {
                let (at_most, millis) = match ask.call {
                    CallAsk::Hold { at_most, millis } => (at_most, millis),
                    _ => (0, 0),
                };
                let (at_most, lifetime) = (at_most.to_string(), (u64::from(millis) * 1000).to_string());
                // a slot that is never renewed in time
                let more = [&id[..], b"1000000000", at_most.as_bytes(), lifetime.as_bytes()];
                let answer = self.call("hold", ask, &more).await.unwrap();
                // it has no effect if it is sent twice
                assert!(
                    self.call("hold", ask, &more).await.unwrap().decision.is_admitted()
                        || !answer.decision.is_admitted()
                );
                self.shared.with_spend(answer, &self.tenant, &plan, ask)
            }
            PlanKind::Unlimited { .. } => Decision::UNLIMITED,
            PlanKind::Denied { .. } => Decision::DENIED,
        };
        (decision, id)
    }

    async fn change_calls(&self, operation: &str, more: &[&[u8]]) {
        let micros = (self.clock.read().1.as_nanos() / 1000).to_string();
        self.shared.0.server.change_calls(&micros, operation, &self.tenant, more).await.unwrap();
    }

    async fn agree(&self, first: usize, steps: Vec<Step>, plans: &[Plan]) {
        let (mut now, mut before) = (first, first);
        let mut spends: Vec<(Spend, Spend)> = Vec::new();
        let mut calls: Vec<(CallInMemory, Ask, CallId)> = Vec::new();
        let mut ended: Vec<(Ask, CallId, String)> = Vec::new();
        for step in steps {
            match step {
                Step::Spend { units, is_anonymous } => {
                    let expected = self.memory.check_as(&self.tenant, units, is_anonymous);
                    let decision = self.spend(units, is_anonymous).await;
                    assert_eq!(
                        summarize_decision(&decision),
                        summarize_decision(&expected),
                        "{units} units, anonymous: {is_anonymous}"
                    );
                    spends.push((expected.into_spend(), decision.into_spend()));
                }
                Step::Refund { which } if !spends.is_empty() => {
                    let (expected, spend) = spends.swap_remove(which % spends.len());
                    self.memory.refund(expected);
                    let is_limited = matches!(self.shared.plans().plan(&self.tenant).kind(), PlanKind::Limited { .. });
                    if let Some(charge) = spend.0.filter(|_| is_limited)
                        && let Payer::Shared(past) = &charge.payer
                    {
                        let (operation, ask, more) = SharedLimiter::refund_of(&charge, past);
                        let more: Vec<&[u8]> = more.iter().map(AsRef::as_ref).collect();
                        _ = self.call(operation, ask, &more).await;
                    }
                }
                Step::Open { units, more, millis, is_anonymous } => {
                    let ask = match millis {
                        0 => Ask { call: CallAsk::Slot, refundable: true, ..Ask::new(units, is_anonymous) },
                        _ => Ask::hold(units, units + more, Duration::from_millis(millis.into()), is_anonymous),
                    };
                    let mut expected = self.memory.check_unreported(&self.tenant, ask);
                    let (decision, id) = self.open(ask).await;
                    assert_eq!(summarize_decision(&decision), summarize_decision(&expected), "{ask:?}");
                    if let Some(OpenCall::Memory(call)) = expected.call.take().map(|call| *call) {
                        calls.push((call, ask, id));
                    }
                    if ask.estimate() == 0 {
                        spends.push((expected.into_spend(), decision.into_spend()));
                    }
                }
                Step::End { which, used } if !calls.is_empty() => {
                    let (call, ask, id) = calls.swap_remove(which % calls.len());
                    self.memory.end_call(&call, used.map_or(CallEnd::Estimate, CallEnd::Commit));
                    let used = used.map_or_else(String::new, |units| units.to_string());
                    self.change_calls("commit", &[&id, used.as_bytes(), b"0"]).await;
                    ended.push((ask, id, used));
                }
                Step::EndAgain { which } if !ended.is_empty() => {
                    let (ask, id, used) = &ended[which % ended.len()];
                    let at_most = match ask.call {
                        CallAsk::Hold { at_most, .. } => at_most,
                        _ => 0,
                    };
                    let [estimate, at_most] = [ask.estimate(), at_most].map(|units| units.to_string());
                    let anonymous = u8::from(ask.is_anonymous).to_string();
                    let terms = [anonymous, estimate, at_most];
                    let [anonymous, estimate, at_most] = terms.each_ref().map(String::as_bytes);
                    self.change_calls("renew", &[b"1000000000", id, anonymous, estimate, at_most]).await;
                    self.change_calls("commit", &[id, used.as_bytes(), b"1"]).await;
                }
                Step::Refund { .. } | Step::End { .. } | Step::EndAgain { .. } => {}
                Step::Renew => {
                    let mut more = vec![&b"1000000000"[..]];
                    calls.iter().for_each(|(_, _, id)| more.extend([&id[..], b"0", b"0", b"0"]));
                    self.change_calls("renew", &more).await;
                }
                Step::Reset => {
                    self.memory.reset(&self.tenant);
                    self.change_calls("reset", &[]).await;
                    // no state begins in a microsecond in which another one began or changed its plan
                    self.clock.advance(Duration::from_micros(100));
                }
                Step::Advance { micros } => self.clock.advance(Duration::from_micros(micros)),
                Step::Plan { which } => {
                    (before, now) = (now, which % plans.len());
                    self.shared.plans().set(self.tenant.clone(), plans[now].clone());
                }
                Step::PlanBack => {
                    (before, now) = (now, before);
                    // an equal plan is the same plan
                    let equal = Plan::new(plans[now].quotas()).unwrap_or_else(|_| plans[now].clone());
                    self.shared.plans().set(self.tenant.clone(), equal);
                }
            }
            let peeked = self.spend(0, false).await;
            let peeked = peeked.standing().filter(|_| peeked.is_admitted()).map(standing_of);
            assert_eq!(peeked, self.memory.peek(&self.tenant).as_ref().map(standing_of));
        }
    }
}

#[test]
fn the_script_decides_like_the_limiter_in_memory() {
    // PROPTEST_CASES runs more
    let cases = Config::default().cases.max(400);
    for (server, cases) in redis_server::RedisServer::each(&[]).zip([cases, cases / 4]) {
        compare(&server, cases);
    }
}

fn compare(server: &redis_server::RedisServer, cases: u32) {
    let runtime = Runtime::new().unwrap();
    let plans = plans();
    let tenants = std::cell::Cell::new(0);
    let cases = Config { cases, failure_persistence: None, ..Config::default() };
    proptest!(cases, |(first in 0..plans.len(), steps in steps())| {
        let clock = ManualClock::new();
        clock.set_wall(UnixTime::from_secs(1_800_000_000));
        let quotas = Plans::new(plans[first].clone());
        tenants.set(tenants.get() + 1);
        let tenant = LimitKey::parse(format!("t{}", tenants.get())).unwrap();
        quotas.set(tenant.clone(), plans[first].clone());
        runtime.block_on(async {
            let config = RedisConfig::new(&server.url()).unwrap().deadline(Duration::from_secs(5)).unwrap();
            let builder = || Limiter::builder(quotas.clone()).clock(clock.clone());
            let shared = builder().redis(config).connect().await.unwrap();
            let memory = builder().build().unwrap();
            Both { memory, shared, clock: clock.clone(), tenant }.agree(first, steps.clone(), &plans).await;
        });
    });
}

#[cfg(feature = "smooth")]
#[test]
fn a_smooth_quota_gives_units_back_at_its_rate_and_never_earlier() {
    let Some(server) = redis_server::RedisServer::start(&[]) else { return };
    let runtime = Runtime::new().unwrap();
    let shared = runtime.block_on(async {
        let config = RedisConfig::new(&server.url()).unwrap().deadline(Duration::from_secs(5)).unwrap();
        Limiter::redis(config, Plans::new(Quota::per_minute(1).unwrap())).connect().await.unwrap()
    });
    let tenants = std::cell::Cell::new(0);
    let rates = [1_001, 1_500, 333_333, 666_667, 999_999, 1_000_000, 3_000_000, 10_000_000, 999_999_999];
    let steps = vec((select(vec![0_u64, 1, 2, 999, 10_000, 500_000]), 1..100_u32, any::<bool>()), 1..40);
    let cases = Config { failure_persistence: None, ..Config::default() };
    let bursts = [1_u32, 2, 100, 5_000, 300_000];
    proptest!(cases, |(rate in select(rates.to_vec()), burst in select(bursts.to_vec()), is_alone: bool, steps in steps)| {
        let quota = Quota::smooth(rate, Duration::from_secs(1), burst).unwrap();
        // the script has a shorter way for one quota
        let other = (!is_alone).then(|| Quota::per_second(u32::MAX).unwrap().with_name("other").unwrap());
        let plan = Plan::new([quota].into_iter().chain(other)).unwrap();
        let interval = 1_000_000_000_u64.div_ceil(rate.into());
        tenants.set(tenants.get() + 1);
        let tenant = LimitKey::parse(format!("s{}", tenants.get())).unwrap();
        let run = |micros: u64, operation, units, more: &[&[u8]]| {
            let (time, ask) = ((1_800_000_000_000_000 + micros).to_string(), Ask::new(units, false));
            runtime.block_on(shared.0.server.call_at(&time, operation, &tenant, &plan, ask, more)).unwrap().unwrap()
        };
        // when all units will be back, by the rate, in nanoseconds
        let (mut now, mut whole_at, mut calls) = (0, 0_u64, 0);
        for (wait, percent, is_refunded) in steps {
            now += wait;
            let units = (burst * percent / 100).max(1);
            let after = whole_at.max(now * 1_000) + u64::from(units) * interval;
            let latest = now * 1_000 + u64::from(burst) * interval;
            let answer = run(now, "spend", units, &[]);
            if answer.decision.is_admitted() {
                prop_assert!(after <= latest, "{units} units at {now}");
                if calls == 0 {
                    let left = answer.decision.standing().map(Standing::remaining);
                    let slack = if interval < 1_000 { 1_000 / interval as u32 + 1 } else { 0 };
                    prop_assert!(left.is_some_and(|left| (burst - units).saturating_sub(slack) <= left && left <= burst - units));
                }
                if is_refunded {
                    let more = identity(answer.generation, &script::packed(&plan), &answer.marks);
                    let more: Vec<&[u8]> = more.iter().map(AsRef::as_ref).collect();
                    run(now, "refund", units, &more);
                } else {
                    whole_at = after;
                }
                calls += 1;
            } else {
                // times are rounded to microseconds
                prop_assert!(after + calls * 2_000 + 1_000 > latest, "{units} units at {now}");
            }
        }
    });
}
