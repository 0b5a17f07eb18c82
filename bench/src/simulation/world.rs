//! The events of a run, in the order of time.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    time::Duration,
};

use foldhash::fast::RandomState;
use tollgate::testing::lease::{LeaseCall, LeaseReply, LeaseRequest, LeaseReturn, LeaseStep};

use super::{
    Counting, Scale,
    arrivals::{Arrival, fraction},
    budget::{Budget, Micros, Window},
    micros,
    node::{Node, Request},
    witness::Witness,
};
use crate::random::Random;

/// No request waits longer for the engine.
const DEADLINE: Micros = 20_000;
const SECOND: Micros = 1_000_000;
/// How long a lease lasts at most.
const LIFETIME: Micros = SECOND;

pub struct World {
    pub witness: Witness,
    window: Window,
    counting: Counting,
    spread: u64,
    lifetime: Duration,
    lasts: Micros,
    nodes: Vec<Node>,
    engine: HashMap<u32, Budget, RandomState>,
    events: BinaryHeap<Reverse<Planned>>,
    planned: u64,
    calls: u64,
    random: Random,
}

/// An event, ordered by time, and by the order of planning.
struct Planned(Micros, u64, Event);

enum Event {
    /// A call reaches the engine, which replies if the node gets the reply in time.
    Engine {
        node: usize,
        life: u32,
        ask: Ask,
        reply_at: Option<Micros>,
    },
    /// The call of a request ends.
    Reply {
        node: usize,
        life: u32,
        request: Request,
        call: LeaseCall,
        reply: LeaseReply<Micros>,
    },
    /// A request without a lease was not answered.
    Unanswered {
        node: usize,
        life: u32,
        request: Request,
    },
    /// A request reaches a node that was paused.
    Late {
        node: usize,
        life: u32,
        request: Request,
    },
    Sweep {
        node: usize,
    },
    Crash {
        node: usize,
    },
    Pause {
        node: usize,
    },
}

enum Ask {
    Spend(Request),
    Lease(Request, LeaseCall),
    Return { tenant: u32, units: u32, mark: Micros },
}

impl World {
    pub fn new(scale: &Scale, window: Window, counting: Counting, spread: u64) -> Self {
        let mut random = Random(scale.seed ^ 0x5EED);
        let lifetime = Duration::from_micros(LIFETIME.min(window.length / 8));
        let mut world = Self {
            witness: Witness::default(),
            window,
            counting,
            spread,
            lifetime,
            lasts: micros(scale.lasts),
            nodes: (0..scale.nodes).map(|_| Node::new(&mut random, lifetime)).collect(),
            engine: HashMap::default(),
            events: BinaryHeap::new(),
            planned: 0,
            calls: 0,
            random,
        };
        world.plan_trouble();
        world
    }

    /// Lets a node in twenty crash for a second, another one pause for three seconds, and cuts a tenth of all nodes off for
    /// three seconds.
    fn plan_trouble(&mut self) {
        let count = self.nodes.len();
        for _ in 0..count.div_ceil(20) {
            let (crashes, pauses) = (self.random.below(self.lasts), self.random.below(self.lasts));
            let (first, second) = (self.any_node(), self.any_node());
            self.plan(crashes, Event::Crash { node: first });
            self.plan(pauses, Event::Pause { node: second });
        }
        let began = self.lasts * 2 / 5;
        for node in self.nodes.iter_mut().take(count.div_ceil(10)) {
            node.cut_off = (began, began + 3 * SECOND);
        }
        for node in 0..count {
            let first = self.random.below(micros(self.lifetime));
            self.plan(first, Event::Sweep { node });
        }
    }

    fn any_node(&mut self) -> usize {
        self.random.below(self.nodes.len() as u64) as usize
    }

    fn plan(&mut self, at: Micros, event: Event) {
        self.planned += 1;
        self.events.push(Reverse(Planned(at, self.planned, event)));
    }

    /// Lets all requests arrive. Returns the number of calls to the engine.
    pub fn run(&mut self, arrivals: &[Arrival]) -> u64 {
        for arrival in arrivals {
            self.happen_until(arrival.at);
            self.arrive(arrival);
        }
        self.happen_until(self.lasts + SECOND);
        self.calls
    }

    fn happen_until(&mut self, end: Micros) {
        while self.events.peek().is_some_and(|Reverse(next)| next.0 <= end) {
            if let Some(Reverse(Planned(at, _, event))) = self.events.pop() {
                self.happen(at, event);
            }
        }
    }

    /// Sends a request to one of the nodes that serve the tenant, or to the next one if that is down.
    fn arrive(&mut self, arrival: &Arrival) {
        let count = self.nodes.len() as u64;
        let home = u64::from(arrival.tenant).wrapping_mul(0x9E37_79B9) % count;
        let first = home + arrival.draw % self.spread;
        let up = (0..count).map(|step| ((first + step) % count) as usize);
        let Some(node) = up.into_iter().find(|node| self.nodes[*node].down_until <= arrival.at) else { return };
        let request = Request { tenant: arrival.tenant, units: arrival.units, deadline: arrival.at + DEADLINE };
        let Node { paused_until, life, .. } = self.nodes[node];
        if paused_until > arrival.at {
            let request = Request { deadline: paused_until + DEADLINE, ..request };
            return self.plan(paused_until, Event::Late { node, life, request });
        }
        self.serve(node, request, arrival.at);
    }

    fn serve(&mut self, node: usize, request: Request, now: Micros) {
        match self.counting {
            Counting::Plain => self.send(node, Ask::Spend(request), now),
            Counting::Leased => self.serve_leased(node, request, now),
            Counting::Alone(divisor) => {
                let window = Window { limit: (self.window.limit / divisor).max(1), ..self.window };
                if self.nodes[node].admits(&window, now, &request) {
                    self.witness.admitted(request.tenant, now, request.units);
                }
            }
        }
    }

    fn serve_leased(&mut self, node: usize, request: Request, now: Micros) {
        let asked = LeaseRequest { units: request.units, plan: 1, lifetime: self.lifetime };
        let own = &mut self.nodes[node];
        let step = own.slots.request(&request.tenant, asked, own.clock(now));
        match step {
            LeaseStep::Admitted(_) => self.witness.admitted(request.tenant, now, request.units),
            LeaseStep::Refused(_) => {}
            LeaseStep::Call(call) => self.send(node, Ask::Lease(request, call), now),
            LeaseStep::Wait(_) => self.nodes[node].waiting.entry(request.tenant).or_default().push(request),
            LeaseStep::Plain => self.send(node, Ask::Spend(request), now),
        }
        self.give_back(node, now);
    }

    /// Sends what the node can't use any more.
    fn give_back(&mut self, node: usize, now: Micros) {
        let mut returns = self.nodes[node].slots.take_returns();
        // those of a sweep come in the order of a map, which differs between runs
        returns.sort_unstable_by_key(|unused| unused.key);
        for LeaseReturn { key, units, terms } in returns {
            self.send(node, Ask::Return { tenant: key, units, mark: terms }, now);
        }
    }

    /// Sends a call to the engine. One in a thousand takes too long.
    fn send(&mut self, node: usize, ask: Ask, now: Micros) {
        self.calls += 1;
        let [there, back] = [(); 2].map(|()| {
            let usual = 100.0 - 150.0 * fraction(&mut self.random).ln();
            usual as Micros + if self.random.below(2_000) == 0 { 3 * DEADLINE } else { 0 }
        });
        let own = &self.nodes[node];
        let life = own.life;
        let (arrives, returns) = (now + there, now + there + back);
        let is_lost = own.is_cut_off(now) || own.is_cut_off(arrives);
        let deadline = now + DEADLINE;
        let reply_at = (!is_lost && !own.is_cut_off(returns) && returns <= deadline).then_some(returns);
        if reply_at.is_none() {
            match &ask {
                Ask::Spend(request) => self.plan(deadline, Event::Unanswered { node, life, request: *request }),
                Ask::Lease(request, call) => {
                    let (request, call) = (*request, call.clone());
                    self.plan(deadline, Event::Reply { node, life, request, call, reply: LeaseReply::Failed });
                }
                Ask::Return { .. } => {}
            }
        }
        if !is_lost {
            self.plan(arrives, Event::Engine { node, life, ask, reply_at });
        }
    }

    fn happen(&mut self, now: Micros, event: Event) {
        match event {
            Event::Engine { node, life, ask, reply_at } => self.execute(node, life, ask, reply_at, now),
            Event::Reply { node, .. } | Event::Unanswered { node, .. } | Event::Late { node, .. }
                if self.nodes[node].paused_until > now =>
            {
                let until = self.nodes[node].paused_until;
                self.plan(until, event);
            }
            Event::Reply { node, life, request, call, reply } => {
                if self.nodes[node].life == life {
                    self.replied(node, request, &call, reply, now);
                }
            }
            Event::Unanswered { node, life, request } => {
                if self.nodes[node].life == life {
                    self.fall_back(node, request, now);
                }
            }
            Event::Late { node, life, request } => {
                if self.nodes[node].life == life {
                    self.serve(node, request, now);
                }
            }
            Event::Sweep { node } => {
                if self.nodes[node].paused_until <= now {
                    let clock = self.nodes[node].clock(now);
                    self.nodes[node].slots.sweep(clock);
                    self.give_back(node, now);
                }
                if now < self.lasts {
                    self.plan(now + micros(self.lifetime), Event::Sweep { node });
                }
            }
            Event::Crash { node } => self.nodes[node].crash(now + SECOND, self.lifetime),
            Event::Pause { node } => self.nodes[node].pause(now, now + 3 * SECOND),
        }
    }

    fn execute(&mut self, node: usize, life: u32, ask: Ask, reply_at: Option<Micros>, now: Micros) {
        let window = self.window;
        match ask {
            Ask::Spend(request) => {
                let budget = self.engine.entry(request.tenant).or_default();
                let granted = budget.lease(&window, now, request.units, request.units, 0);
                if granted.is_ok() && reply_at.is_some() {
                    self.witness.admitted(request.tenant, now, request.units);
                }
            }
            Ask::Lease(request, call) => {
                let budget = self.engine.entry(request.tenant).or_default();
                let granted = budget.lease(&window, now, call.needed, call.most, call.lifetime.as_micros() as Micros);
                let Some(reply_at) = reply_at else { return };
                let reply = match granted {
                    Ok(granted) => {
                        // the engine has admitted the request that has sent the call
                        self.witness.admitted(request.tenant, now, request.units);
                        let lifetime = Duration::from_micros(granted.lifetime);
                        LeaseReply::Granted { granted: granted.units, lifetime, terms: granted.mark }
                    }
                    Err(refused) => LeaseReply::Refused { wait: Duration::from_micros(refused.wait), terms: 0 },
                };
                self.plan(reply_at, Event::Reply { node, life, request, call, reply });
            }
            Ask::Return { tenant, units, mark } => {
                self.engine.entry(tenant).or_default().give_back(&window, now, mark, units);
            }
        }
    }

    /// Ends a call: its request is decided, and those that have waited ask again.
    fn replied(&mut self, node: usize, request: Request, call: &LeaseCall, reply: LeaseReply<Micros>, now: Micros) {
        let is_answered = self.nodes[node].slots.replied(&request.tenant, call, reply).is_some();
        if !is_answered {
            self.fall_back(node, request, now);
        }
        let waited = self.nodes[node].waiting.remove(&request.tenant).unwrap_or_default();
        for request in waited {
            if request.deadline > now {
                self.serve_leased(node, request, now);
            } else if is_answered {
                self.send(node, Ask::Spend(request), now);
            } else {
                self.fall_back(node, request, now);
            }
        }
        self.give_back(node, now);
    }

    fn fall_back(&mut self, node: usize, request: Request, now: Micros) {
        if self.nodes[node].admits(&self.window, now, &request) {
            self.witness.fell_back(request.tenant, request.units);
        }
    }
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}
