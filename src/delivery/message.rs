use std::{fmt, sync::Arc};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

use super::channel::Channel;
use crate::{tenant::Tenant, util::clock::UnixTime};

/// One code on its way to one address.
///
/// Its `Debug` shows neither the code nor the address, and the memory of the
/// code is wiped once the last clone is dropped. Clones are the same message.
#[derive(Clone)]
pub struct Message(Arc<Parts>);

struct Parts {
    id: String,
    channel: Channel,
    tenant: Tenant,
    to: String,
    code: Zeroizing<String>,
    expires_at: UnixTime,
}

impl Message {
    /// A message with an id of its own.
    ///
    /// # Panics
    ///
    /// If the operating system has no random bytes, as
    /// [`Secret::generate`](crate::Secret::generate) does.
    #[expect(clippy::expect_used, reason = "no input reaches it, and there is no safe way to go on")]
    pub fn new(channel: Channel, tenant: Tenant, to: &str, code: &str, expires_at: UnixTime) -> Self {
        let mut random = [0; 16];
        getrandom::fill(&mut random).expect("the operating system gives random bytes");
        Self(Arc::new(Parts {
            id: URL_SAFE_NO_PAD.encode(random),
            channel,
            tenant,
            to: to.to_owned(),
            code: Zeroizing::new(code.to_owned()),
            expires_at,
        }))
    }

    /// 128 random bits as 22 characters of base64url: the same at each attempt
    /// to send it, so that a receiver can drop what it has already.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The way that it takes.
    pub fn channel(&self) -> Channel {
        self.0.channel
    }

    /// Whose user it is for.
    pub fn tenant(&self) -> &Tenant {
        &self.0.tenant
    }

    /// The address: a phone number or a mailbox, as the account has it.
    pub fn to(&self) -> &str {
        &self.0.to
    }

    /// The code. It is a secret: it belongs in no log.
    pub fn code(&self) -> &str {
        &self.0.code
    }

    /// When the code ends. Nothing is sent from then on.
    pub fn expires_at(&self) -> UnixTime {
        self.0.expires_at
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id())
            .field("channel", &self.channel())
            .field("tenant", &self.tenant())
            .field("expires_at", &self.expires_at())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        let tenant = "acme".parse().unwrap();
        Message::new(Channel::Sms, tenant, "+15550100", "482913", UnixTime::from_secs(300))
    }

    #[test]
    fn its_debug_shows_neither_the_code_nor_the_address() {
        let shown = format!("{:?} {:#?}", message(), message());
        assert!(shown.contains("acme") && !shown.contains("482913") && !shown.contains("5550100"), "{shown}");
    }

    #[test]
    fn each_message_has_an_id_of_its_own_and_its_clones_the_same() {
        let (one, other) = (message(), message());
        assert_ne!(one.id(), other.id());
        assert_eq!(one.id(), one.clone().id());
        assert_eq!(URL_SAFE_NO_PAD.decode(one.id()).unwrap().len(), 16);
    }
}
