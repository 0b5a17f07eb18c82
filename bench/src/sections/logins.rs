//! Complete logins per second of a real server on one core.

use std::{
    collections::HashMap,
    io::{self, BufRead, Write},
    path::Path,
    sync::{
        Condvar, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tollgate::{
    Passwords,
    delivery::{Message, OtpSender, SendError},
    store::Memory,
};

use crate::{
    login::{self, Ask, Browser, PASSWORD, Setup, identifier, phone, username},
    machine,
    report::unless_quick,
    stats::{Table, quantile},
    wire::{Connection, DEADLINE, Server},
};

/// A phone gets one code in thirty seconds, so each login by code is for another user.
const USERS: u64 = 60_000;
/// Each user has one session row. No run logs in more users by password.
const USERS_BY_PASSWORD: u64 = 4_000;

/// How long each row is measured.
fn time() -> Duration {
    Duration::from_secs(unless_quick(8, 1))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Password,
    Code,
}

pub fn run(one: &Path) {
    println!("### Logins per second of a hyper server on one core\n");
    let pinned = machine::cores() > 1;
    println!(
        "HTTP/1, one process on one core{}. Each browser has a kept-alive connection and logs in one user \
         after another: start, the steps, complete, and `/authorize`, which returns the code. One step; \
         `Memory`, `StoredUsers`, argon2id at the default cost, a sender that responds at once, and no limits \
         for the tenant and the address. Everything else has its defaults. {} s each, or {USERS} logins. \
         Times are in milliseconds, as the browser sees them. `processor` is the time that all threads of the \
         server ran per login.\n",
        if pinned { " and the browsers on the other" } else { ", **with the browsers**" },
        time().as_secs(),
    );
    let mut all = Table::new([
        "by",
        "browsers",
        "logins a second",
        "requests a second",
        "login, p50",
        "p99",
        "processor, ms a login",
    ]);
    let mut each = Table::new(["by", "browsers", "request", "p50", "p99"]);
    for (by, name) in [(By::Code, "sms"), (By::Password, "password")] {
        for browsers in [1, 16] {
            let run = load(one, by, browsers).unwrap_or_else(|error| panic!("{name}, {browsers} browsers: {error}"));
            let logins = run.logins.len() as f64;
            let requests: usize = run.requests.values().map(Vec::len).sum();
            all.row([
                name.to_owned(),
                browsers.to_string(),
                format!("{:.0}", logins / run.took.as_secs_f64()),
                format!("{:.0}", requests as f64 / run.took.as_secs_f64()),
                format!("{:.3}", quantile(&run.logins, 0.5)),
                format!("{:.3}", quantile(&run.logins, 0.99)),
                format!("{:.3}", run.ran.as_secs_f64() * 1e3 / logins),
            ]);
            for request in ["start", "authenticate", "verify-otp", "complete", "authorize"] {
                if let Some(times) = run.requests.get(request) {
                    each.row([
                        name.to_owned(),
                        browsers.to_string(),
                        request.to_owned(),
                        format!("{:.3}", quantile(times, 0.5)),
                        format!("{:.3}", quantile(times, 0.99)),
                    ]);
                }
            }
        }
    }
    all.print();
    each.print();
}

/// The measurements of all browsers, in milliseconds.
#[derive(Default)]
struct Seen {
    logins: Vec<f64>,
    requests: HashMap<&'static str, Vec<f64>>,
    took: Duration,
    ran: Duration,
}

/// The codes that were sent.
#[derive(Default)]
struct Codes {
    by_phone: Mutex<HashMap<String, String>>,
    came: Condvar,
}

impl Codes {
    fn put(&self, line: &str) {
        if let Some((phone, code)) = line.split_once(' ') {
            self.by_phone.lock().expect("no thread panics").insert(phone.to_owned(), code.to_owned());
            self.came.notify_all();
        }
    }

    fn take(&self, phone: &str) -> io::Result<String> {
        let mut codes = self.by_phone.lock().expect("no thread panics");
        loop {
            if let Some(code) = codes.remove(phone) {
                return Ok(code);
            }
            let (guard, waited) = self.came.wait_timeout(codes, DEADLINE).expect("no thread panics");
            codes = guard;
            if waited.timed_out() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}

fn load(one: &Path, by: By, browsers: usize) -> io::Result<Seen> {
    let users = if by == By::Code { USERS } else { USERS_BY_PASSWORD };
    let mut server = Server::start(one, &["logins", &users.to_string()])?;
    machine::pin(machine::cores() - 1);
    let codes = Codes::default();
    let output = server.output.take();
    let seen = thread::scope(|scope| {
        scope.spawn(|| {
            for line in output.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
                codes.put(&line);
            }
        });
        let seen = browse(&server, by, browsers, users, &codes);
        // wakes browsers that wait for further codes
        server.end();
        seen
    });
    machine::unpin();
    seen
}

fn browse(server: &Server, by: By, browsers: usize, users: u64, codes: &Codes) -> io::Result<Seen> {
    let next = AtomicU64::new(0);
    let ran_before = machine::ran_together(server.process.id());
    let began = Instant::now();
    let one = || {
        let mut connection = BrowserConnection { connection: Connection::new(&server.address)?, seen: Seen::default() };
        while began.elapsed() < time() {
            let user = next.fetch_add(1, Relaxed);
            if by == By::Code && user >= users {
                break;
            }
            connection.log_in(by, user % users, codes)?;
        }
        io::Result::Ok(connection.seen)
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..browsers).map(|_| scope.spawn(one)).collect();
        let mut seen = Seen::default();
        for one in all {
            let one = one.join().map_err(|_| io::Error::other("a browser failed"))??;
            seen.logins.extend(one.logins);
            for (request, times) in one.requests {
                seen.requests.entry(request).or_default().extend(times);
            }
        }
        seen.took = began.elapsed();
        seen.ran = machine::ran_together(server.process.id()) - ran_before;
        Ok(seen)
    })
}

struct BrowserConnection {
    connection: Connection,
    seen: Seen,
}

impl BrowserConnection {
    fn log_in(&mut self, by: By, user: u64, codes: &Codes) -> io::Result<()> {
        let began = Instant::now();
        let mut browser = Browser::default();
        let ask = browser.start(&identifier(user));
        let started = self.send(&mut browser, "start", &ask, 200)?;
        browser.began(&started);
        match by {
            By::Password => {
                let ask = browser.password(&username(user), PASSWORD);
                self.send(&mut browser, "authenticate", &ask, 200)?;
            }
            By::Code => {
                let ask = browser.code(&phone(user));
                self.send(&mut browser, "authenticate", &ask, 200)?;
                let ask = browser.verify(&codes.take(&phone(user))?);
                self.send(&mut browser, "verify-otp", &ask, 200)?;
            }
        }
        let ask = browser.complete();
        self.send(&mut browser, "complete", &ask, 200)?;
        let ask = browser.authorize();
        let head = self.send(&mut browser, "authorize", &ask, 302)?;
        if !head.contains("callback?code=") {
            return Err(io::Error::other("there was no code in the redirect"));
        }
        self.seen.logins.push(began.elapsed().as_secs_f64() * 1e3);
        Ok(())
    }

    /// Sends a request and stores the cookies of the response. Returns the body, or the head if the body is empty.
    fn send(&mut self, browser: &mut Browser, name: &'static str, ask: &Ask, status: u16) -> io::Result<String> {
        let cookies = browser.cookies();
        let mut request = match ask.body {
            Some(_) => format!("POST {} HTTP/1.1\r\ncontent-type: application/json\r\n", ask.target),
            None => format!("GET {} HTTP/1.1\r\n", ask.target),
        };
        if !cookies.is_empty() {
            request.push_str(&format!("cookie: {cookies}\r\n"));
        }
        let body = ask.body.as_deref().unwrap_or_default();
        request.push_str(&format!("host: auth.example\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
        let began = Instant::now();
        self.connection.send(request.as_bytes())?;
        let (head, body) = self.connection.receive()?;
        let took = began.elapsed();
        self.seen.requests.entry(name).or_default().push(took.as_secs_f64() * 1e3);
        let (head, body) = (String::from_utf8_lossy(head), String::from_utf8_lossy(body));
        if !head.starts_with(&format!("HTTP/1.1 {status}")) {
            return Err(io::Error::other(format!("{name}: {head}{body}")));
        }
        for line in head.lines() {
            if let Some(set) = line.strip_prefix("set-cookie: ") {
                browser.keep(set);
            }
        }
        Ok(if body.is_empty() { head.into_owned() } else { body.into_owned() })
    }
}

/// Prints the codes for the parent.
struct Printer;

impl OtpSender for Printer {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        let line = format!("{} {}\n", message.to(), message.code());
        // either the parent reads them, or it is gone
        let _ = io::stdout().lock().write_all(line.as_bytes());
        Ok(())
    }
}

/// Runs in the child: serves this many users.
pub fn serve(users: u64) {
    login::serve(async move {
        let setup = Setup { store: Memory::new().into(), users, passwords: Passwords::new() };
        setup.service(Printer).await
    });
}
