use std::sync::Arc;

use zeroize::Zeroizing;

use super::{channel::Channel, link::Link, notice::Notice};
use crate::{
    tenant::Tenant,
    util::{builder::setters, clock::UnixTime, public_id::PublicId},
    words::{Language, Words},
};

/// A one-time code for one address, or a notice or a link without a code.
///
/// `Debug` shows neither the code, the link nor the address. The memory of the code is wiped when the last
/// clone is dropped. Clones share the same message.
#[derive(Clone)]
pub struct Message {
    parts: Arc<Parts>,
    language: Language,
    /// The words of all languages.
    pub(super) words: Words,
}

struct Parts {
    id: String,
    channel: Channel,
    tenant: Tenant,
    to: String,
    content: Content,
    expires_at: UnixTime,
}

enum Content {
    Code(Zeroizing<String>),
    Notice(Notice),
    Link(Link),
}

impl Message {
    /// Creates a message with a one-time code and a new id.
    ///
    /// # Panics
    ///
    /// Panics if the random generator of the operating system fails, like
    /// [`Secret::generate`](crate::Secret::generate).
    pub fn new(channel: Channel, tenant: Tenant, to: &str, code: &str, expires_at: UnixTime) -> Self {
        Self::from_content(channel, tenant, to, Content::Code(Zeroizing::new(code.to_owned())), expires_at)
    }

    /// Creates a message that notifies a user of a change, without a code and with a new id.
    ///
    /// # Panics
    ///
    /// Panics like [`new`](Self::new).
    pub fn of_notice(channel: Channel, tenant: Tenant, to: &str, notice: Notice, expires_at: UnixTime) -> Self {
        Self::from_content(channel, tenant, to, Content::Notice(notice), expires_at)
    }

    /// Creates a message with a link and a new id.
    ///
    /// # Panics
    ///
    /// Panics like [`new`](Self::new).
    pub fn of_link(channel: Channel, tenant: Tenant, to: &str, link: Link, expires_at: UnixTime) -> Self {
        Self::from_content(channel, tenant, to, Content::Link(link), expires_at)
    }

    fn from_content(channel: Channel, tenant: Tenant, to: &str, content: Content, expires_at: UnixTime) -> Self {
        let id = PublicId::random().to_string();
        let parts = Parts { id, channel, tenant, to: to.to_owned(), content, expires_at };
        Self { parts: Arc::new(parts), language: Language::English, words: Words::built_in() }
    }

    setters! {
        /// Sets the language of the user. Defaults to English.
        pub fn in_language(language: Language) { language: language }

        /// Sets the words of all languages.
        pub(crate) fn with_words(words: Words) { words: words }
    }

    /// Returns the message id: 128 random bits as 22 characters of base64url. It is the same for
    /// all attempts, so that receivers can discard duplicates.
    pub fn id(&self) -> &str {
        &self.parts.id
    }

    /// Returns the channel.
    pub fn channel(&self) -> Channel {
        self.parts.channel
    }

    /// Returns the tenant of the user.
    pub fn tenant(&self) -> &Tenant {
        &self.parts.tenant
    }

    /// Returns the language of the user.
    pub fn language(&self) -> Language {
        self.language
    }

    /// Returns the phone number or e-mail address, as stored in the account.
    pub fn to(&self) -> &str {
        &self.parts.to
    }

    /// Returns the code. It is a secret, so don't log it. Empty for a [`notice`](Self::notice) or a [`link`](Self::link).
    pub fn code(&self) -> &str {
        match &self.parts.content {
            Content::Code(code) => code,
            Content::Notice(_) | Content::Link(_) => "",
        }
    }

    /// Returns the notice, if this message is about a change.
    pub fn notice(&self) -> Option<&Notice> {
        match &self.parts.content {
            Content::Code(_) | Content::Link(_) => None,
            Content::Notice(notice) => Some(notice),
        }
    }

    /// Returns the link, if this message has one.
    pub fn link(&self) -> Option<&Link> {
        match &self.parts.content {
            Content::Code(_) | Content::Notice(_) => None,
            Content::Link(link) => Some(link),
        }
    }

    /// Returns when the code, the notice or the link expires. Expired messages are not sent.
    pub fn expires_at(&self) -> UnixTime {
        self.parts.expires_at
    }
}

crate::util::fmt::debug_fields!(Message, |own|
    id: own.id(),
    channel: own.channel(),
    tenant: own.tenant(),
    language: own.language(),
    expires_at: own.expires_at()
);

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        let tenant = "acme".parse().unwrap();
        Message::new(Channel::Sms, tenant, "+15550100", "482913", UnixTime::from_secs(300))
    }

    #[test]
    fn debug_hides_code_and_address() {
        let shown = format!("{:?} {:#?}", message(), message());
        assert!(shown.contains("acme") && !shown.contains("482913") && !shown.contains("5550100"), "{shown}");
    }

    #[test]
    fn messages_have_unique_ids_and_clones_share_them() {
        let (one, other) = (message(), message());
        assert_ne!(one.id(), other.id());
        assert_eq!(one.id(), one.clone().id());
        assert_eq!(one.id().len(), 22);
    }
}
