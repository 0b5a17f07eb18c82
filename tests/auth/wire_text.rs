//! Writes a complete response as text, to compare it with the expected text.

use crate::world::{Answer, query};

/// The headers of every response.
const COMMON: &[&str] = &[
    "cache-control: no-store",
    "cross-origin-opener-policy: same-origin",
    "referrer-policy: no-referrer",
    "x-content-type-options: nosniff",
    "x-frame-options: DENY",
];
const BARE: &str =
    "content-security-policy: default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const BUDGET: &[&str] = &["x-ratelimit: ", "x-ratelimit-limit: ", "x-ratelimit-remaining: ", "x-ratelimit-reset: "];

impl Answer {
    /// Writes the status, the headers sorted by name, and the body. Placeholders replace everything that differs
    /// between runs.
    pub(crate) fn whole(&self) -> String {
        let (lines, body) = (self.lines(), &self.text);
        named(&format!("{}\n{}\n\n{body}", self.status.as_u16(), lines.join("\n")))
    }

    /// Writes the response without the headers that all responses share. Asserts that it has them.
    pub(crate) fn own(&self) -> String {
        let mut lines = self.lines();
        for common in COMMON {
            assert!(take(&mut lines, |line| line == *common), "no {common}: {self:?}");
        }
        // what a secret asks about a token of no tenant is charged to no tenant
        for common in BUDGET.iter().filter(|_| self.text != r#"{"active":false}"#) {
            assert!(take(&mut lines, |line| line.starts_with(common)), "no {common}: {self:?}");
        }
        let is_page = self.header("content-type").starts_with("text/html");
        assert!(is_page || take(&mut lines, |line| line == BARE), "no {BARE}: {self:?}");
        let head: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let body = if self.text.is_empty() { String::new() } else { format!("\n{}\n", self.text.trim_end()) };
        named(&format!("{}\n{head}{body}", self.status.as_u16()))
    }

    fn lines(&self) -> Vec<String> {
        let pairs = self.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        let mut lines: Vec<String> = pairs.collect();
        // headers with the same name keep their order
        lines.sort_by_key(|line| line.split(':').next().unwrap().to_owned());
        lines
    }
}

fn take(lines: &mut Vec<String>, is_it: impl Fn(&str) -> bool) -> bool {
    let found = lines.iter().position(|line| is_it(line));
    found.map(|at| lines.remove(at)).is_some()
}

fn named(text: &str) -> String {
    let mut text = text.to_owned();
    for client in ["web", "mfa", "native", "other"] {
        text = text.replace(&query(client), &format!("<query of {client}>"));
    }
    let cookies = after(&text, "__Host-auth_session_", |found| match found.split_once('=') {
        Some((_, "")) => "<id>=".to_owned(),
        Some(_) => "<id>=<secret>".to_owned(),
        None => found.to_owned(),
    });
    let sessions = after(&cookies, "__Host-session_giszrYfB=", |_| "<secret>".to_owned());
    let sessions = after(&sessions, "__Host-auth_device=", |_| "<device>".to_owned());
    let ids = after(&sessions, "\"session_id\":\"", |_| "<id>".to_owned());
    let ids = after(&ids, "\"contact_id\":\"", |_| "<contact>".to_owned());
    let codes = after(&ids, "?code=", |code| {
        assert_eq!(code.len(), 43, "256 bits");
        "<code>".to_owned()
    });
    let left = after(&codes, "x-ratelimit-remaining: ", |_| "<remaining>".to_owned());
    after(&left, "x-ratelimit-reset: ", |_| "<reset>".to_owned())
}

/// Replaces the text after each `mark`.
pub(crate) fn after(text: &str, mark: &str, other: impl Fn(&str) -> String) -> String {
    let mut parts = text.split(mark);
    let mut written = parts.next().unwrap().to_owned();
    for part in parts {
        let end = part.find([';', '"', '&', '\n', ' ']).unwrap_or(part.len());
        written.push_str(mark);
        written.push_str(&other(&part[..end]));
        written.push_str(&part[end..]);
    }
    written
}
