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
use serde_json::Value;
use tollgate::{
    clock::{Clock, SystemClock},
    delivery::{Message, OtpSender, SendError},
};

use crate::{
    html::page,
    sent::{Sent, list_messages},
};

const MOST: usize = 100;

/// The newest messages. Clones share them.
#[derive(Clone)]
pub(crate) struct Outbox {
    messages: Arc<Mutex<VecDeque<Sent>>>,
    clock: Arc<SystemClock>,
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
            page(&list_messages(messages.iter().rev()))
        } else {
            let codes = messages.iter().filter(|sent| !sent.code.is_empty());
            Json(codes.map(Sent::to_json).collect::<Value>()).into_response()
        };
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
        response
    }

    /// Keeps a message for the page.
    fn keep(&self, message: &Message) -> Sent {
        let now = self.clock.unix(self.clock.now());
        let sent = Sent {
            id: message.id().to_owned(),
            channel: message.channel().as_str(),
            to: message.to().to_owned(),
            code: message.code().to_owned(),
            text: message.text(now),
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
        let Sent { channel, to, code, text, .. } = self.keep(message);
        let shown = if code.is_empty() { text } else { code };
        // stdout can be closed
        let _ = writeln!(io::stdout(), "{channel} to {to}: {shown}");
        Ok(())
    }
}
