use crate::util::{clock::UnixTime, fmt::named_enum};

named_enum! {
    /// The kind of change in how a user signs in.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum NoticeKind {
        /// A passkey was added.
        PasskeyAdded = "passkey_added",
        /// A passkey was removed.
        PasskeyRemoved = "passkey_removed",
        /// An authenticator app was set up, perhaps in place of another.
        TotpAdded = "totp_added",
        /// The authenticator app was removed.
        TotpRemoved = "totp_removed",
        /// New recovery codes replaced the old ones.
        RecoveryCodesRenewed = "recovery_codes_renewed",
        /// An account at another identity provider was linked.
        LinkAdded = "link_added",
        /// An account at another identity provider was unlinked.
        LinkRemoved = "link_removed",
        /// The password was changed.
        PasswordChanged = "password_changed",
        /// An e-mail address was added, or replaced another one.
        EmailChanged = "email_changed",
        /// A phone number was added, or replaced another one.
        PhoneChanged = "phone_changed",
        /// The account was deleted.
        AccountDeleted = "account_deleted",
        /// A new password was set in place of a forgotten one.
        PasswordReset = "password_reset",
        /// The application removed all passkeys, authenticator apps, recovery codes and linked accounts.
        FactorsReset = "factors_reset",
    }

    /// Returns a stable name, such as `passkey_added`.
    pub fn as_str;
    #[cfg(test)]
    pub(super) const ALL;
}

crate::util::fmt::display!(NoticeKind, |own| own.as_str());

/// A notice to a user: what changed in how they sign in, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    kind: NoticeKind,
    at: UnixTime,
}

impl Notice {
    /// Creates a notice of a change at this time.
    pub fn new(kind: NoticeKind, at: UnixTime) -> Self {
        Self { kind, at }
    }

    /// Returns what changed.
    pub fn kind(&self) -> NoticeKind {
        self.kind
    }

    /// Returns when it changed.
    pub fn changed_at(&self) -> UnixTime {
        self.at
    }
}

/// Returns the year, month, day, hour and minute of a time in UTC, as text of fixed lengths.
pub(super) fn utc(time: UnixTime) -> [(&'static str, String); 5] {
    let (minutes, days) = (time.as_secs() / 60 % (24 * 60), time.as_secs() / 86_400);
    // years begin in March, so that the leap day is the last (the algorithm of Howard Hinnant)
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let two = |number| format!("{number:02}");
    let (hour, minute) = (two(minutes / 60), two(minutes % 60));
    [("year", year.to_string()), ("month", two(month)), ("day", two(day)), ("hour", hour), ("minute", minute)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (951_868_800, "2000-03-01 00:00 UTC"),
            (1_000_000_000, "2001-09-09 01:46 UTC"),
            (1_735_689_599, "2024-12-31 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            let [year, month, day, hour, minute] = utc(UnixTime::from_secs(seconds)).map(|(_, text)| text);
            assert_eq!(format!("{year}-{month}-{day} {hour}:{minute} UTC"), text);
        }
    }
}
