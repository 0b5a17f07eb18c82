//! Several nodes with calls that are open on the real script, at given times, while replies and messages are lost or late and nodes
//! crash. The merged log of the calls never exceeds a quota, and each call is charged once.

use std::time::Duration;

use proptest::{bool::weighted, collection::vec, option, prelude::*, sample::select, test_runner::Config};
use tokio::runtime::Runtime;

use super::{
    lease::ClockReading,
    model::redis_server::RedisServer,
    open_calls::{CallId, CallTerms, OpenCalls, SLOT},
    script::Answer,
    server::Server,
};
use crate::{
    limit::{
        decision::{Ask, CallAsk},
        limiter::Limiter,
        plan::Plan,
        plans::table::Plans,
        quota::Quota,
    },
    redis::RedisConfig,
    tenant::LimitKey,
    testing::ManualClock,
};

const NODES: usize = 3;
const SLOTS: usize = 3;
const UNITS: u32 = 20;
const WINDOW: u64 = 4_000;
/// The time of the server at the begin, in milliseconds.
const BEGIN: u64 = 1_800_000_000_000;

#[derive(Clone, Debug)]
enum Step {
    /// Without a reply, the node ends the call.
    Open {
        node: usize,
        estimate: u32,
        more: u32,
        millis: u32,
        has_reply: bool,
    },
    Spend {
        units: u32,
    },
    /// An end that does not arrive, or has no reply, is sent again.
    End {
        which: usize,
        used: Option<u32>,
        arrives: bool,
        has_reply: bool,
    },
    EndAgain {
        which: usize,
        has_reply: bool,
    },
    /// A node renews its slots. The message can arrive late.
    Renew {
        node: usize,
        is_late: bool,
    },
    RunRenewal {
        which: usize,
    },
    Crash {
        node: usize,
    },
    Advance {
        millis: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (node, which, mostly) = (0..NODES, 0..100_usize, weighted(0.7));
    let lifetimes = select(vec![20_u32, 500, 3_000, 15_000, 60_000]);
    let step = prop_oneof![
        8 => (node.clone(), 1..7_u32, 0..5_u32, lifetimes, mostly).prop_map(|(node, estimate, more, millis, has_reply)| {
            Step::Open { node, estimate, more, millis, has_reply }
        }),
        2 => (1..5_u32).prop_map(|units| Step::Spend { units }),
        5 => (which.clone(), option::of(0..12_u32), mostly, mostly)
            .prop_map(|(which, used, arrives, has_reply)| Step::End { which, used, arrives, has_reply }),
        4 => (which.clone(), mostly).prop_map(|(which, has_reply)| Step::EndAgain { which, has_reply }),
        4 => (node.clone(), any::<bool>()).prop_map(|(node, is_late)| Step::Renew { node, is_late }),
        3 => which.prop_map(|which| Step::RunRenewal { which }),
        1 => node.prop_map(|node| Step::Crash { node }),
        8 => select(vec![1_u64, 19, 400, 1_000, 3_000, 8_001, 11_000]).prop_map(|millis| Step::Advance { millis }),
    ];
    vec(step, 1..60)
}

/// A call that the server has opened. Times are in milliseconds.
#[derive(Debug)]
struct Call {
    id: CallId,
    node: usize,
    estimate: u32,
    at_most: u32,
    opened: u64,
    expires: u64,
    /// Whether its node has it open.
    is_open: bool,
    /// Whether its slot has ended while its node had it open.
    has_lapsed: bool,
    /// Until when the server counts its slot.
    slot: u64,
    is_held: bool,
    /// Whether the server has forgotten it, and whether a renewal has added it since.
    is_forgotten: bool,
    is_added: bool,
    /// When its estimate was charged, or its end instead.
    charged_at: u64,
    charged: u32,
}

struct World<'a> {
    server: &'a Server,
    tenant: LimitKey,
    plan: &'a Plan,
    clock: ManualClock,
    now: u64,
    nodes: Vec<OpenCalls>,
    calls: Vec<Call>,
    /// The calls whose end must be sent again, and what they have used.
    ends: Vec<(usize, String)>,
    /// Renewals that arrive late.
    renewals: Vec<Vec<(CallId, CallTerms)>>,
    spends: Vec<(u64, u32)>,
}

impl World<'_> {
    async fn run(&self, operation: &str, ask: Ask, more: &[&[u8]]) -> Answer {
        let micros = ((BEGIN + self.now) * 1_000).to_string();
        self.server.call_at(&micros, operation, &self.tenant, self.plan, ask, more).await.unwrap().unwrap()
    }

    async fn change(&self, operation: &str, more: &[&[u8]]) {
        let micros = ((BEGIN + self.now) * 1_000).to_string();
        _ = self.server.change_calls(&micros, operation, &self.tenant, more).await.unwrap();
    }

    /// Charges expired estimates and ends old slots, as the server does at the start of each call.
    fn settle(&mut self) {
        let now = self.now;
        for call in &mut self.calls {
            if call.is_held && call.expires <= now {
                (call.is_held, call.charged_at, call.charged) = (false, call.expires, call.estimate);
            }
            call.has_lapsed |= call.is_open && call.slot <= now;
            call.is_forgotten |= !call.is_held && call.slot <= now;
        }
    }

    async fn run_renewal(&mut self, renewal: &[(CallId, CallTerms)]) {
        if renewal.is_empty() {
            return;
        }
        self.settle();
        let mut more = vec![SLOT.as_micros().to_string().into_bytes()];
        more.extend(renewal.iter().flat_map(|(id, terms)| super::call::renewal_of(*id, *terms)));
        let more: Vec<&[u8]> = more.iter().map(Vec::as_slice).collect();
        self.change("renew", &more).await;
        for (id, _) in renewal {
            let call = self.calls.iter_mut().find(|call| call.id == *id).unwrap();
            call.slot = self.now + SLOT.as_millis() as u64;
            call.is_added |= std::mem::take(&mut call.is_forgotten);
        }
    }

    async fn renew(&mut self, node: usize) {
        let (sent_at, renewal) = (ClockReading::now(&self.clock), self.nodes[node].calls_of_key(&self.tenant));
        self.run_renewal(&renewal).await;
        self.nodes[node].note_renewal(&self.tenant, renewal.iter().map(|(id, _)| *id), sent_at);
    }

    async fn end(&mut self, which: usize, used: &str, is_sent_before: bool) {
        self.settle();
        let again: &[u8] = if is_sent_before { b"1" } else { b"0" };
        self.change("commit", &[&self.calls[which].id, used.as_bytes(), again]).await;
        let call = &mut self.calls[which];
        if std::mem::replace(&mut call.is_forgotten, true) {
            return;
        }
        let used = match used {
            "undo" => 0,
            "" => call.estimate,
            used => used.parse::<u32>().unwrap().min(call.at_most),
        };
        let spent = if call.is_added && is_sent_before { 0 } else { used };
        if std::mem::take(&mut call.is_held) {
            (call.charged_at, call.charged) = (self.now, spent.min(call.estimate));
        }
        call.charged += spent.saturating_sub(call.estimate);
        let most = call.estimate.max(used);
        assert!(call.charged <= most, "{} of {most} units are charged", call.charged);
    }

    async fn step(&mut self, step: &Step) {
        match *step {
            Step::Open { node, estimate, more, millis, has_reply } => {
                if self.nodes[node].may_be_uncounted(&self.tenant, &self.clock) {
                    self.renew(node).await;
                }
                self.settle();
                let (sent_at, id) = (ClockReading::now(&self.clock), OpenCalls::random_id().unwrap());
                let at_most = estimate + more;
                let ask = Ask { call: CallAsk::Hold { at_most, millis }, ..Ask::new(estimate, false) };
                let times = [SLOT.as_micros().to_string(), at_most.to_string(), (millis * 1_000).to_string()];
                let [slot, most, lifetime] = times.each_ref().map(String::as_bytes);
                if !self.run("hold", ask, &[&id, slot, most, lifetime]).await.decision.is_admitted() {
                    return;
                }
                let terms = CallTerms { is_anonymous: false, estimate, at_most };
                let (opened, expires) = (self.now, self.now + u64::from(millis));
                let slot = self.now + SLOT.as_millis() as u64;
                let call = Call {
                    id,
                    node,
                    estimate,
                    at_most,
                    opened,
                    expires,
                    slot,
                    is_open: has_reply,
                    has_lapsed: false,
                    is_held: true,
                    is_forgotten: false,
                    is_added: false,
                    charged_at: u64::MAX,
                    charged: 0,
                };
                self.calls.push(call);
                if has_reply {
                    self.nodes[node].insert(&self.tenant, id, terms, sent_at);
                } else {
                    self.ends.push((self.calls.len() - 1, "undo".to_owned()));
                }
                let counts = |call: &&Call| call.is_open && (call.node == node || !call.has_lapsed);
                let open = self.calls.iter().filter(counts).count();
                assert!(open <= SLOTS, "{open} calls are open");
            }
            Step::Spend { units } => {
                self.settle();
                if self.run("spend", Ask::new(units, false), &[]).await.decision.is_admitted() {
                    self.spends.push((self.now, units));
                }
            }
            Step::End { which, used, arrives, has_reply } => {
                let open: Vec<usize> = (0..self.calls.len()).filter(|call| self.calls[*call].is_open).collect();
                let Some(which) = open.get(which % open.len().max(1)).copied() else { return };
                let used = used.map_or_else(String::new, |used| used.to_string());
                let call = &mut self.calls[which];
                call.is_open = false;
                self.nodes[call.node].remove(&self.tenant, call.id);
                if arrives {
                    self.end(which, &used, false).await;
                }
                if !arrives || !has_reply {
                    self.ends.push((which, used));
                }
            }
            Step::EndAgain { which, has_reply } if !self.ends.is_empty() => {
                let place = which % self.ends.len();
                let (which, used) = self.ends[place].clone();
                self.end(which, &used, true).await;
                if has_reply {
                    self.ends.swap_remove(place);
                }
            }
            Step::Renew { node, is_late: true } => self.renewals.push(self.nodes[node].calls_of_key(&self.tenant)),
            Step::Renew { node, is_late: false } => self.renew(node).await,
            Step::RunRenewal { which } if !self.renewals.is_empty() => {
                let renewal = self.renewals.swap_remove(which % self.renewals.len());
                self.run_renewal(&renewal).await;
            }
            Step::Crash { node } => {
                self.nodes[node] = OpenCalls::default();
                self.calls.iter_mut().filter(|call| call.node == node).for_each(|call| call.is_open = false);
                let calls = &self.calls;
                self.ends.retain(|(which, _)| calls[*which].node != node);
            }
            Step::Advance { millis } => {
                self.now += millis;
                self.clock.advance(Duration::from_millis(millis));
                self.settle();
            }
            _ => {}
        }
    }

    /// Returns what the quotas of the server count.
    async fn check(&mut self) {
        self.settle();
        let counts = self.run("spend", Ask::new(0, false), &[]).await.counts;
        let spent: u32 = self.spends.iter().map(|(_, units)| units).sum();
        let charged: u32 = self.calls.iter().map(|call| call.charged).sum();
        assert_eq!(counts.used[2], charged + spent, "{:?}", self.calls);
        // each estimate while it counted, and what was charged of it for a window
        let of_calls = self.calls.iter().flat_map(|call| {
            let (until, charged) = (call.charged_at.min(self.now), call.charged.min(call.estimate));
            [(call.opened, until, call.estimate), (call.charged_at, call.charged_at.saturating_add(WINDOW), charged)]
        });
        let spans: Vec<_> = of_calls.chain(self.spends.iter().map(|(at, units)| (*at, at + WINDOW, *units))).collect();
        for (at, ..) in &spans {
            let counted = |(from, until, _): &&(u64, u64, u32)| from <= at && at < until;
            let units: u32 = spans.iter().filter(counted).map(|(_, _, units)| units).sum();
            assert!(units <= UNITS || *at == u64::MAX, "{units} units count at {at}");
        }
    }
}

#[test]
fn calls_never_exceed_a_quota_and_are_charged_once_whatever_fails() {
    // PROPTEST_CASES runs more
    let cases = Config::default().cases.max(500);
    RedisServer::each(&[]).for_each(|server| try_histories(&server, cases));
}

fn try_histories(redis: &RedisServer, cases: u32) {
    let runtime = Runtime::new().unwrap();
    let window = Quota::new(UNITS, Duration::from_millis(WINDOW)).unwrap();
    let total = Quota::per_day(1_000_000).unwrap().with_name("total").unwrap();
    let plan = Plan::new([Quota::concurrent(SLOTS as u32).unwrap(), window, total]).unwrap();
    let shared = runtime.block_on(async {
        let config = RedisConfig::new(&redis.url()).unwrap().deadline(Duration::from_secs(5)).unwrap();
        Limiter::redis(config, Plans::new(plan.clone())).connect().await.unwrap()
    });
    let numbers = std::cell::Cell::new(0);
    let cases = Config { cases, failure_persistence: None, ..Config::default() };
    proptest!(cases, |(steps in steps())| {
        numbers.set(numbers.get() + 1);
        let mut world = World {
            server: &shared.0.server,
            tenant: LimitKey::parse(format!("t{}", numbers.get())).unwrap(),
            plan: &plan,
            clock: ManualClock::new(),
            now: 0,
            nodes: (0..NODES).map(|_| OpenCalls::default()).collect(),
            calls: Vec::new(),
            ends: Vec::new(),
            renewals: Vec::new(),
            spends: Vec::new(),
        };
        runtime.block_on(async {
            for step in &steps {
                world.step(step).await;
            }
            world.check().await;
        });
    });
}
