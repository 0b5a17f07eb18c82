//! Many nodes with one engine, in simulated time.
//!
//! The nodes run the code of the limiter that holds leases. The engine is a model of its script. Nodes crash, pause for longer
//! than a lease and are cut off, their clocks differ, and some replies come too late.

mod arrivals;
mod budget;
mod node;
mod witness;
mod world;

use std::time::Duration;

use self::{
    arrivals::{Arrival, arrivals},
    budget::{Micros, Window},
    witness::Ideal,
    world::World,
};
use crate::stats::Table;

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub seed: u64,
    pub nodes: u64,
    pub tenants: u64,
    pub requests: u64,
    pub lasts: Duration,
    /// The most units of a tenant in every window.
    pub limit: u32,
    pub window: Duration,
}

impl Scale {
    /// A thousand nodes and a million tenants.
    pub fn internet(seed: u64) -> Self {
        Self {
            seed,
            nodes: 1_000,
            tenants: 1_000_000,
            requests: 2_000_000,
            lasts: Duration::from_secs(20),
            limit: 10_000,
            window: Duration::from_secs(8),
        }
    }

    /// A run that takes a moment in a debug build.
    pub fn small(seed: u64) -> Self {
        Self {
            seed,
            nodes: 20,
            tenants: 2_000,
            requests: 40_000,
            lasts: Duration::from_secs(20),
            limit: 400,
            window: Duration::from_secs(8),
        }
    }

    fn window(&self) -> Window {
        let length = micros(self.window);
        // like a quota with the default of 60 slices
        Window { limit: self.limit, length, slice: length / 60 }
    }
}

/// How the nodes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Each request asks the engine.
    Plain,
    Leased,
    /// Each node counts alone, with the limit divided by this.
    Alone(u32),
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub requests: u64,
    /// Calls to the engine, with those that return units.
    pub calls: u64,
    /// Units beyond the limit in some window, of those that the engine has charged, or of all units if it was not asked.
    pub over: u64,
    /// Units that an ideal limiter would have admitted.
    pub ideal: u64,
    /// Units of those that were refused.
    pub under: u64,
    /// Units that nodes admitted by themselves because they did not reach the engine.
    pub by_fallback: u64,
}

/// Runs all ways to count, and prints a table. Returns the units that the engine admitted beyond the limit.
pub fn run(scale: &Scale) -> u64 {
    let Scale { nodes, tenants, requests, lasts, limit, window, seed } = scale;
    println!(
        "{nodes} nodes, {tenants} tenants (Zipf), {requests} requests in {} s, at most {limit} units of a tenant in every \
         {} s, seed {seed}.\n",
        lasts.as_secs(),
        window.as_secs()
    );
    let all = arrivals(*seed, *requests, *tenants, micros(*lasts));
    let mut table = Table::new([
        "counting",
        "nodes of a tenant",
        "round trips",
        "over-admitted",
        "refused in vain",
        "by the fallback",
    ]);
    let mut broken = 0;
    let share = |units: u64, of: u64| format!("{:.2} %", units as f64 * 100.0 / of as f64);
    let ideal = Ideal::new(&all, &scale.window());
    let divisor = u32::try_from(*nodes).expect("few nodes");
    for (name, counting, spread) in [
        ("plain", Counting::Plain, *nodes),
        ("leased", Counting::Leased, *nodes),
        ("leased", Counting::Leased, 4),
        ("leased", Counting::Leased, 1),
        ("each node alone", Counting::Alone(1), *nodes),
        ("alone, limit ÷ nodes", Counting::Alone(divisor), *nodes),
    ] {
        let outcome = simulate(scale, &all, &ideal, counting, spread);
        if !matches!(counting, Counting::Alone(_)) {
            broken += outcome.over;
        }
        table.row([
            name.to_owned(),
            spread.to_string(),
            format!("{:.3}", outcome.calls as f64 / outcome.requests as f64),
            if outcome.over == 0 { "0".to_owned() } else { share(outcome.over, outcome.ideal) },
            share(outcome.under, outcome.ideal),
            share(outcome.by_fallback, outcome.ideal),
        ]);
    }
    table.print();
    broken
}

/// Runs one way to count, with this many nodes that serve each tenant.
pub fn simulate_all(scale: &Scale, counting: Counting, spread: u64) -> Outcome {
    let all = arrivals(scale.seed, scale.requests, scale.tenants, micros(scale.lasts));
    simulate(scale, &all, &Ideal::new(&all, &scale.window()), counting, spread)
}

fn simulate(scale: &Scale, all: &[Arrival], ideal: &Ideal, counting: Counting, spread: u64) -> Outcome {
    let window = scale.window();
    let mut world = World::new(scale, window, counting, spread);
    let calls = world.run(all);
    let mut witness = world.witness;
    Outcome {
        requests: all.len() as u64,
        calls,
        over: witness.over(&window),
        ideal: ideal.sum(),
        under: witness.under(ideal),
        by_fallback: witness.by_fallback,
    }
}

fn micros(time: Duration) -> Micros {
    time.as_micros() as Micros
}
