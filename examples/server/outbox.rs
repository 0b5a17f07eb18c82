//! The demo's one-time codes. It prints them to stdout and shows them to everyone at `/demo/outbox`. A real server sends
//! them with `delivery::Smtp`, `delivery::Webhook` or its own sender.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::{Value, json};
use tollgate::{
    clock::{Clock, SystemClock},
    delivery::{Message, OtpSender, SendError, Wording},
};

const MOST: usize = 100;

/// The newest codes. Clones share them.
#[derive(Clone)]
pub(crate) struct Outbox {
    messages: Arc<Mutex<VecDeque<Value>>>,
    clock: Arc<SystemClock>,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self { messages: Arc::default(), clock: Arc::new(SystemClock::new()) }
    }

    /// Returns the codes as JSON, newest last.
    pub(crate) fn list(&self) -> Value {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl OtpSender for Outbox {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        let (channel, to, code) = (message.channel().as_str(), message.to(), message.code());
        // stdout can be closed
        let _ = writeln!(io::stdout(), "{channel} to {to}: {code}");
        let at = self.clock.unix(self.clock.now()).as_millis();
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if messages.len() == MOST {
            messages.pop_front();
        }
        messages.push_back(json!({ "channel": channel, "to": to, "code": code, "at": at }));
        Ok(())
    }

    async fn send_notice(&self, message: &Message) -> Result<(), SendError> {
        let text = Wording::new().text_of(message, self.clock.unix(self.clock.now()));
        let _ = writeln!(io::stdout(), "{} to {}: {text}", message.channel(), message.to());
        Ok(())
    }

    async fn send_link(&self, message: &Message) -> Result<(), SendError> {
        self.send_notice(message).await
    }
}
