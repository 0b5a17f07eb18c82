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

use crate::{
    machine,
    random::tenant_id,
    service::{Inner, Limited},
    stats::{Table, by_round, median, ratio},
    subject::{BudgetState, LimiterKind, ServiceTask, with_service},
    wire::{Connection, DEADLINE, Server, end_with_parent},
};

const ROUNDS: usize = 9;
const REQUESTS: u64 = 30_000;
/// A smaller number, because refusals of tower_governor are slow.
const FEW_REQUESTS: u64 = 8_000;
const CONNECTIONS: usize = 32;
const TENANTS: u64 = 1_000;

pub fn run(one: &Path) {
    println!("### Requests per second of a hyper server on one core\n");
    let subjects = [
        (LimiterKind::Inner, BudgetState::Ample),
        (LimiterKind::Tollgate, BudgetState::Ample),
        (LimiterKind::TollgateExtensions, BudgetState::Ample),
        (LimiterKind::TowerGovernor, BudgetState::Ample),
        (LimiterKind::Tollgate, BudgetState::Spent),
        (LimiterKind::TollgateExtensions, BudgetState::Spent),
        (LimiterKind::TowerGovernor, BudgetState::Spent),
    ];
    let servers: Vec<_> = subjects.into_iter().map(|(kind, budget)| (kind, budget, start(one, kind, budget))).collect();
    let pinned = machine::pin(machine::cores() - 1);
    println!(
        "HTTP/1, one thread{}. {CONNECTIONS} kept-alive connections from {} send {REQUESTS} requests of \
         {TENANTS} tenants per round ({FEW_REQUESTS} if tower_governor refuses them). Medians of {ROUNDS} \
         interleaved rounds; the ratios are medians of per-round ratios. On a shared machine, the processor \
         time of the server is more reliable than the rate: its ratio is the rate on a core without other \
         work.\n",
        if pinned { " pinned to a core" } else { ", **not pinned**" },
        if pinned { "the other core" } else { "another process" },
    );
    let mut loads: Vec<_> = servers
        .into_iter()
        .map(|(kind, budget, server)| {
            let server = server.unwrap_or_else(|error| panic!("no server {kind:?}: {error}"));
            let load = Load::new(&server).unwrap_or_else(|error| panic!("no load {kind:?}: {error}"));
            (kind, budget, server, load, Vec::new(), Vec::new())
        })
        .collect();
    for round in 0..=ROUNDS {
        for (kind, budget, server, load, rates, costs) in &mut loads {
            let ran_before = machine::ran(server.process.id());
            let slow = (*kind, *budget) == (LimiterKind::TowerGovernor, BudgetState::Spent);
            let requests = if slow { FEW_REQUESTS } else { REQUESTS };
            let want: &[u8] = match (*kind, *budget) {
                (LimiterKind::Inner, _) | (_, BudgetState::Ample) => b"HTTP/1.1 200",
                _ => b"HTTP/1.1 429",
            };
            // in the first round, every tenant becomes known
            let check = (round > 0).then_some(want);
            match load.run(requests, check) {
                Ok(took) if round > 0 => {
                    let ran = machine::ran(server.process.id()) - ran_before;
                    rates.push(requests as f64 / took.as_secs_f64());
                    costs.push(ran as f64 / 1e3 / requests as f64);
                }
                Ok(_) => {}
                Err(error) => panic!("{kind:?} {budget:?}: {error}"),
            }
        }
    }
    machine::unpin();
    let (bare, bare_costs) = loads.first().map(|load| (load.4.clone(), load.5.clone())).unwrap_or_default();
    let mut table =
        Table::new(["subject", "", "requests a second", "÷ no limiter", "processor, µs a request", "no limiter ÷"]);
    for (kind, budget, _, _, rates, costs) in &loads {
        table.row([
            kind.name().to_owned(),
            if *kind == LimiterKind::Inner { "" } else { budget.name() }.to_owned(),
            format!("{:.0}", median(rates)),
            ratio(by_round(rates, &bare, |a, b| a / b)),
            format!("{:.2}", median(costs)),
            ratio(by_round(costs, &bare_costs, |a, b| b / a)),
        ]);
    }
    table.print();
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
