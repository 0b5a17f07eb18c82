//! Requests per second of a real server on one core.

use std::{
    convert::Infallible,
    io,
    path::Path,
    time::{Duration, Instant},
};

use http::Request;
use http_body_util::Empty;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, runtime, task};
use tollgate::Limiter;

use super::rounds;
use crate::{
    machine,
    random::tenant_id,
    report::figure,
    service::{Inner, Limited},
    stats::{Table, by_round, median},
    subject::{BudgetState, LimiterKind, ServiceTask, with_service},
    wire::{Connection, DEADLINE, Server, end_with_parent},
};

const ROUNDS: usize = 9;
const REQUESTS: u64 = 30_000;
/// A smaller number, because refusals of tower_governor are slow.
const FEW_REQUESTS: u64 = 8_000;
const CONNECTIONS: usize = 32;
const TENANTS: u64 = 1_000;

const SUBJECTS: [(LimiterKind, BudgetState); 9] = [
    (LimiterKind::Inner, BudgetState::Ample),
    (LimiterKind::ConstantHeaders, BudgetState::Ample),
    (LimiterKind::Tollgate, BudgetState::Ample),
    (LimiterKind::TollgateNoExtensions, BudgetState::Ample),
    (LimiterKind::TowerGovernor, BudgetState::Ample),
    (LimiterKind::ConstantHeaders, BudgetState::Spent),
    (LimiterKind::Tollgate, BudgetState::Spent),
    (LimiterKind::TollgateNoExtensions, BudgetState::Spent),
    (LimiterKind::TowerGovernor, BudgetState::Spent),
];

struct Measured {
    kind: LimiterKind,
    budget: BudgetState,
    server: Server,
    load: Load,
    /// For each round: requests a second, and microseconds of the server per request.
    rates: Vec<f64>,
    costs: Vec<f64>,
}

pub fn run(one: &Path) {
    println!("### Requests per second of a hyper server on one core\n");
    let servers: Vec<_> = SUBJECTS.into_iter().map(|(kind, budget)| (kind, budget, start(one, kind, budget))).collect();
    let pinned = machine::pin(machine::cores() - 1);
    let rounds = rounds(ROUNDS);
    println!(
        "HTTP/1, one thread{}. {CONNECTIONS} kept-alive connections from {} send {REQUESTS} requests of \
         {TENANTS} tenants per round ({FEW_REQUESTS} if tower_governor refuses them). Medians of {rounds} \
         interleaved rounds; the ratios are medians of per-round ratios. `constant headers` is the same server \
         without a limiter. It writes the headers that tollgate writes, as constants, or responds to everything with \
         tollgate's refusal, as a constant: so the ratios compare decisions, and not the bytes of a response. On a shared \
         machine, the processor time of the server is more reliable than the rate.\n",
        if pinned { " pinned to a core" } else { ", **not pinned**" },
        if pinned { "the other core" } else { "another process" },
    );
    let mut all: Vec<_> = servers
        .into_iter()
        .map(|(kind, budget, server)| {
            let server = server.unwrap_or_else(|error| panic!("no server {kind:?}: {error}"));
            let load = Load::new(&server).unwrap_or_else(|error| panic!("no load {kind:?}: {error}"));
            Measured { kind, budget, server, load, rates: Vec::new(), costs: Vec::new() }
        })
        .collect();
    for round in 0..=rounds {
        for one in &mut all {
            // in the first round, every tenant becomes known
            one.round(round > 0);
        }
    }
    machine::unpin();
    let mut table = Table::new([
        "subject",
        "",
        "requests a second",
        "÷ constant headers",
        "processor, µs a request",
        "constant headers ÷",
    ]);
    for Measured { kind, budget, rates, costs, .. } in &all {
        let constant = all.iter().find(|one| (one.kind, one.budget) == (LimiterKind::ConstantHeaders, *budget));
        let constant = constant.expect("it is one of the subjects");
        let compared = by_round(rates, &constant.rates, |a, b| a / b);
        figure(format!("server/{budget:?}/{}/rate", kind.tag()), median(rates));
        figure(format!("server/{budget:?}/{}/ratio", kind.tag()), compared);
        table.row([
            kind.name().to_owned(),
            budget.name().to_owned(),
            format!("{:.0}", median(rates)),
            format!("{compared:.3}"),
            format!("{:.2}", median(costs)),
            format!("{:.3}", by_round(costs, &constant.costs, |a, b| b / a)),
        ]);
    }
    table.print();
}

impl Measured {
    fn round(&mut self, counts: bool) {
        let ran_before = machine::ran(self.server.process.id());
        let slow = (self.kind, self.budget) == (LimiterKind::TowerGovernor, BudgetState::Spent);
        let requests = if slow { FEW_REQUESTS } else { REQUESTS };
        let want: &[u8] = match self.budget {
            BudgetState::Ample => b"HTTP/1.1 200",
            BudgetState::Spent => b"HTTP/1.1 429",
        };
        let took = self.load.run(requests, counts.then_some(want));
        let took = took.unwrap_or_else(|error| panic!("{:?} {:?}: {error}", self.kind, self.budget));
        if counts {
            let ran = machine::ran(self.server.process.id()) - ran_before;
            self.rates.push(requests as f64 / took.as_secs_f64());
            self.costs.push(ran as f64 / 1e3 / requests as f64);
        }
    }
}

fn start(one: &Path, kind: LimiterKind, budget: BudgetState) -> io::Result<Server> {
    Server::start(one, &["serve", &kind.tag(), &format!("{budget:?}")])
}

struct Load {
    connections: Vec<Connection>,
    next: u64,
}

impl Load {
    fn new(server: &Server) -> io::Result<Self> {
        let connections = (0..CONNECTIONS).map(|_| Connection::new(&server.address)).collect::<io::Result<_>>()?;
        Ok(Self { connections, next: 0 })
    }

    /// Sends requests, one at a time on each connection.
    fn run(&mut self, requests: u64, want: Option<&[u8]>) -> io::Result<Duration> {
        let began = Instant::now();
        let (mut sent, mut answered) = (0, 0);
        while answered < requests {
            if began.elapsed() > DEADLINE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            for connection in &mut self.connections {
                if sent >= CONNECTIONS as u64 {
                    if answered == requests {
                        break;
                    }
                    expect(connection, want)?;
                    answered += 1;
                }
                if sent < requests {
                    connection.send(&request(self.next % TENANTS))?;
                    self.next += 1;
                    sent += 1;
                }
            }
        }
        Ok(began.elapsed())
    }
}

const REQUEST: [u8; 59] = *b"GET / HTTP/1.1\r\nhost: bench\r\nx-tenant: 0123456789abcdef\r\n\r\n";

fn request(tenant: u64) -> [u8; REQUEST.len()] {
    let mut request = REQUEST;
    let place = request.len() - 20;
    request[place..place + 16].copy_from_slice(&tenant_id(tenant));
    request
}

/// Reads one complete response and checks its beginning.
fn expect(connection: &mut Connection, want: Option<&[u8]>) -> io::Result<()> {
    let (head, _) = connection.receive()?;
    match want {
        Some(want) if !head.starts_with(want) => Err(io::Error::other("another status")),
        _ => Ok(()),
    }
}

/// Runs in the child: serves on a free loopback port, and prints its address.
pub fn serve(kind: LimiterKind, budget: BudgetState) {
    struct Serve;
    impl ServiceTask for Serve {
        type Output = ();

        fn run<S: Limited>(self, service: S, _: Option<Limiter>) {
            end_with_parent();
            machine::pin(0);
            let runtime = runtime::Builder::new_current_thread().enable_io().build();
            let local = task::LocalSet::new();
            let served = runtime.map(|runtime| local.block_on(&runtime, accept(service)));
            served.expect("the runtime starts").expect("the port opens");
        }
    }
    with_service(kind, budget, Inner::default(), Serve);
}

async fn accept<S: Limited>(service: S) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = service.clone();
        let answer = service_fn(move |request: Request<Incoming>| {
            let call = service.clone().call(request.map(|_| Empty::new()));
            async move { Ok::<_, Infallible>(call.await.unwrap_or_else(|never| match never {})) }
        });
        task::spawn_local(async move {
            // a client that disconnects is not an error
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}
