//! The kinds of events. Each module declares those that it records.

/// The kind of an [`Event`](super::Event). Logs and queries use the name at the beginning of each description.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventKind {
    name: &'static str,
    is_of_users: bool,
}

/// Declares kinds of events as constants of [`EventKind`], and lists them in `EVENT_KINDS`.
/// [`EventKind::all`] joins the lists of all modules.
macro_rules! event_kinds {
    ($(
        #[doc = $summary:literal]
        $(#[doc = $more:literal])*
        $kind:ident = $name:literal $((of_users: $of_users:literal))?,
    )+) => {
        #[allow(non_upper_case_globals, reason = "they are used like the variants of an enum")]
        impl $crate::event::kind::EventKind {
            $(
                #[doc = concat!("`", $name, "`:", $summary)]
                $(#[doc = $more])*
                pub const $kind: Self = Self::new($name, false $(|| $of_users)?);
            )+
        }

        pub(crate) const EVENT_KINDS: &[$crate::event::kind::EventKind] =
            &[$($crate::event::kind::EventKind::$kind),+];
    };
}
pub(crate) use event_kinds;

event_kinds! {
    /// a request with an unknown API key, or another unknown credential, was rejected. A request for the event log
    /// without a valid key counts too, with the reason `event_log`.
    CredentialUnknown = "credential_unknown",
}

impl EventKind {
    pub(crate) const fn new(name: &'static str, is_of_users: bool) -> Self {
        Self { name, is_of_users }
    }

    /// Returns whether only users who have proved who they are can cause it. Their tenants are not made up, so the log shows
    /// the first of each second even in a flood.
    pub(super) const fn is_of_users(self) -> bool {
        self.is_of_users
    }

    /// Returns a stable name, which is used in the log and in queries.
    pub const fn as_str(self) -> &'static str {
        self.name
    }

    /// Returns the kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|kind| kind.name == name)
    }
}

crate::util::fmt::display!(EventKind, |own| own.name);

crate::util::fmt::debug_text!(EventKind, |own| format_args!("{own}"));
