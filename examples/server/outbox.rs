//! The demo's messages. It prints them to stdout and shows them to everyone at `/demo/outbox`: browsers get a page, programs the
//! codes as JSON. A real server sends them with `delivery::Smtp`, `delivery::Webhook` or its own sender.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Json,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tollgate::{
    clock::{Clock, SystemClock},
    delivery::{Message, OtpSender, SendError, Wording},
};

use crate::html::{escape, page};

const MOST: usize = 100;

/// The newest messages. Clones share them.
#[derive(Clone)]
pub(crate) struct Outbox {
    messages: Arc<Mutex<VecDeque<Sent>>>,
    clock: Arc<SystemClock>,
}

#[derive(Clone)]
struct Sent {
    id: String,
    channel: &'static str,
    to: String,
    /// Empty if this is a notice.
    code: String,
    text: String,
    /// When it was sent, in Unix milliseconds.
    at: u64,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self { messages: Arc::default(), clock: Arc::new(SystemClock::new()) }
    }

    /// Returns the page, or the codes as JSON, newest last.
    pub(crate) fn respond(&self, headers: &HeaderMap) -> Response {
        let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut response = if accept.contains("text/html") {
            page(&body(messages.iter().rev()))
        } else {
            let codes = messages.iter().filter(|sent| !sent.code.is_empty());
            Json(codes.map(Sent::to_json).collect::<Value>()).into_response()
        };
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
        response
    }

    /// Keeps a message and prints it. Returns its place among the others.
    fn keep(&self, message: &Message) -> Sent {
        let now = self.clock.unix(self.clock.now());
        let sent = Sent {
            id: message.id().to_owned(),
            channel: message.channel().as_str(),
            to: message.to().to_owned(),
            code: message.code().to_owned(),
            text: Wording::new().text_of(message, now),
            at: now.as_millis(),
        };
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() == MOST {
            messages.pop_front();
        }
        messages.push_back(sent.clone());
        sent
    }
}

impl OtpSender for Outbox {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        let Sent { channel, to, code, .. } = self.keep(message);
        // stdout can be closed
        let _ = writeln!(io::stdout(), "{channel} to {to}: {code}");
        Ok(())
    }

    async fn send_notice(&self, message: &Message) -> Result<(), SendError> {
        let Sent { channel, to, text, .. } = self.keep(message);
        let _ = writeln!(io::stdout(), "{channel} to {to}: {text}");
        Ok(())
    }

    async fn send_link(&self, message: &Message) -> Result<(), SendError> {
        self.send_notice(message).await
    }
}

impl Sent {
    fn to_json(&self) -> Value {
        json!({ "channel": self.channel, "to": self.to, "code": self.code, "at": self.at })
    }

    /// Returns the entry of the page. `outbox.js` copies the code and shows the time.
    fn to_html(&self) -> String {
        let Self { id, channel, at, .. } = self;
        let kind = match *channel {
            "sms" => "Text message",
            "whatsapp" => "WhatsApp",
            _ => "E-mail",
        };
        let (to, text, code) = (escape(&self.to), escape(&self.text), escape(&self.code));
        let button = match code.split_at_checked(3) {
            Some((first, rest)) if !code.is_empty() => format!(
                "<button class=\"code\" data-code=\"{code}\"><b>{first} {rest}</b> <span>Copy</span></button>\n"
            ),
            _ => String::new(),
        };
        format!(
            "<li id=\"{id}\">\n<p class=\"note\">{kind} to <strong>{to}</strong> <time data-at=\"{at}\"></time></p>\n{button}<p>{text}</p>\n</li>\n"
        )
    }
}

fn body<'a>(newest_first: impl Iterator<Item = &'a Sent>) -> String {
    let list: String = newest_first.map(Sent::to_html).collect();
    format!(
        r#"<h1>Messages</h1>
<p class="lead">What the demo would send to phones and mailboxes, newest first. Keep this page open next to your login: it shows a new
message at once, and copies its code with one click.
<p id="copied" class="note" role="status"></p>
<ol id="messages" class="messages">
{list}</ol>
<p id="none" class="card">No messages yet. <a href="/demo/login/demo-web" target="_blank" rel="opener">Log in</a> as ada@example.com and choose a
code, and it arrives here.</p>
<p class="note">Programs get the codes as JSON: <code>curl -s <span id="here">/demo/outbox</span></code>
<script src="/demo/outbox.js" type="module"></script>"#
    )
}
