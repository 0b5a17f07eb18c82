//! Several nodes with faulty clocks and connections, and the real script at given times: the merged log of what they admit never
//! exceeds a quota.

use std::time::Duration;

use bytes::Bytes;
use proptest::{bool::weighted, collection::vec, prelude::*, sample::select, test_runner::Config};
use tokio::runtime::Runtime;

use super::{ClockReading, LeaseCall, LeaseReply, LeaseReturn, LeaseSlots, LeaseStep, LeaseWish};
use crate::{
    limit::{
        decision::Ask,
        limiter::Limiter,
        plan::Plan,
        plans::table::Plans,
        quota::{Quota, Rule},
        shared::{
            leasing::identity,
            model::redis_server::RedisServer,
            script::{self, Answer},
            server::Server,
        },
    },
    redis::RedisConfig,
    tenant::LimitKey,
    util::clock::{Moment, UnixTime},
};

const NODES: usize = 3;
const SECOND: u64 = 1_000_000;
/// The time of the server at the begin, in microseconds.
const BEGIN: u64 = 1_800_000_000 * SECOND;

#[derive(Clone, Debug)]
enum Step {
    /// Several requests. The calls of a quick one are run and answered at once.
    Request {
        node: usize,
        units: u32,
        times: u32,
        is_anonymous: bool,
        is_quick: bool,
    },
    /// The server runs a call.
    Run {
        which: usize,
    },
    /// The node gets the reply to one that was run.
    Reply {
        which: usize,
    },
    /// A call that was run has no reply, and one that was not run never arrives.
    LoseCall {
        which: usize,
    },
    Return {
        which: usize,
    },
    LoseReturn {
        which: usize,
    },
    Refund {
        which: usize,
    },
    Sweep {
        node: usize,
    },
    Close {
        node: usize,
    },
    Crash {
        node: usize,
    },
    Advance {
        micros: u64,
    },
    /// The machine is suspended: its steady clock stops, its wall clock does not.
    Suspend {
        node: usize,
        micros: u64,
    },
    /// The wall clock is set.
    SetWall {
        node: usize,
        millis: i64,
    },
    /// The node learns about the second plan.
    Plan {
        node: usize,
    },
}

impl Step {
    fn is_fault(&self) -> bool {
        // a node that is closed gets no more replies
        matches!(
            self,
            Self::LoseCall { .. }
                | Self::LoseReturn { .. }
                | Self::Close { .. }
                | Self::Crash { .. }
                | Self::Plan { .. }
        )
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let micros = [1, 999, 10_000, 20_000, 49_501, 50_000, 99_999, 125_000, 250_000, 297_001, 500_000, SECOND];
    let (node, which) = (0..NODES, 0..100_usize);
    let requests = (node.clone(), 1..4_u32, 1..12_u32, weighted(0.1), weighted(0.8));
    let step = prop_oneof![
        40 => requests.prop_map(|(node, units, times, is_anonymous, is_quick)| {
            Step::Request { node, units, times, is_anonymous, is_quick }
        }),
        6 => which.clone().prop_map(|which| Step::Run { which }),
        6 => which.clone().prop_map(|which| Step::Reply { which }),
        1 => which.clone().prop_map(|which| Step::LoseCall { which }),
        6 => which.clone().prop_map(|which| Step::Return { which }),
        1 => which.clone().prop_map(|which| Step::LoseReturn { which }),
        3 => which.prop_map(|which| Step::Refund { which }),
        4 => node.clone().prop_map(|node| Step::Sweep { node }),
        1 => node.clone().prop_map(|node| Step::Close { node }),
        1 => node.clone().prop_map(|node| Step::Crash { node }),
        16 => select(micros.to_vec()).prop_map(|micros| Step::Advance { micros }),
        3 => (node.clone(), select(micros.to_vec())).prop_map(|(node, micros)| Step::Suspend { node, micros }),
        1 => (node.clone(), -500..500_i64).prop_map(|(node, millis)| Step::SetWall { node, millis }),
        1 => node.prop_map(|node| Step::Plan { node }),
    ];
    vec(step, 1..200)
}

fn plans() -> Vec<Plan> {
    let second = Duration::from_secs(1);
    let named = |quota: Quota, name| quota.with_name(name).unwrap();
    let window = |limit, slices| Quota::new(limit, second).unwrap().slices(slices).unwrap();
    let fixed = |limit| Quota::fixed(limit, second).unwrap();
    let plans = [
        Plan::from(window(20, 4)),
        Plan::from(window(20, 240)),
        Plan::from(fixed(20)),
        Plan::from(window(20, 8).reserve(0.5).unwrap()),
        Plan::new([named(window(20, 5), "burst"), Quota::new(40, second * 3).unwrap()]).unwrap(),
        Plan::new([named(fixed(20), "calendar"), window(24, 3)]).unwrap(),
    ];
    #[cfg(feature = "smooth")]
    let plans = plans.into_iter().chain([
        Plan::from(Quota::smooth(20, second, 20).unwrap()),
        Plan::from(Quota::smooth(10, second, 20).unwrap()),
        Plan::from(Quota::smooth(3_001, second, 20).unwrap()),
        Plan::new([named(Quota::smooth(40, second, 20).unwrap(), "pace"), named(fixed(30), "calendar")]).unwrap(),
    ]);
    plans.into_iter().collect()
}

/// The terms of a lease, or of a request that was charged alone.
#[derive(Clone, Debug)]
struct Terms {
    plan: usize,
    generation: u64,
    marks: crate::limit::decision::Marks,
}

struct Node {
    slots: LeaseSlots<bool, Terms>,
    /// How many nanoseconds of this node a microsecond of the server takes.
    rate: f64,
    /// How far the steady clock is behind the wall clock.
    suspended: u64,
    set_by: i64,
    plan: usize,
}

struct Call {
    node: usize,
    /// Counts the crashes and closes of the node.
    life: usize,
    is_anonymous: bool,
    call: LeaseCall,
    plan: usize,
    /// The reply, and when the server has run the call.
    reply: Option<(LeaseReply<Terms>, u64)>,
}

/// An admitted request.
#[derive(Clone, Debug)]
struct Admission {
    at: u64,
    units: u32,
    is_anonymous: bool,
    node: usize,
    life: usize,
    lease: u64,
    terms: Terms,
    is_refunded: bool,
}

struct World {
    server: std::sync::Arc<Server>,
    tenant: LimitKey,
    plans: [Plan; 2],
    lifetime: Duration,
    nodes: Vec<Node>,
    lives: Vec<usize>,
    calls: Vec<Call>,
    returns: Vec<LeaseReturn<bool, Terms>>,
    log: Vec<Admission>,
    micros: u64,
    /// When the second plan has reached the server. It does not go back.
    switched_at: Option<u64>,
}

impl World {
    fn reading(&self, node: usize) -> ClockReading {
        let own = &self.nodes[node];
        let wall = (self.micros as f64 * own.rate) as u64 + 1_000 * SECOND;
        let steady = Moment::from_nanos(wall - own.suspended * 1_000);
        ClockReading { steady, wall: UnixTime::from_nanos((1 << 60) + wall).add_millis(own.set_by) }
    }

    fn collect(&mut self, node: usize) {
        self.returns.append(&mut self.nodes[node].slots.take_returns());
    }

    fn admit(&mut self, node: usize, is_anonymous: bool, units: u32, at: u64, admission: super::Admission<Terms>) {
        let super::Admission { lease, terms, .. } = admission;
        let life = self.lives[node];
        self.log.push(Admission { at, units, is_anonymous, node, life, lease, terms, is_refunded: false });
    }

    async fn call_lease_server(
        &self,
        operation: &str,
        plan: usize,
        units: u32,
        is_anonymous: bool,
        more: &[Bytes],
    ) -> Option<Answer> {
        let ask = Ask::new(units, is_anonymous);
        let more: Vec<&[u8]> = more.iter().map(AsRef::as_ref).collect();
        let time = (BEGIN + self.micros).to_string();
        self.server.call_at(&time, operation, &self.tenant, &self.plans[plan], ask, &more).await.unwrap()
    }

    async fn send_back(&self, operation: &str, plan: usize, is_anonymous: bool, units: u32, terms: &Terms) {
        let quotas = script::packed(&self.plans[terms.plan]);
        let more = identity(terms.generation, &quotas, &terms.marks);
        _ = self.call_lease_server(operation, plan, units, is_anonymous, &more).await;
    }

    /// Returns whether a call was made.
    fn request(&mut self, node: usize, units: u32, is_anonymous: bool) -> bool {
        let plan = self.nodes[node].plan;
        let wish = LeaseWish { units, plan: self.plans[plan].id(), lifetime: self.lifetime };
        let now = self.reading(node);
        let decided = self.nodes[node].slots.request(&is_anonymous, wish, now);
        self.collect(node);
        match decided {
            LeaseStep::Admitted(admission) => self.admit(node, is_anonymous, units, self.micros, admission),
            LeaseStep::Call(call) => {
                self.calls.push(Call { node, life: self.lives[node], is_anonymous, call, plan, reply: None });
                return true;
            }
            LeaseStep::Refused(_) | LeaseStep::Wait(_) | LeaseStep::Plain => {}
        }
        false
    }

    async fn step(&mut self, step: &Step) {
        match *step {
            Step::Request { node, units, times, is_anonymous, is_quick } => {
                for _ in 0..times {
                    if self.request(node, units, is_anonymous) && is_quick {
                        let which = self.calls.len() - 1;
                        Box::pin(self.step(&Step::Run { which })).await;
                        Box::pin(self.step(&Step::Reply { which })).await;
                    }
                }
            }
            Step::Run { which } if !self.calls.is_empty() => {
                let which = which % self.calls.len();
                let Call { plan, is_anonymous, ref call, ref reply, .. } = self.calls[which];
                if reply.is_some() || (plan == 0 && self.switched_at.is_some()) {
                    return;
                }
                if plan == 1 {
                    self.switched_at.get_or_insert(self.micros);
                }
                let more = [call.most.to_string(), call.lifetime.as_micros().to_string()].map(Bytes::from);
                let answer = self.call_lease_server("lease", plan, call.needed, is_anonymous, &more).await.unwrap();
                let terms = Terms { plan, generation: answer.generation, marks: answer.marks };
                let reply = if answer.decision.is_admitted() {
                    LeaseReply::Granted { granted: answer.granted, lifetime: answer.lifetime, terms }
                } else {
                    let wait = answer.decision.standing.map(|standing| standing.time_until_reset()).unwrap_or_default();
                    LeaseReply::Refused { wait, terms }
                };
                self.calls[which].reply = Some((reply, self.micros));
            }
            Step::Reply { which } if !self.calls.is_empty() => {
                let which = which % self.calls.len();
                let Some((reply, at)) = self.calls[which].reply.take() else { return };
                self.replied(which, reply, at);
            }
            Step::LoseCall { which } if !self.calls.is_empty() => {
                let which = which % self.calls.len();
                self.replied(which, LeaseReply::Failed, 0);
            }
            Step::Return { which } if !self.returns.is_empty() => {
                let LeaseReturn { key, units, terms } = self.returns.swap_remove(which % self.returns.len());
                self.send_back("return", terms.plan, key, units, &terms).await;
            }
            Step::LoseReturn { which } if !self.returns.is_empty() => {
                self.returns.swap_remove(which % self.returns.len());
            }
            Step::Refund { which } if !self.log.is_empty() => {
                let which = which % self.log.len();
                if std::mem::replace(&mut self.log[which].is_refunded, true) {
                    return;
                }
                let Admission { units, is_anonymous, node, life, lease, terms, .. } = self.log[which].clone();
                let is_alive = self.lives[node] == life;
                if is_alive && self.nodes[node].slots.refund(&is_anonymous, lease, units).is_some() {
                    return;
                }
                // a refund comes with the plan that the node has now
                let plan = self.nodes[node].plan;
                if plan == 0 && self.switched_at.is_some() {
                    return;
                }
                if plan == 1 {
                    self.switched_at.get_or_insert(self.micros);
                }
                let operation = if lease == 0 { "refund" } else { "return" };
                self.send_back(operation, plan, is_anonymous, units, &terms).await;
            }
            Step::Sweep { node } => {
                let now = self.reading(node);
                self.nodes[node].slots.sweep(now);
                self.collect(node);
            }
            Step::Close { node } => {
                self.nodes[node].slots.close();
                self.collect(node);
                self.restart(node);
            }
            Step::Crash { node } => self.restart(node),
            Step::Advance { micros } => self.micros += micros,
            Step::Suspend { node, micros } => {
                self.micros += micros;
                self.nodes[node].suspended += micros;
            }
            // it is set while the machine runs
            Step::SetWall { node, millis } if self.nodes[node].suspended == 0 => self.nodes[node].set_by += millis,
            Step::Plan { node } => self.nodes[node].plan = 1,
            _ => {}
        }
    }

    fn replied(&mut self, which: usize, reply: LeaseReply<Terms>, at: u64) {
        let Call { node, life, is_anonymous, call, .. } = self.calls.swap_remove(which);
        // a process that has ended gets no reply
        if self.lives[node] != life {
            return;
        }
        let step = self.nodes[node].slots.replied(&is_anonymous, &call, reply);
        self.collect(node);
        if let Some(LeaseStep::Admitted(admission)) = step {
            // the server has decided
            self.admit(node, is_anonymous, call.needed, at, admission);
        }
    }

    fn restart(&mut self, node: usize) {
        self.lives[node] += 1;
        self.nodes[node].slots = slots(self.lifetime);
    }

    /// Checks the whole log against each quota.
    fn check(&self) {
        for (number, plan) in self.plans.iter().enumerate() {
            for limited in plan.limits() {
                // units that were spent before the change may have been forgotten by the first plan
                let is_known = |own: &Admission| {
                    number == 0 || own.terms.plan == 1 || self.switched_at.is_some_and(|at| own.at >= at)
                };
                let counts = |own: &&Admission| {
                    !own.is_refunded && is_known(own) && (own.is_anonymous || !limited.is_for_anonymous)
                };
                let mut log: Vec<&Admission> = self.log.iter().filter(counts).collect();
                log.sort_by_key(|own| own.at);
                let window = u64::try_from(limited.quota.window().as_micros()).unwrap();
                for (index, first) in log.iter().enumerate() {
                    let (mut sum, mut is_checked) = (0_u64, false);
                    for own in &log[index..] {
                        let most = match limited.quota.rule() {
                            Rule::Window { .. } if own.at - first.at < window => u64::from(limited.most),
                            Rule::Fixed if (BEGIN + own.at) / window == (BEGIN + first.at) / window => {
                                u64::from(limited.most)
                            }
                            #[cfg(feature = "smooth")]
                            Rule::Smooth { interval } => {
                                u64::from(limited.most) + (own.at - first.at) * 1_000 / interval
                            }
                            _ => break,
                        };
                        sum += u64::from(own.units);
                        // the second plan decides from its first call on
                        is_checked |= own.terms.plan == 1;
                        assert!(
                            sum <= most || usize::from(is_checked) != number,
                            "{sum} units of at most {most} from {} to {} by {:?}",
                            first.at,
                            own.at,
                            limited.quota
                        );
                    }
                }
            }
        }
    }
}

trait AddMillis {
    fn add_millis(self, millis: i64) -> Self;
}

impl AddMillis for UnixTime {
    fn add_millis(self, millis: i64) -> Self {
        Self::from_nanos(self.as_nanos().saturating_add_signed(millis * 1_000_000))
    }
}

fn slots(lifetime: Duration) -> LeaseSlots<bool, Terms> {
    LeaseSlots::new(12, lifetime, 10)
}

/// Runs worlds with these steps.
fn run(cases: u32, plans: Vec<Plan>, has_faults: bool, finish: &impl AsyncFn(&mut World)) {
    let Some(server) = RedisServer::start(&[]) else { return };
    let runtime = Runtime::new().unwrap();
    let numbers = std::cell::Cell::new(0);
    let server = runtime.block_on(async {
        let config = RedisConfig::new(&server.url()).unwrap().deadline(Duration::from_secs(5)).unwrap();
        let quotas = Plans::new(Quota::per_minute(1).unwrap());
        let shared = Limiter::redis(config, quotas).connect().await.unwrap();
        (std::sync::Arc::clone(&shared.0.server), server)
    });
    let cases = Config { cases, failure_persistence: None, ..Config::default() };
    let lifetimes = [10_000, 50_000, 125_000, 300_000, 2_000_000];
    let rates = vec(991.0..1009.0, NODES);
    proptest!(cases, |(
        first in select(plans.clone()), second in select(plans), lifetime in select(lifetimes.to_vec()), rates in rates,
        steps in steps()
    )| {
        numbers.set(numbers.get() + 1);
        let lifetime = Duration::from_micros(lifetime);
        let node = |rate| Node { slots: slots(lifetime), rate, suspended: 0, set_by: 0, plan: 0 };
        let mut world = World {
            server: std::sync::Arc::clone(&server.0),
            tenant: LimitKey::parse(format!("t{}", numbers.get())).unwrap(),
            plans: [first, second],
            lifetime,
            nodes: rates.into_iter().map(node).collect(),
            lives: vec![0; NODES],
            calls: Vec::new(),
            returns: Vec::new(),
            log: Vec::new(),
            micros: 0,
            switched_at: None,
        };
        runtime.block_on(async {
            for step in steps.iter().filter(|step| has_faults || !step.is_fault()) {
                world.step(step).await;
            }
            finish(&mut world).await;
        });
        world.check();
    });
}

#[test]
fn nodes_with_leases_never_exceed_a_quota_whatever_fails() {
    // PROPTEST_CASES runs more
    run(Config::default().cases.max(600), plans(), true, &async |_| {});
}

#[test]
fn without_faults_all_units_that_were_not_used_come_back() {
    let hour = Quota::new(200, Duration::from_secs(3_600)).unwrap();
    run(200, vec![Plan::from(hour)], false, &async |world| {
        while !world.calls.is_empty() {
            world.step(&Step::Run { which: 0 }).await;
            world.step(&Step::Reply { which: 0 }).await;
        }
        for node in 0..NODES {
            world.step(&Step::Close { node }).await;
        }
        while !world.returns.is_empty() {
            world.step(&Step::Return { which: 0 }).await;
        }
        let used: u32 = world.log.iter().filter(|own| !own.is_refunded).map(|own| own.units).sum();
        let standing = world.call_lease_server("spend", 0, 0, false, &[]).await.unwrap().decision.standing.unwrap();
        assert_eq!(standing.remaining(), 200 - used);
    });
}
