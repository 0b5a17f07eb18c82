//! A browser with its own connection to a server.

use std::io;

use crate::{
    login::{Ask, Browser},
    wire::Connection,
};

pub struct RemoteBrowser {
    pub connection: Connection,
    pub browser: Browser,
}

/// A response.
pub struct Answer {
    pub status: u16,
    pub location: String,
    pub body: String,
}

impl RemoteBrowser {
    pub fn new(address: &str) -> io::Result<Self> {
        Ok(Self { connection: Connection::new(address)?, browser: Browser::default() })
    }

    /// Sends a request like a browser, and stores the cookies of the response.
    pub fn ask(&mut self, ask: &Ask) -> io::Result<Answer> {
        self.send(ask)?;
        self.answer()
    }

    /// Sends a request without waiting for the response.
    pub fn send(&mut self, ask: &Ask) -> io::Result<()> {
        let (method, body) = if let Some(body) = &ask.body { ("POST", body.as_str()) } else { ("GET", "") };
        let mut request = format!("{method} {} HTTP/1.1\r\nhost: auth.example\r\naccept: */*\r\n", ask.target);
        let cookies = self.browser.cookies();
        // the application calls the token endpoint, not the browser
        if !cookies.is_empty() && ask.target != "/token" {
            request.push_str(&format!("cookie: {cookies}\r\n"));
        }
        if ask.body.is_some() {
            request.push_str(&format!("content-type: {}\r\ncontent-length: {}\r\n", ask.content_type, body.len()));
        }
        self.connection.send(format!("{request}\r\n{body}").as_bytes())
    }

    pub fn answer(&mut self) -> io::Result<Answer> {
        let (head, body) = self.connection.receive()?;
        let (head, body) = (String::from_utf8_lossy(head), String::from_utf8_lossy(body).into_owned());
        let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        let mut location = String::new();
        for (name, value) in head.lines().filter_map(|line| line.split_once(": ")) {
            if name.eq_ignore_ascii_case("set-cookie") {
                self.browser.keep(value);
            } else if name.eq_ignore_ascii_case("location") {
                value.clone_into(&mut location);
            }
        }
        Ok(Answer { status, location, body })
    }
}

impl Answer {
    /// Returns a string member of the JSON object in the body.
    pub fn member(&self, name: &str) -> Option<&str> {
        let (_, after) = self.body.split_once(&format!(r#""{name}":""#))?;
        after.split('"').next()
    }

    pub fn wrong(&self, what: &str) -> io::Error {
        io::Error::other(format!("{what}: {} {} {}", self.status, self.location, self.body))
    }
}
