/// The channel of a one-time code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Channel {
    /// A text message to a phone.
    Sms,
    /// An e-mail.
    Email,
    /// A WhatsApp message to a phone.
    Whatsapp,
}

impl Channel {
    /// All channels.
    pub const ALL: &'static [Self] = &[Self::Sms, Self::Email, Self::Whatsapp];

    /// Returns a stable name, which is the method name of the login interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sms => "sms",
            Self::Email => "email",
            Self::Whatsapp => "whatsapp",
        }
    }
}

crate::util::fmt::display!(Channel, |own| own.as_str());
