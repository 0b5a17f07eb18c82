use crate::util::fmt::named_enum;

named_enum! {
    /// The channel of a one-time code.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    pub enum Channel {
        /// A text message to a phone.
        Sms = "sms",
        /// An e-mail.
        Email = "email",
        /// A WhatsApp message to a phone.
        Whatsapp = "whatsapp",
    }

    /// Returns a stable name, which is the method name of the login interface.
    pub fn as_str;
    /// All channels.
    pub const ALL;
}

crate::util::fmt::display!(Channel, |own| own.as_str());
