//! Exchanges per second at the token endpoint of a real server on one core.

use std::{
    io,
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    issuers::{Issuer, peer_version},
    login::Ask,
    machine,
    remote::RemoteBrowser,
    stats::{Table, by_round, median, ratio},
    wire::Server,
};

const ROUNDS: usize = 7;
/// The number of codes in each round, followed by as many refreshes.
const EXCHANGES: usize = 2_000;
const CONNECTIONS: usize = 16;
const PEERS: [Issuer; 2] = [Issuer::PeerSigned, Issuer::PeerOpaque];

pub fn run(one: &Path) {
    println!("### Exchanges per second at the token endpoint, one core\n");
    let mut issuers = vec![Issuer::Ours];
    let peer = match peer_version() {
        Ok(version) => {
            issuers.extend(PEERS);
            version
        }
        Err(missing) => format!("**without oidc-provider: {missing}**"),
    };
    let pinned = machine::cores() > 1;
    println!(
        "HTTP/1, each process on one core{}. {CONNECTIONS} kept-alive connections, one request at a time on \
         each. Public client, PKCE, ES256, everything in memory. A round has {EXCHANGES} codes, which each \
         issuer's own login produces beforehand and which are not measured, and {EXCHANGES} refreshes, each \
         with the token from the one before. Medians of {ROUNDS} interleaved rounds; the ratios are medians \
         of per-round ratios. `processor` is the time that all threads of the server ran per exchange. \
         {peer}.\n",
        if pinned { " and the clients on the other" } else { ", **with the clients**" },
    );
    let mut subjects: Vec<_> = issuers
        .into_iter()
        .map(|issuer| Subject::start(one, issuer).unwrap_or_else(|error| panic!("{}: {error}", issuer.name())))
        .collect();
    machine::pin(machine::cores() - 1);
    for round in 0..=ROUNDS {
        for subject in &mut subjects {
            // the first round warms up caches and compilers
            let name = subject.issuer.name();
            subject.round(round > 0).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
    machine::unpin();
    for (what, pick) in [("code", 0), ("refresh token", 1)] {
        let mut table =
            Table::new([what, "exchanges a second", "tollgate ÷", "processor, µs an exchange", "bytes of an answer"]);
        let first = subjects.first().map(|first| first.seen[pick].rates.clone()).unwrap_or_default();
        for subject in &subjects {
            let seen = &subject.seen[pick];
            table.row([
                subject.issuer.name().to_owned(),
                format!("{:.0}", median(&seen.rates)),
                ratio(by_round(&seen.rates, &first, |a, b| b / a)),
                format!("{:.1}", median(&seen.costs)),
                seen.bytes.to_string(),
            ]);
        }
        table.print();
    }
}

struct Subject {
    issuer: Issuer,
    server: Server,
    workers: Vec<Worker>,
    users: u64,
    seen: [Seen; 2],
}

struct Worker {
    remote: RemoteBrowser,
    codes: Vec<Ask>,
    refresh: String,
}

#[derive(Default)]
struct Seen {
    rates: Vec<f64>,
    costs: Vec<f64>,
    bytes: usize,
}

impl Subject {
    fn start(one: &Path, issuer: Issuer) -> io::Result<Self> {
        let server = issuer.start(one)?;
        let worker =
            |_| Ok(Worker { remote: RemoteBrowser::new(&server.address)?, codes: Vec::new(), refresh: String::new() });
        let workers = (0..CONNECTIONS).map(worker).collect::<io::Result<_>>()?;
        Ok(Self { issuer, server, workers, users: 0, seen: Default::default() })
    }

    fn round(&mut self, counts: bool) -> io::Result<()> {
        for number in 0..EXCHANGES {
            let worker = &mut self.workers[number % CONNECTIONS];
            worker.codes.push(self.issuer.code(&mut worker.remote, self.users)?);
            self.users += 1;
        }
        let ways: [fn(&mut Worker) -> Option<Ask>; 2] =
            [|worker| worker.codes.pop(), |worker| Some(Ask::by_refresh(&worker.refresh))];
        for (way, next) in ways.into_iter().enumerate() {
            let ran_before = machine::ran_together(self.server.process.id());
            let (took, bytes) = self.exchange(next)?;
            let ran = machine::ran_together(self.server.process.id()) - ran_before;
            if counts {
                let seen = &mut self.seen[way];
                seen.rates.push(EXCHANGES as f64 / took.as_secs_f64());
                seen.costs.push(ran.as_secs_f64() * 1e6 / EXCHANGES as f64);
                seen.bytes = bytes;
            }
        }
        Ok(())
    }

    /// Makes all exchanges of a round. Also returns the length of the last response.
    fn exchange(&mut self, next: fn(&mut Worker) -> Option<Ask>) -> io::Result<(Duration, usize)> {
        let (began, mut bytes) = (Instant::now(), 0);
        for turn in 0..=EXCHANGES / CONNECTIONS {
            for worker in &mut self.workers {
                if turn > 0 {
                    bytes = worker.receive()?;
                }
                if turn < EXCHANGES / CONNECTIONS {
                    let ask = next(worker).ok_or_else(|| io::Error::other("there are too few codes"))?;
                    worker.remote.send(&ask)?;
                }
            }
        }
        Ok((began.elapsed(), bytes))
    }
}

impl Worker {
    /// Reads a response, stores its tokens, and returns its length.
    fn receive(&mut self) -> io::Result<usize> {
        let answer = self.remote.answer()?;
        let tokens = ["access_token", "id_token", "refresh_token"].map(|name| answer.member(name));
        let (200, [Some(_), Some(_), Some(refresh)]) = (answer.status, tokens) else {
            return Err(answer.wrong("no tokens"));
        };
        refresh.clone_into(&mut self.refresh);
        Ok(answer.body.len())
    }
}
