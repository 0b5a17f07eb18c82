use std::fmt;

/// The way that a one-time code takes to its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Channel {
    /// A text message to a phone.
    Sms,
    /// A letter to a mailbox.
    Email,
    /// A WhatsApp message to a phone.
    Whatsapp,
}

impl Channel {
    /// Every channel.
    pub const ALL: &'static [Self] = &[Self::Sms, Self::Email, Self::Whatsapp];

    /// A stable name: the method of the login interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sms => "sms",
            Self::Email => "email",
            Self::Whatsapp => "whatsapp",
        }
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
