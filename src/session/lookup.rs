//! From what a request presents to its session.

#[cfg(feature = "login")]
use http::HeaderMap;

use super::{
    Session, Sessions,
    presented::Presented,
    record::{Record, Row},
};
use crate::{
    gate::MaybeReady,
    store::{BoxFuture, StoreError, WriteOutcome, table::Stored},
    tenant::Tenant,
    util::{clock::UnixTime, secret::Digest},
};

/// Use is noted when the last note is this old.
const NOTED_EVERY: u64 = 60;

pub(super) type Found = Result<Option<Session>, StoreError>;

/// What a row says about a request that presents its secret.
enum Verdict {
    Nobody,
    Lives(Session),
    /// It lives, and its use is to be noted.
    Due(Box<Stored<Row>>, Record),
}

impl Sessions {
    /// The session of a request, at once where the store answers at once.
    ///
    /// Where `of` is given, sessions of other tenants don't count. Where two
    /// sessions live, neither does.
    pub(super) fn find(&self, presented: Presented, of: Option<Tenant>) -> MaybeReady<BoxFuture<'static, Found>> {
        match presented {
            Presented::Nothing | Presented::Useless => MaybeReady::Ready(Ok(None)),
            Presented::One(digest) => match self.look_up(digest) {
                MaybeReady::Ready(found) => MaybeReady::Ready(found.map(|found| belongs(found, of.as_ref()))),
                MaybeReady::Pending(future) => {
                    MaybeReady::Pending(Box::pin(async move { Ok(belongs(future.await?, of.as_ref())) }))
                }
            },
            Presented::Several(digests) => {
                let sessions = self.clone();
                MaybeReady::Pending(Box::pin(async move { sessions.only_one_of(digests, of).await }))
            }
        }
    }

    /// The session of a browser, if it is of this tenant, where one is named.
    #[cfg(feature = "login")]
    pub(crate) async fn presented(&self, headers: &HeaderMap, tenant: Option<&Tenant>) -> Found {
        self.find(Presented::read(headers, self.name_of_cookie()), tenant.cloned()).wait().await
    }

    /// Whether a request presents anything as its session, be it good for nothing.
    #[cfg(feature = "tokens")]
    pub(crate) fn presents(&self, headers: &HeaderMap) -> bool {
        !matches!(Presented::read(headers, self.name_of_cookie()), Presented::Nothing)
    }

    /// What a request presents as sessions, be it that none of them lives.
    #[cfg(feature = "login")]
    pub(crate) fn shown(&self, headers: &HeaderMap) -> Vec<Digest> {
        match Presented::read(headers, self.name_of_cookie()) {
            Presented::Nothing | Presented::Useless => Vec::new(),
            Presented::One(digest) => vec![digest],
            Presented::Several(digests) => digests,
        }
    }

    /// Ends what a request presents as sessions: for an answer that brings another in their place. Those
    /// that lived are given.
    #[cfg(feature = "login")]
    pub(crate) async fn end_presented(&self, headers: &HeaderMap) -> Result<Vec<Digest>, StoreError> {
        let mut ended = Vec::new();
        for digest in self.shown(headers) {
            if let Some(session) = self.look_up(digest).wait().await? {
                self.revoke(&session).await?;
                ended.push(digest);
            }
        }
        Ok(ended)
    }

    async fn only_one_of(&self, digests: Vec<Digest>, of: Option<Tenant>) -> Found {
        let mut only = None;
        for digest in digests {
            if let Some(session) = belongs(self.look_up(digest).wait().await?, of.as_ref())
                && only.replace(session).is_some()
            {
                return Ok(None);
            }
        }
        Ok(only)
    }

    fn look_up(&self, digest: Digest) -> MaybeReady<BoxFuture<'static, Found>> {
        let pending = match self.rows().get(None, digest.as_bytes()) {
            MaybeReady::Ready(Err(error)) => return MaybeReady::Ready(Err(error)),
            MaybeReady::Ready(Ok(found)) => match self.judge(digest, found) {
                Verdict::Nobody => return MaybeReady::Ready(Ok(None)),
                Verdict::Lives(session) => return MaybeReady::Ready(Ok(Some(session))),
                Verdict::Due(stored, record) => Err((stored, record)),
            },
            MaybeReady::Pending(future) => Ok(future),
        };
        let sessions = self.clone();
        MaybeReady::Pending(Box::pin(async move {
            let (stored, record) = match pending {
                Err(due) => due,
                Ok(future) => match sessions.judge(digest, future.await?) {
                    Verdict::Nobody => return Ok(None),
                    Verdict::Lives(session) => return Ok(Some(session)),
                    Verdict::Due(stored, record) => (stored, record),
                },
            };
            Ok(sessions.note_use(digest, &stored, record).await)
        }))
    }

    fn judge(&self, digest: Digest, found: Option<Stored<Row>>) -> Verdict {
        let Some(stored) = found else { return Verdict::Nobody };
        let now = self.rows().now();
        let tenant = match stored.value {
            Row::Ended(tenant) => tenant,
            Row::Live(record) if now < self.lifetimes().end_of(&record) => {
                if !is_due(&record, now) {
                    return Verdict::Lives(Session::new(digest, record));
                }
                let read = Stored { value: Row::Live(record.clone()), ..stored };
                return Verdict::Due(Box::new(read), Record { last_use: now, ..record });
            }
            Row::Live(record) => record.tenant,
        };
        self.journal().used_after_end(&tenant, &digest, self.time());
        Verdict::Nobody
    }

    /// Notes the use of a session, unless somebody wrote since it was read: then
    /// what they wrote decides, so that what was revoked stays so.
    async fn note_use(&self, digest: Digest, read: &Stored<Row>, used: Record) -> Option<Session> {
        let kept_until = self.lifetimes().end_of(&used) + super::record::REMEMBERED;
        let row = Row::Live(used.clone());
        match self.rows().swap(None, digest.as_bytes(), read, &row, kept_until).await {
            Ok(WriteOutcome::Done(_)) => Some(Session::new(digest, used)),
            Ok(WriteOutcome::Lost(instead)) => match self.judge(digest, instead) {
                Verdict::Nobody => None,
                Verdict::Lives(session) => Some(session),
                Verdict::Due(_, record) => Some(Session::new(digest, record)),
            },
            // it was read, so it lives; that its use goes unnoted only makes it end earlier
            Err(error) => {
                crate::util::trace::warning!("the use of a session could not be noted: {error}");
                Some(Session::new(digest, used))
            }
        }
    }
}

fn is_due(record: &Record, now: UnixTime) -> bool {
    now.as_nanos().saturating_sub(record.last_use.as_nanos()) >= NOTED_EVERY * 1_000_000_000
}

fn belongs(session: Option<Session>, of: Option<&Tenant>) -> Option<Session> {
    session.filter(|session| of.is_none_or(|tenant| tenant == session.tenant()))
}
