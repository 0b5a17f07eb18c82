//! Exchanges per second at the token endpoint of the bundled server on one core.

use std::{
    io,
    time::{Duration, Instant},
};

use super::Programs;
use crate::{
    issuers::{Issuer, LEAN, LoggedIn, peer_version},
    login::Ask,
    machine,
    remote::RemoteBrowser,
    report::figure,
    stats::{Table, median, ratio},
    wire::{Connection, Server},
};

const ROUNDS: usize = 7;
/// The number of codes in each round, followed by as many refreshes.
const EXCHANGES: usize = 2_000;
const CONNECTIONS: usize = 16;
const PEERS: [Issuer; 2] = [Issuer::PeerSigned, Issuer::PeerOpaque];
/// The kinds of exchanges, and their names in figures.
const WAYS: [(&str, &str); 3] =
    [("code", "code"), ("refresh token", "refresh"), ("refresh token, no new id_token", "refresh-lean")];

pub fn run(programs: &Programs<'_>) {
    println!("### Exchanges per second at the token endpoint, one core\n");
    let mut issuers = vec![Issuer::Ours, Issuer::Signatures];
    let peer = match peer_version() {
        Ok(version) => {
            issuers.extend(PEERS);
            version
        }
        Err(missing) => format!("**without oidc-provider: {missing}**"),
    };
    let pinned = machine::cores() > 1;
    println!(
        "Ours is the bundled server (`examples/server`), started with a file of clients and users. It has tokio's \
         multi-thread runtime, all layers, events and limits. HTTP/1, each process on one core{}. {CONNECTIONS} \
         kept-alive connections, one request at a time on each. Public client, PKCE, ES256, everything in memory. A \
         round has {EXCHANGES} codes and {EXCHANGES} refreshes. Issuing the codes is not measured. A refresh uses the \
         token of the previous one. Each exchange returns an access token, a refresh token and an id_token. In the last \
         table, the client has `id_token_on_refresh = false`. {ROUNDS} interleaved rounds: medians of exchanges per \
         second, and means of `processor`, the time that all threads of the server ran per exchange. `signatures and a bare server` is a hyper server without \
         tollgate that reads the same request, makes as many ES256 signatures, and answers as many bytes. {peer}.\n",
        if pinned { " and the clients on the other" } else { ", **with the clients**" },
    );
    let mut subjects: Vec<_> = issuers
        .into_iter()
        .map(|issuer| Subject::start(programs, issuer).unwrap_or_else(|error| panic!("{}: {error}", issuer.name())))
        .collect();
    machine::pin(machine::cores() - 1);
    for round in 0..=super::rounds(ROUNDS) {
        for subject in &mut subjects {
            // the first round warms up caches and compilers
            let name = subject.issuer.name();
            subject.round(round > 0).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
    machine::unpin();
    for (pick, (what, name)) in WAYS.into_iter().enumerate() {
        let head =
            [what, "exchanges a second", "processor, µs an exchange", "processor ÷ tollgate", "bytes of an answer"];
        let (mut table, mut ours) = (Table::new(head), None);
        for subject in subjects.iter().filter(|subject| pick < subject.ways()) {
            let seen = &subject.seen[pick];
            if subject.issuer == Issuer::Signatures {
                assert!(seen.bytes.abs_diff(subjects[0].seen[pick].bytes) <= 20, "its answers are as long as ours");
            }
            let cost = seen.ran.as_secs_f64() * 1e6 / (seen.rates.len() * EXCHANGES) as f64;
            figure(format!("tokens/{name}/{:?}/cost", subject.issuer), cost);
            table.row([
                subject.issuer.name().to_owned(),
                format!("{:.0}", median(&seen.rates)),
                format!("{cost:.1}"),
                ratio(cost / *ours.get_or_insert(cost)),
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
    logged_in: LoggedIn,
    seen: [Seen; WAYS.len()],
}

struct Worker {
    remote: RemoteBrowser,
    codes: Vec<Ask>,
    refresh: String,
}

#[derive(Default)]
struct Seen {
    rates: Vec<f64>,
    ran: Duration,
    bytes: usize,
}

impl Subject {
    fn start(programs: &Programs<'_>, issuer: Issuer) -> io::Result<Self> {
        let server = issuer.start(programs)?;
        let worker =
            |_| Ok(Worker { remote: RemoteBrowser::new(&server.address)?, codes: Vec::new(), refresh: String::new() });
        let workers = (0..CONNECTIONS).map(worker).collect::<io::Result<_>>()?;
        Ok(Self { issuer, server, workers, users: 0, logged_in: LoggedIn::new(), seen: Default::default() })
    }

    /// A peer always returns an id_token.
    fn ways(&self) -> usize {
        if PEERS.contains(&self.issuer) { 2 } else { WAYS.len() }
    }

    fn round(&mut self, counts: bool) -> io::Result<()> {
        // servers close connections that are idle while the others have their turn
        for worker in &mut self.workers {
            worker.remote.connection = Connection::new(&self.server.address)?;
        }
        self.codes(EXCHANGES, "web")?;
        let ways: [fn(&mut Worker) -> Option<Ask>; WAYS.len()] = [
            |worker| worker.codes.pop(),
            |worker| Some(Ask::by_refresh(&worker.refresh)),
            |worker| Some(Ask::by_refresh_of(LEAN, &worker.refresh)),
        ];
        for (way, next) in ways.into_iter().enumerate().take(self.ways()) {
            if way == 2 {
                self.codes(CONNECTIONS, LEAN)?;
                self.exchange(CONNECTIONS, |worker| worker.codes.pop())?;
            }
            let ran_before = machine::ran_together(self.server.process.id());
            let (took, bytes) = self.exchange(EXCHANGES, next)?;
            let ran = machine::ran_together(self.server.process.id()) - ran_before;
            if counts {
                let seen = &mut self.seen[way];
                seen.rates.push(EXCHANGES as f64 / took.as_secs_f64());
                seen.ran += ran;
                seen.bytes = bytes;
            }
        }
        Ok(())
    }

    /// Gets this many codes for the next users.
    fn codes(&mut self, count: usize, client: &'static str) -> io::Result<()> {
        for number in 0..count {
            let worker = &mut self.workers[number % CONNECTIONS];
            let code = self.issuer.code(&mut worker.remote, &mut self.logged_in, (self.users, client))?;
            worker.codes.push(code);
            self.users += 1;
        }
        Ok(())
    }

    /// Makes all exchanges of a round. Also returns the length of the last response.
    fn exchange(&mut self, count: usize, next: fn(&mut Worker) -> Option<Ask>) -> io::Result<(Duration, usize)> {
        let (began, mut bytes) = (Instant::now(), 0);
        for turn in 0..=count / CONNECTIONS {
            for worker in &mut self.workers {
                if turn > 0 {
                    bytes = worker.receive()?;
                }
                if turn < count / CONNECTIONS {
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
        let tokens = ["access_token", "refresh_token"].map(|name| answer.member(name));
        let (200, [Some(_), Some(refresh)]) = (answer.status, tokens) else {
            return Err(answer.wrong("no tokens"));
        };
        refresh.clone_into(&mut self.refresh);
        Ok(answer.body.len())
    }
}
