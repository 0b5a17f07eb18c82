//! [`Mirror`]: what this node has admitted, in memory. It decides while the server does not answer.
//!
//! Each unit that this node admits is charged here, no matter who has decided, and so is what the server reports beyond that. A
//! unit that the fallback admits is a debt until the server knows it.
//!
//! So a node never admits more than a quota in any window, as long as the server keeps what it acknowledged. The fallback admits
//! what fits here. The server admits what fits there, which is all of this node's units if it owes none. If the fallback has
//! admitted something since a call was sent, or the server did not know all units then, what the server admits must fit here as
//! well.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use foldhash::fast::RandomState;

use crate::{
    limit::{
        decision::{Ask, CallEnd, Charge, Decision, OpenCall, Payer, SharedPast, Spend},
        limiter::Limiter,
        plan::Plan,
    },
    tenant::LimitKey,
    util::{
        clock::{Moment, UnixTime},
        lock::lock,
    },
};

/// The accounts are spread over this many locks.
const SHARDS: usize = 64;
/// The most tenants whose debts are remembered.
const MOST_DEBTORS: usize = 1 << 18;

pub(super) struct Mirror {
    pub(super) local: Limiter,
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    /// How often the fallback has decided.
    fallbacks: AtomicU64,
    debtors: AtomicUsize,
    /// Until when debts may count that were too many to remember, in nanoseconds. Zero if there were none.
    lost_until: AtomicU64,
}

#[derive(Default)]
struct Shard {
    accounts: HashMap<LimitKey, Account, RandomState>,
    /// How often debts were read or forgotten. A unit that was owed before may be known to the server by now.
    turns: u64,
}

/// Only tenants with calls under way or debts have one.
#[derive(Debug, Default)]
struct Account {
    /// Units that the server is being asked for.
    in_flight: u32,
    /// Units that the server does not know yet: of requests that have proved their tenant, and of others.
    owed: [u32; 2],
}

/// What the server knew when a call was sent: how often the fallback had decided, if the server knew all units of the tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Knowledge(Option<u64>);

/// The call and the charge in the memory of a node that stand for an admission by the server.
pub(super) type Mirrored = (Option<Box<OpenCall>>, Spend);

/// A call under way. Its units are in flight until it is dropped.
pub(super) struct CallUnderWay<'a> {
    mirror: &'a Mirror,
    tenant: &'a LimitKey,
    units: u32,
    pub(super) knowledge: Knowledge,
}

/// The units that the quotas of a plan count at the server, without those of the call that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerCounts {
    pub(super) used: [u32; Plan::MAX_QUOTAS],
    /// The time of the server.
    pub(super) at: UnixTime,
}

/// Units that the server does not know.
#[derive(Debug)]
pub(super) struct Debt {
    pub(super) tenant: LimitKey,
    pub(super) is_anonymous: bool,
    pub(super) units: u32,
}

impl Mirror {
    pub(super) fn new(local: Limiter) -> Self {
        Self {
            local,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            fallbacks: AtomicU64::new(0),
            debtors: AtomicUsize::new(0),
            lost_until: AtomicU64::new(0),
        }
    }

    /// Notes that the server is being asked for units.
    pub(super) fn start_server_call<'a>(&'a self, tenant: &'a LimitKey, units: u32) -> CallUnderWay<'a> {
        // read first: see `decide`
        let fallbacks = self.fallbacks.load(SeqCst);
        let owes = self.update(tenant, |account, _| {
            account.in_flight = account.in_flight.saturating_add(units);
            account.owes()
        });
        let is_complete = !owes && !self.may_have_lost_debts();
        CallUnderWay { mirror: self, tenant, units, knowledge: Knowledge(is_complete.then_some(fallbacks)) }
    }

    /// Charges units that the server has admitted, with what it knew, and opens the same call here. Returns the refusal if they
    /// must fit here and don't.
    pub(super) fn admit(&self, tenant: &LimitKey, ask: Ask, knowledge: Knowledge) -> Result<Mirrored, Decision> {
        let mirrored = |mut decision: Decision| (decision.call.take(), decision.into_spend());
        if self.is_current(knowledge) {
            let admitted = Ask { is_admitted: true, refundable: true, ..ask };
            let (call, charged) = mirrored(self.local.check_unreported(tenant, admitted));
            if self.is_current(knowledge) {
                return Ok((call, charged));
            }
            // the fallback has decided meanwhile, perhaps before the charge
            self.local.refund(charged);
            self.forget_call(call);
        }
        let decision = self.local.check_unreported(tenant, Ask { refundable: true, ..ask });
        if decision.is_admitted() { Ok(mirrored(decision)) } else { Err(decision) }
    }

    /// Ends a call that the server has not opened, without a charge.
    pub(super) fn forget_call(&self, call: Option<Box<OpenCall>>) {
        if let Some(OpenCall::Memory(call)) = call.map(|call| *call) {
            self.local.end_call(&call, CallEnd::Commit(0));
        }
    }

    /// Decides without the server.
    pub(super) fn decide(&self, tenant: &LimitKey, ask: Ask) -> Decision {
        if ask.units == 0 {
            return self.local.check_unreported(tenant, ask);
        }
        // before the decision, so that no call whose units are missing in it is trusted
        let turn = self.owe(tenant, ask);
        self.fallbacks.fetch_add(1, SeqCst);
        let mut decision = self.local.check_unreported(tenant, ask);
        if !decision.is_admitted() {
            self.paid(tenant, ask.is_anonymous, ask.units);
        }
        if let Some(charge) = decision.spend.0.take() {
            let Charge { limiter, past, units, is_anonymous, marks, .. } = *charge;
            let (tenant, mirrored) = (tenant.clone(), Spend(Some(charge)));
            let payer =
                Payer::Shared(SharedPast { tenant, quotas: Bytes::new(), generation: turn, lease: 0, mirrored });
            decision.spend.0 = Some(Box::new(Charge { limiter, payer, past, units, is_anonymous, marks }));
        }
        decision
    }

    /// Returns whether the server does not know all units.
    pub(super) fn has_debts(&self) -> bool {
        self.debtors.load(SeqCst) > 0
    }

    /// Returns what the server does not know. Each shard is read when its first debt is needed.
    pub(super) fn debts(&self) -> impl Iterator<Item = Debt> + '_ {
        self.shards.iter().flat_map(|shard| {
            let Shard { accounts, turns } = &mut *lock(shard);
            *turns += 1;
            let owed = |(tenant, account): (&LimitKey, &Account)| {
                [false, true].into_iter().zip(account.owed).filter(|(_, units)| *units > 0).map({
                    let tenant = tenant.clone();
                    move |(is_anonymous, units)| Debt { tenant: tenant.clone(), is_anonymous, units }
                })
            };
            accounts.iter().filter(|(_, account)| account.owes()).flat_map(owed).collect::<Vec<_>>()
        })
    }

    /// Returns the units of a debt that still count, for each quota of the plan.
    pub(super) fn counting(&self, debt: &Debt, plan: &Plan) -> Vec<u32> {
        let most = || plan.limits().iter().map(|limited| limited.most).collect();
        let counts = self.local.counts(&debt.tenant, plan).unwrap_or_else(most);
        counts.into_iter().map(|count| count.min(debt.units)).collect()
    }

    /// Notes that the server knows these units, or that they don't count.
    pub(super) fn paid(&self, tenant: &LimitKey, is_anonymous: bool, units: u32) {
        self.reduce(tenant, is_anonymous, units, |_| true);
    }

    /// Forgets units that the fallback had admitted in this turn, because they were refunded. Units of earlier turns may be known
    /// to the server.
    pub(super) fn forgive(&self, tenant: &LimitKey, is_anonymous: bool, units: u32, turn: u64) {
        self.reduce(tenant, is_anonymous, units, |turns| *turns == turn);
    }

    fn reduce(&self, tenant: &LimitKey, is_anonymous: bool, units: u32, applies: impl FnOnce(&mut u64) -> bool) {
        let was_paid = self.update(tenant, |account, turns| {
            let owed = account.owes();
            if applies(turns) {
                let own = account.owed_by(is_anonymous);
                *own = own.saturating_sub(units);
            }
            owed && !account.owes()
        });
        if was_paid {
            self.debtors.fetch_sub(1, SeqCst);
        }
    }

    /// Forgets the tenant.
    pub(super) fn reset(&self, tenant: &LimitKey) {
        for is_anonymous in [false, true] {
            self.reduce(tenant, is_anonymous, u32::MAX, |turns| {
                *turns += 1;
                true
            });
        }
        self.local.reset(tenant);
    }

    /// Returns the turn in which the units are owed.
    fn owe(&self, tenant: &LimitKey, ask: Ask) -> u64 {
        let has_room = self.debtors.load(SeqCst) < MOST_DEBTORS;
        let (is_new, turn) = self.update(tenant, |account, turns| {
            let is_new = !account.owes();
            if is_new && !has_room {
                return (None, *turns);
            }
            let own = account.owed_by(ask.is_anonymous);
            *own = own.saturating_add(ask.units);
            (Some(is_new), *turns)
        });
        match is_new {
            Some(true) => _ = self.debtors.fetch_add(1, SeqCst),
            Some(false) => {}
            None => {
                let plan = self.local.plans().plan(tenant);
                let longest = plan.limits().iter().map(|limited| limited.quota.window()).max().unwrap_or_default();
                // the units are charged a moment later
                let until = self.local.reports().clock.now() + longest + Duration::from_secs(1);
                self.lost_until.fetch_max(until.as_nanos(), SeqCst);
            }
        }
        turn
    }

    fn may_have_lost_debts(&self) -> bool {
        let until = self.lost_until.load(SeqCst);
        until != 0 && self.local.reports().clock.now() < Moment::from_nanos(until)
    }

    fn is_current(&self, knowledge: Knowledge) -> bool {
        knowledge.0.is_some_and(|fallbacks| fallbacks == self.fallbacks.load(SeqCst))
    }

    /// Changes an account, which is created before if it is missing, and removed afterwards if it is empty.
    fn update<T>(&self, tenant: &LimitKey, change: impl FnOnce(&mut Account, &mut u64) -> T) -> T {
        #[expect(clippy::indexing_slicing, reason = "there are as many shards")]
        let mut shard = lock(&self.shards[self.hasher.hash_one(tenant) as usize % SHARDS]);
        let Shard { accounts, turns } = &mut *shard;
        if let Some(account) = accounts.get_mut(tenant) {
            let changed = change(account, turns);
            if account.in_flight == 0 && !account.owes() {
                accounts.remove(tenant);
            }
            return changed;
        }
        let mut account = Account::default();
        let changed = change(&mut account, turns);
        if account.in_flight > 0 || account.owes() {
            accounts.insert(tenant.clone(), account);
        }
        changed
    }
}

impl CallUnderWay<'_> {
    /// Takes over what the server counts without this call. It may count other calls under way, or not yet.
    pub(super) fn learn(&self, plan: &Plan, counts: ServerCounts) {
        let Self { mirror, tenant, units, .. } = *self;
        let others = mirror.update(tenant, |account, _| account.in_flight).saturating_sub(units);
        let used = counts.used.map(|used| used.saturating_sub(others));
        if used.iter().any(|used| *used > 0) {
            mirror.local.raise(tenant, plan, &used, counts.at);
        }
    }
}

impl Drop for CallUnderWay<'_> {
    fn drop(&mut self) {
        self.mirror.update(self.tenant, |account, _| account.in_flight = account.in_flight.saturating_sub(self.units));
    }
}

impl Account {
    fn owes(&self) -> bool {
        self.owed != [0; 2]
    }

    fn owed_by(&mut self, is_anonymous: bool) -> &mut u32 {
        let [proved, anonymous] = &mut self.owed;
        if is_anonymous { anonymous } else { proved }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::{collection::vec, prelude::*, sample::select, test_runner::Config};

    use super::*;
    use crate::{
        limit::{plans::table::Plans, quota::Quota},
        testing::ManualClock,
        util::clock::{Clock, Moment, UnixTime},
    };

    const NODES: usize = 2;
    const WINDOW: Duration = Duration::from_secs(10);
    const LIMIT: u32 = 20;

    #[derive(Clone, Debug)]
    enum Step {
        Ask {
            node: usize,
            units: u32,
            is_anonymous: bool,
        },
        /// The server decides about a call.
        Run {
            which: usize,
        },
        /// The node gets the reply, or decides on its own if the call was not run.
        End {
            which: usize,
        },
        /// The reply is lost or late, so the node decides.
        Lose {
            which: usize,
        },
        /// Requests that are answered at once.
        Quick {
            node: usize,
            times: u32,
        },
        Debit {
            node: usize,
        },
        RunDebit {
            which: usize,
        },
        EndDebit {
            which: usize,
        },
        LoseDebit {
            which: usize,
        },
        /// Units that the fallback has admitted are refunded.
        Refund {
            which: usize,
        },
        Advance {
            millis: u64,
        },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let (node, which) = (0..NODES, 0..50_usize);
        let step = prop_oneof![
            8 => (node.clone(), 1..5_u32, proptest::bool::weighted(0.2))
                .prop_map(|(node, units, is_anonymous)| Step::Ask { node, units, is_anonymous }),
            8 => which.clone().prop_map(|which| Step::Run { which }),
            8 => which.clone().prop_map(|which| Step::End { which }),
            4 => which.clone().prop_map(|which| Step::Lose { which }),
            3 => (node.clone(), 1..15_u32).prop_map(|(node, times)| Step::Quick { node, times }),
            3 => node.prop_map(|node| Step::Debit { node }),
            3 => which.clone().prop_map(|which| Step::RunDebit { which }),
            3 => which.clone().prop_map(|which| Step::EndDebit { which }),
            1 => which.clone().prop_map(|which| Step::LoseDebit { which }),
            3 => which.prop_map(|which| Step::Refund { which }),
            5 => select(vec![1_u64, 40, 100, 900, 2_500, 5_000, 10_000]).prop_map(|millis| Step::Advance { millis }),
        ];
        vec(step, 1..150)
    }

    /// Plans of each rule, and the most units that they allow in any window.
    fn plans() -> Vec<(Plan, u32)> {
        let sliding = Quota::new(LIMIT, WINDOW).unwrap();
        vec![
            (sliding.into(), LIMIT),
            (sliding.slices(4).unwrap().into(), LIMIT),
            (sliding.reserve(0.5).unwrap().into(), LIMIT),
            (Quota::fixed(LIMIT, WINDOW).unwrap().into(), 2 * LIMIT),
            #[cfg(feature = "smooth")]
            (Quota::smooth(LIMIT, WINDOW, LIMIT).unwrap().into(), 2 * LIMIT),
            (Plan::new([sliding, Quota::new(3, WINDOW / 10).unwrap().with_name("burst").unwrap()]).unwrap(), LIMIT),
        ]
    }

    /// A call that is under way, and the server's decision about it.
    struct Call {
        node: usize,
        ask: Ask,
        asked: Moment,
        under_way: CallUnderWay<'static>,
        reply: Option<(bool, ServerCounts)>,
    }

    struct World {
        server: Limiter,
        mirrors: Vec<&'static Mirror>,
        plan: Plan,
        tenant: &'static LimitKey,
        clock: ManualClock,
        calls: Vec<Call>,
        debits: Vec<(usize, Debt)>,
        /// Of each node: when it was asked, when it admitted, and how many units.
        log: [Vec<(Moment, Moment, u32)>; NODES],
        /// What the fallback has admitted: the node, the place in its log, and the charge.
        spends: Vec<(usize, usize, Spend)>,
    }

    impl World {
        fn new(plan: &Plan) -> Self {
            let clock = ManualClock::new();
            clock.set_wall(UnixTime::from_secs(1_800_000_000));
            let limiter = || Limiter::builder(Plans::new(plan.clone())).clock(clock.clone()).build().unwrap();
            // calls borrow them
            let mirrors = (0..NODES).map(|_| &*Box::leak(Box::new(Mirror::new(limiter())))).collect();
            let tenant = Box::leak(Box::new(LimitKey::parse("acme").unwrap()));
            let (calls, debits, spends, log) = (Vec::new(), Vec::new(), Vec::new(), Default::default());
            Self { server: limiter(), mirrors, plan: plan.clone(), tenant, clock, calls, debits, log, spends }
        }

        fn start_node_call(&mut self, node: usize, units: u32, is_anonymous: bool) {
            let (ask, asked) = (Ask::new(units, is_anonymous), self.clock.now());
            let under_way = self.mirrors[node].start_server_call(self.tenant, units);
            self.calls.push(Call { node, ask, asked, under_way, reply: None });
        }

        fn run(&mut self, which: usize) {
            let Call { ask, reply, .. } = &mut self.calls[which];
            if reply.is_none() {
                let is_admitted = self.server.check_unreported(self.tenant, *ask).is_admitted();
                let mut used = [0; Plan::MAX_QUOTAS];
                let counts = self.server.counts(self.tenant, &self.plan).unwrap();
                for ((used, count), limited) in used.iter_mut().zip(counts).zip(self.plan.limits()) {
                    let is_charged = is_admitted && (ask.is_anonymous || !limited.is_for_anonymous);
                    *used = count - if is_charged { ask.units } else { 0 };
                }
                *reply = Some((is_admitted, ServerCounts { used, at: self.clock.read().1 }));
            }
        }

        fn end(&mut self, which: usize, has_reply: bool) {
            let Call { node, ask, asked, under_way, reply } = self.calls.swap_remove(which);
            let is_admitted = match reply.filter(|_| has_reply) {
                Some((is_admitted, count)) => {
                    under_way.learn(&self.plan, count);
                    is_admitted && self.mirrors[node].admit(self.tenant, ask, under_way.knowledge).is_ok()
                }
                None => {
                    drop(under_way);
                    let decision = self.mirrors[node].decide(self.tenant, Ask { refundable: true, ..ask });
                    let is_admitted = decision.is_admitted();
                    if is_admitted {
                        self.spends.push((node, self.log[node].len(), decision.into_spend()));
                    }
                    is_admitted
                }
            };
            if is_admitted {
                self.log[node].push((asked, self.clock.now(), ask.units));
            }
        }

        fn step(&mut self, step: &Step) {
            let (calls, debits) = (self.calls.len(), self.debits.len());
            match *step {
                Step::Ask { node, units, is_anonymous } => self.start_node_call(node, units, is_anonymous),
                Step::Run { which } if calls > 0 => self.run(which % calls),
                Step::End { which } if calls > 0 => self.end(which % calls, true),
                Step::Lose { which } if calls > 0 => self.end(which % calls, false),
                Step::Quick { node, times } => {
                    for _ in 0..times {
                        self.start_node_call(node, 1, false);
                        let own = self.calls.len() - 1;
                        self.run(own);
                        self.end(own, true);
                    }
                }
                Step::Debit { node } => {
                    self.debits.extend(self.mirrors[node].debts().map(|debt| (node, debt)));
                }
                Step::RunDebit { which } if debits > 0 => {
                    let (node, debt) = &self.debits[which % debits];
                    let counting = self.mirrors[*node].counting(debt, &self.plan);
                    let units = counting.into_iter().max().unwrap();
                    let ask = Ask { is_admitted: true, ..Ask::new(units, debt.is_anonymous) };
                    _ = self.server.check_unreported(self.tenant, ask);
                }
                Step::EndDebit { which } if debits > 0 => {
                    // it is run before there is a reply
                    self.step(&Step::RunDebit { which });
                    let (node, debt) = self.debits.swap_remove(which % debits);
                    self.mirrors[node].paid(self.tenant, debt.is_anonymous, debt.units);
                }
                Step::LoseDebit { which } if debits > 0 => drop(self.debits.swap_remove(which % debits)),
                Step::Refund { which } if !self.spends.is_empty() => {
                    let (node, place, spend) = self.spends.swap_remove(which % self.spends.len());
                    let charge = *spend.0.unwrap();
                    let Payer::Shared(past) = charge.payer else { panic!("the fallback has charged it") };
                    self.mirrors[node].local.refund(past.mirrored);
                    self.mirrors[node].forgive(self.tenant, charge.is_anonymous, charge.units, past.generation);
                    self.log[node][place].2 = 0;
                }
                Step::Advance { millis } => self.clock.advance(Duration::from_millis(millis)),
                _ => {}
            }
        }

        /// Returns the most units that one node has surely admitted in a window.
        fn most(&self) -> u32 {
            let most_of = |log: &Vec<(Moment, Moment, u32)>| {
                let in_window = |from: Moment| {
                    let inside = log.iter().filter(|(asked, admitted, _)| *asked >= from && *admitted < from + WINDOW);
                    inside.map(|(_, _, units)| units).sum::<u32>()
                };
                log.iter().map(|(asked, _, _)| in_window(*asked)).max().unwrap_or(0)
            };
            self.log.iter().map(most_of).max().unwrap_or(0)
        }
    }

    proptest! {
        #![proptest_config(Config { cases: Config::default().cases.max(1_500), failure_persistence: None, ..Config::default() })]

        #[test]
        fn b35_no_window_of_a_node_has_too_much(which in 0..plans().len(), steps in steps()) {
            let (plan, most) = &plans()[which];
            let mut world = World::new(plan);
            for step in &steps {
                world.step(step);
            }
            prop_assert!(world.most() <= *most, "{} of {most} with {plan:?}", world.most());
        }
    }

    #[test]
    fn b35_the_fallback_starts_from_what_the_server_counts() {
        for (plan, _) in plans() {
            let mut world = World::new(&plan);
            // the other node spends, and this one is refused
            (0..LIMIT).for_each(|_| world.step(&Step::Quick { node: 1, times: 1 }));
            let spent: u32 = world.log[1].iter().map(|(_, _, units)| units).sum();
            world.step(&Step::Quick { node: 0, times: 1 });
            assert!(spent > 0 && world.log[0].is_empty());
            world.step(&Step::Ask { node: 0, units: 1, is_anonymous: false });
            world.step(&Step::Lose { which: 0 });
            assert!(world.log[0].is_empty() && !world.mirrors[0].has_debts(), "{plan:?}");
        }
    }

    #[test]
    fn b35_calls_under_way_do_not_count_as_units_of_others() {
        let plan = Plan::from(Quota::new(LIMIT, WINDOW).unwrap());
        let mut world = World::new(&plan);
        (0..10).for_each(|_| world.start_node_call(0, 1, false));
        (0..10).for_each(|call| world.run(call));
        // the last reply, which counts all of them, comes first
        (0..10).rev().for_each(|call| world.end(call, true));
        assert_eq!(world.mirrors[0].local.counts(world.tenant, &plan), Some(vec![10]));
        assert!(world.mirrors[0].shards.iter().all(|shard| lock(shard).accounts.is_empty()));
    }

    #[test]
    fn b35_lost_debts_matter_as_long_as_they_may_count() {
        let plan = Plan::from(Quota::new(LIMIT, WINDOW).unwrap());
        let world = World::new(&plan);
        let (mirror, other) = (world.mirrors[0], LimitKey::parse("other").unwrap());
        let is_trusted = || mirror.start_server_call(&other, 1).knowledge != Knowledge(None);
        mirror.debtors.store(MOST_DEBTORS, SeqCst);
        assert!(is_trusted());
        assert!(mirror.decide(world.tenant, Ask::new(1, false)).is_admitted());
        assert!(!is_trusted());
        world.clock.advance(WINDOW);
        assert!(!is_trusted());
        world.clock.advance(Duration::from_secs(1));
        assert!(is_trusted());
    }

    #[test]
    fn b35_a_reply_of_yesterday_leaves_the_new_day_alone() {
        let day = Duration::from_secs(86_400);
        let (daily, sliding) = (Quota::fixed(LIMIT, day).unwrap(), Quota::new(LIMIT, day).unwrap());
        let plan = Plan::new([daily, sliding.with_name("sliding").unwrap()]).unwrap();
        let world = World::new(&plan);
        let noon = UnixTime::from_secs(20_000 * 86_400 + 43_200);
        let counts = |used: u32, at: UnixTime| ServerCounts { used: [used; Plan::MAX_QUOTAS], at };
        let learned = |at: UnixTime| {
            world.mirrors[0].start_server_call(world.tenant, 1).learn(&plan, counts(7, at));
            world.mirrors[0].local.counts(world.tenant, &plan).unwrap()
        };
        world.clock.set_wall(noon);
        assert_eq!(learned(UnixTime::from_secs(20_000 * 86_400 - 1)), [0, 7]);
        assert_eq!(learned(UnixTime::from_secs(20_000 * 86_400)), [7, 7]);
    }

    #[test]
    fn b35_a_debt_is_what_still_counts() {
        let plan = Plan::from(Quota::new(LIMIT, WINDOW).unwrap());
        let mut world = World::new(&plan);
        let mirror = world.mirrors[0];
        for _ in 0..3 {
            for _ in 0..LIMIT + 5 {
                world.step(&Step::Ask { node: 0, units: 1, is_anonymous: false });
                world.step(&Step::Lose { which: 0 });
            }
            world.step(&Step::Advance { millis: 10_000 });
        }
        world.step(&Step::Ask { node: 0, units: 2, is_anonymous: false });
        world.step(&Step::Lose { which: 0 });
        let debts: Vec<_> = mirror.debts().collect();
        assert_eq!(debts.len(), 1);
        assert_eq!((debts[0].units, mirror.counting(&debts[0], &plan)), (3 * LIMIT + 2, vec![2]));
        mirror.reset(world.tenant);
        assert!(!mirror.has_debts() && mirror.debts().next().is_none());
    }
}
