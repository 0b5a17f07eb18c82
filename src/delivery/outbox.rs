use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use super::{error::SendError, message::Message, sender::OtpSender};
use crate::util::{error::ConfigError, lock::lock};

/// Keeps the newest messages in memory instead of sending them. For tests and demos.
///
/// **Never use it in production**: anyone who can read it can sign in as any user.
///
/// Clones share the same outbox: give one to the login service and read the other.
#[derive(Clone)]
pub struct Outbox {
    messages: Arc<Mutex<VecDeque<Message>>>,
    capacity: usize,
}

impl Outbox {
    /// Creates an outbox that keeps the newest 100 messages.
    pub fn new() -> Self {
        Self { messages: Arc::default(), capacity: 100 }
    }

    /// Creates an outbox that keeps the newest `capacity` messages.
    ///
    /// # Errors
    ///
    /// Returns an error if `capacity` is zero.
    pub fn with_capacity(capacity: usize) -> Result<Self, ConfigError> {
        ConfigError::check_range("outbox capacity", capacity, 1.., "must be at least 1")?;
        Ok(Self { capacity, ..Self::new() })
    }

    /// Returns the messages, newest last.
    pub fn messages(&self) -> Vec<Message> {
        lock(&self.messages).iter().cloned().collect()
    }
}

crate::util::builder::default_by_new!(Outbox);

impl OtpSender for Outbox {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        let mut messages = lock(&self.messages);
        if messages.len() >= self.capacity {
            messages.pop_front();
        }
        messages.push_back(message.clone());
        Ok(())
    }
}

crate::util::fmt::debug_fields!(Outbox, |own| messages: lock(&own.messages).len(), capacity: own.capacity);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{delivery::channel::Channel, util::clock::UnixTime};

    #[tokio::test]
    async fn clones_share_the_newest_messages_in_order() {
        let outbox = Outbox::with_capacity(2).unwrap();
        let (sender, tenant) = (Arc::new(outbox.clone()), "acme".parse::<crate::Tenant>().unwrap());
        for code in ["1", "2", "3"] {
            let message = Message::new(Channel::Email, tenant.clone(), "a@b.c", code, UnixTime::default());
            sender.send(&message).await.unwrap();
        }
        assert_eq!(outbox.messages().iter().map(Message::code).collect::<Vec<_>>(), ["2", "3"]);
        assert!(Outbox::with_capacity(0).is_err());
    }
}
