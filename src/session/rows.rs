//! The stored rows: one per session, under its `sid`, and one per user, which lists
//! the user's sessions.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use super::identity::{Proof, UserId};
use crate::{
    store::{
        StoreError,
        compact::{Reader, RowPart, Writer, row_enum, row_struct, row_text, stored_row},
    },
    tenant::{Tenant, inline::InlineBytes},
    util::{clock::UnixTime, public_id::PublicId, secret::SecretDigest},
};

/// The table of the sessions.
pub(super) const SESSIONS: &str = "sessions";

/// How long a session is remembered after its end. What was issued from a session may live
/// up to a day after it. It is refused by looking at the row of the session, so the row
/// must outlive it.
pub(super) const KEPT_AFTER_END: Duration = Duration::from_secs(25 * 3600);

/// The maximum number of sessions that one user has at the same time.
pub(super) const MOST_SESSIONS: usize = 100;

/// The row of a session. `Ended` is final: nothing ever overwrites it.
#[derive(Clone, Debug)]
pub(crate) enum SessionRow {
    /// Behind a pointer at once, because moving it would take longer than reading it.
    Live(Arc<LiveSession>),
    Ended(Arc<Tenant>),
}

/// A session that was not ended. It may have expired.
#[derive(Clone, Debug)]
pub(crate) struct LiveSession {
    pub(super) tenant: Tenant,
    pub(super) user: UserId,
    /// The generation of the user when the sign-in began.
    pub(super) generation: u64,
    /// The digest of the current secret.
    pub(super) secret: SecretDigest,
    /// When the user authenticated, for sessions without proofs.
    pub(super) declared_auth_time: UnixTime,
    pub(super) times: SessionTimes,
    pub(super) details: LazyDetails,
}

/// The times that end a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionTimes {
    pub(super) created: UnixTime,
    /// The absolute end.
    pub(super) expires: UnixTime,
    pub(super) last_use: UnixTime,
    /// Whether the session survives idle time and a closed browser.
    pub(super) remembered: bool,
}

/// The part of a live session that few requests need.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionDetails {
    pub(super) proofs: Vec<Proof>,
    pub(super) acr: Option<Box<str>>,
    pub(super) amr: Vec<Box<str>>,
    /// The client at which the session began.
    pub(super) client: Option<Box<str>>,
    /// The browser and the system of the sign-in, as they named themselves. Never empty.
    pub(super) device: Option<Box<str>>,
}

/// [`SessionDetails`] that are decoded when they are first needed.
#[derive(Clone)]
pub(super) struct LazyDetails {
    /// A valid encoding, or empty if they were never encoded.
    encoded: InlineBytes<8>,
    decoded: OnceLock<Box<SessionDetails>>,
}

impl LazyDetails {
    #[expect(clippy::expect_used, reason = "the encoding was checked when it was read")]
    pub(super) fn get(&self) -> &SessionDetails {
        self.decoded.get_or_init(|| {
            let details = RowPart::read_part(&mut Reader::new(self.encoded.as_bytes()));
            Box::new(details.expect("the encoding is valid"))
        })
    }
}

impl From<SessionDetails> for LazyDetails {
    fn from(details: SessionDetails) -> Self {
        Self { encoded: InlineBytes::new(&[]), decoded: OnceLock::from(Box::new(details)) }
    }
}

impl fmt::Debug for LazyDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// The default lifetimes of sessions.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionLifetimes {
    pub(super) idle: Duration,
    pub(super) absolute: Duration,
}

impl SessionLifetimes {
    /// Returns the moment at which the session ends. If the operator has shortened a lifetime,
    /// that applies to existing sessions too.
    pub(super) fn end_of(&self, session: &SessionTimes) -> UnixTime {
        let SessionTimes { created, expires, last_use, remembered } = *session;
        if remembered {
            return expires;
        }
        expires.min(created + self.absolute).min(last_use + self.idle)
    }

    /// Returns until when the row of a live session is kept.
    pub(super) fn keep_until(&self, session: &SessionTimes) -> UnixTime {
        self.end_of(session) + KEPT_AFTER_END
    }
}

stored_row!(SessionRow, 5, "not the row of a session");
row_enum!(SessionRow { 2 => Ended(Arc<Tenant>), 3 => Live(Arc<LiveSession>) });
row_struct!(LiveSession { secret, generation, declared_auth_time, times, user, tenant, details });
row_struct!(SessionTimes { created, expires, last_use, remembered });
row_struct!(SessionDetails { acr, client, amr, proofs, device });
row_struct!(Proof { method, at, mark, elsewhere });
row_text! { UserId: as_str, |reader| UserId::restore(reader.sized_bytes()?); }

/// How the row of an ended session begins, and that of a live one.
pub(super) const ENDED: [u8; 2] = [5, 2];
pub(super) const LIVE: [u8; 2] = [5, 3];

/// The last part of a row. It is checked when the row is read, so it can be decoded later without an error.
impl RowPart for LazyDetails {
    fn write_part(&self, writer: &mut Writer) -> Result<(), StoreError> {
        self.get().write_part(writer)
    }

    fn read_part(reader: &mut Reader<'_>) -> Option<Self> {
        let encoded = InlineBytes::new(&[reader.rest()]);
        SessionDetails::check_part(reader)?;
        Some(Self { encoded, decoded: OnceLock::new() })
    }
}

/// The sessions of a user, oldest sign-in first.
///
/// Every live session is listed: a session is listed before it begins and removed after it
/// has ended. The list may also name sessions that have ended or never began.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionList(Vec<ListedSession>);

/// A session in the list of its user.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListedSession {
    pub(super) sid: PublicId,
    /// The absolute end. Never earlier than that of the session's row.
    pub(super) expires: UnixTime,
}

stored_row!(SessionList, 1, "not a list of sessions");
row_struct!(SessionList(sessions));
row_struct!(ListedSession { sid, expires });

impl SessionList {
    pub(super) fn iter(&self) -> impl Iterator<Item = &ListedSession> {
        self.0.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, sid: &PublicId) -> bool {
        self.0.iter().any(|listed| listed.sid == *sid)
    }

    /// Removes the sessions that have expired.
    pub(super) fn without_expired(mut self, now: UnixTime) -> Self {
        self.0.retain(|listed| now < listed.expires);
        self
    }

    /// Adds a session, or makes it the newest, and removes the oldest ones beyond the maximum.
    pub(super) fn with(mut self, session: ListedSession) -> Self {
        // it is not forgotten before the end that it had
        let before = self.0.extract_if(.., |listed| listed.sid == session.sid).map(|listed| listed.expires).max();
        self.0.push(ListedSession {
            expires: before.map_or(session.expires, |before| before.max(session.expires)),
            ..session
        });
        let beyond = self.0.len().saturating_sub(MOST_SESSIONS);
        self.0.drain(..beyond);
        self
    }

    /// Keeps only the sessions for which `keep` returns true.
    pub(super) fn only(mut self, keep: impl FnMut(&ListedSession) -> bool) -> Self {
        self.0.retain(keep);
        self
    }

    /// Returns the sessions that are missing in `other`.
    pub(super) fn missing_in(&self, other: &Self) -> Vec<ListedSession> {
        self.0.iter().filter(|listed| !other.contains(&listed.sid)).copied().collect()
    }

    /// Returns when the last session has expired, and at least `now`.
    pub(super) fn expires(&self, now: UnixTime) -> UnixTime {
        self.0.iter().map(|listed| listed.expires).fold(now, UnixTime::max)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, option, prelude::*};

    use super::*;
    use crate::{
        session::ended::{EndMark, EndedSessions},
        store::{
            AnyStore, Memory, StoreErrorKind, WriteOutcome,
            table::{Table, Value},
        },
        testing::{ManualClock, block_on},
    };

    fn visible(most: usize) -> impl Strategy<Value = Box<str>> {
        vec(b'!'..=b'~', 1..=most).prop_map(|text| String::from_utf8(text).unwrap().into_boxed_str())
    }

    fn rows() -> impl Strategy<Value = SessionRow> {
        let mark = option::of(any::<[u8; 32]>());
        let proof = (visible(64), any::<u64>(), mark, option::of(any::<u64>()));
        let proof = proof.prop_map(|(method, at, mark, elsewhere)| Proof { method, at, mark, elsewhere });
        let options = (option::of(visible(255)), option::of(visible(128)), option::of(visible(64)));
        let texts = ("[a-h][a-z~:]{0,127}", visible(255), options);
        let lists = (vec(visible(64), 0..=16), vec(proof, 0..=8));
        let numbers = (any::<[u64; 5]>(), any::<[u8; 32]>(), any::<bool>());
        (any::<bool>(), texts, lists, numbers).prop_map(
            |(live, (tenant, user, (acr, client, device)), (amr, proofs), (numbers, secret, remembered))| {
                let tenant = Tenant::parse(&tenant).unwrap();
                if !live {
                    return SessionRow::Ended(Arc::new(tenant));
                }
                let [declared_auth_time, created, expires, last_use] =
                    [0, 1, 2, 3].map(|at| UnixTime::from_nanos(numbers[at]));
                SessionRow::Live(Arc::new(LiveSession {
                    tenant,
                    user: UserId::parse(user).unwrap(),
                    generation: numbers[4],
                    secret: SecretDigest::from_bytes(secret),
                    declared_auth_time,
                    times: SessionTimes { created, expires, last_use, remembered },
                    details: SessionDetails { proofs, acr, amr, client, device }.into(),
                }))
            },
        )
    }

    proptest! {
        #[test]
        fn a_row_is_read_back_unchanged_and_no_part_of_it_is_accepted(row in rows(), cut: prop::sample::Index) {
            let bytes = row.encode_row().unwrap();
            let read = SessionRow::decode_row(&bytes).unwrap();
            prop_assert_eq!(format!("{read:?}"), format!("{row:?}"));
            prop_assert_eq!(read.encode_row().unwrap(), bytes.clone());
            prop_assert!(SessionRow::decode_row(&bytes[..cut.index(bytes.len())]).is_err());
            let mark = EndMark::decode_row(&bytes).unwrap();
            prop_assert_eq!(mark.has_ended, matches!(row, SessionRow::Ended(_)));
        }

        #[test]
        fn corrupt_rows_are_errors_and_each_row_has_one_encoding(
            row in rows(),
            kind in 0..8_u8,
            mut bytes in vec(any::<u8>(), 0..300),
            flips in vec(any::<(prop::sample::Index, u8)>(), 1..4),
        ) {
            bytes.insert(0, kind);
            let mut flipped = row.encode_row().unwrap();
            for (at, bits) in flips {
                let at = at.index(flipped.len());
                flipped[at] ^= bits;
            }
            for bytes in [bytes, flipped] {
                match SessionRow::decode_row(&bytes) {
                    Ok(row) => prop_assert_eq!(row.encode_row().unwrap(), bytes),
                    Err(error) => prop_assert_eq!(error.kind(), StoreErrorKind::Corrupt),
                }
            }
        }
    }

    fn live(proofs: Vec<Proof>) -> SessionRow {
        let [created, expires, last_use] = [UnixTime::default(); 3];
        SessionRow::Live(Arc::new(LiveSession {
            tenant: Tenant::parse("acme").unwrap(),
            user: UserId::parse("ada").unwrap(),
            generation: 0,
            secret: SecretDigest::of_secret("x"),
            declared_auth_time: created,
            times: SessionTimes { created, expires, last_use, remembered: false },
            details: SessionDetails { proofs, ..SessionDetails::default() }.into(),
        }))
    }

    #[test]
    fn too_many_proofs_are_refused_instead_of_cut_off() {
        let proof = Proof { method: "password".into(), at: 1, mark: None, elsewhere: None };
        assert_eq!(live(vec![proof; 1 << 16]).encode_row().unwrap_err().kind(), StoreErrorKind::TooLarge);
    }

    #[test]
    fn a_proof_with_a_part_that_does_not_exist_is_corrupt() {
        let proof = Proof { method: "p".into(), at: 1, mark: None, elsewhere: None };
        let mut bytes = live(vec![proof]).encode_row().unwrap();
        for (parts, is_valid) in [(0, true), (2, false)] {
            // before the last one, which says that there is no device
            *bytes.iter_mut().nth_back(1).unwrap() = parts;
            assert_eq!(SessionRow::decode_row(&bytes).is_ok(), is_valid, "{parts}");
        }
    }

    #[test]
    fn a_listed_session_stays_until_it_expires_and_renewing_it_never_shortens_that() {
        let listed = |sid: u8, expires| ListedSession {
            sid: PublicId::from_bytes([sid; 16]),
            expires: UnixTime::from_nanos(expires),
        };
        assert!(SessionList::default().is_empty());
        let list = SessionList::default().with(listed(1, 9)).with(listed(2, 5));
        assert!(!list.is_empty());
        let live = |now| list.clone().without_expired(UnixTime::from_nanos(now)).iter().count();
        assert_eq!([4, 5, 8, 9].map(live), [2, 1, 1, 0]);
        for (expires, expected) in [(3, 9), (12, 12)] {
            let renewed = list.clone().with(listed(1, expires));
            let all: Vec<_> =
                renewed.iter().map(|listed| (listed.sid.as_bytes()[0], listed.expires.as_nanos())).collect();
            assert_eq!(all, [(2, 5), (1, expected)], "the renewed session is the newest");
        }
    }

    #[test]
    fn an_end_check_reads_only_the_kind_and_reports_corrupt_rows() {
        let (store, clock) = (AnyStore::from(Memory::new()), Arc::new(ManualClock::new()));
        let ended = EndedSessions::new(store.clone(), clock.clone());
        let raw: Table<RawRow> = Table::new(store, SESSIONS, clock);
        let until = UnixTime::from_secs(2_000_000_000);
        for (number, bytes, expected) in [
            (1, ENDED.to_vec(), Some(true)),
            (2, [&LIVE[..], &[0xff]].concat(), Some(false)),
            (3, vec![5, 0], None),
            (4, vec![], None),
        ] {
            let sid = PublicId::from_bytes([number; 16]);
            let outcome = block_on(raw.insert(None, sid.as_bytes(), &RawRow(bytes), until)).unwrap();
            assert!(matches!(outcome, WriteOutcome::Done(_)));
            let check = ended.check(&sid).unwrap();
            for _ in 0..2 {
                assert_eq!(block_on(check.finds(|mark| mark.has_ended).wait()).ok(), expected, "{number}");
            }
            assert_eq!(block_on(ended.contains(&sid).wait()).ok(), expected, "{number}");
        }
        assert!(!block_on(ended.contains(&PublicId::from_bytes([9; 16])).wait()).unwrap());
    }

    struct RawRow(Vec<u8>);

    impl Value for RawRow {
        fn encode_row(&self) -> Result<Vec<u8>, StoreError> {
            Ok(self.0.clone())
        }

        fn decode_row(bytes: &[u8]) -> Result<Self, StoreError> {
            Ok(Self(bytes.to_vec()))
        }
    }
}
