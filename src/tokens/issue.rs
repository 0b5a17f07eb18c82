//! How tokens are given, traded and taken back.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{
    Tokens,
    family::{Authorized, Family, Refreshed, Row},
    mint::{self, IdClaims, Span},
    refresh::{RefreshToken, random},
    revoked::{Name, Names},
    settings::{LONGEST_ACCESS, LONGEST_REFRESH, REFRESH_OF_A_SESSION},
};
use crate::{
    bearer::AccessTokenClaims,
    client::Scopes,
    jose::{
        Algorithm,
        jws::{self, Unverified},
    },
    login::Keyed,
    session::UserId,
    store::{
        StoreError, StoreErrorKind, WriteOutcome,
        table::{Change, Stored},
    },
    tenant::Tenant,
    util::{clock::UnixTime, handle::Handle, run_to_completion::RunToCompletion, secret::Digest},
};

/// How far the clocks of those who check may be behind.
const SKEW: Duration = Duration::from_secs(60);
/// How long an access token counts at most. Marks of what was taken back live by the longest that can be set, for what they
/// are about may be older than the settings of today.
const LAST_ACCESS: Duration = LONGEST_ACCESS.saturating_add(SKEW).saturating_add(SKEW);

/// What a client gets.
pub(crate) struct Issued {
    pub(crate) access_token: String,
    /// In seconds, from now.
    pub(crate) expires_in: u64,
    pub(crate) refresh_token: Option<String>,
    pub(crate) id_token: Option<String>,
    pub(crate) scope: String,
}

/// How a client wants its tokens.
pub(crate) struct Wish<'a> {
    pub(crate) audience: Option<&'a str>,
    /// What signs its id_tokens, where it is not the usual.
    pub(crate) id_token: Option<Algorithm>,
    /// `None` for all that were granted.
    pub(crate) scope: Option<&'a Scopes>,
    pub(crate) nonce: Option<String>,
    /// About the user, for the id_token.
    pub(crate) claims: Map<String, Value>,
    pub(crate) keyed: &'a Keyed,
}

/// Why a refresh token gives nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Unknown,
    /// It was used before, so its family has ended.
    Reused,
    /// It is bound to another key.
    Foreign,
    ScopeGrows,
}

/// A new family, before anything of it exists.
pub(crate) struct Birth {
    pub(crate) family: Handle,
    first: Option<RefreshToken>,
    pub(crate) ends: UnixTime,
}

/// A refresh token that was read, and whose it is.
pub(crate) struct Presented {
    token: RefreshToken,
    is_ours: bool,
    family: Box<Family>,
    read: Stored<()>,
}

impl Presented {
    pub(crate) fn family(&self) -> Handle {
        self.token.family
    }

    pub(crate) fn authorized(&self) -> &Authorized {
        &self.family.authorized
    }

    pub(crate) fn ends(&self) -> UnixTime {
        self.family.ends()
    }

    /// Whether it can be traded.
    pub(crate) fn counts(&self) -> bool {
        self.family.counts(&self.token)
    }

    /// Whether it was given out here, ever.
    pub(crate) fn is_known(&self) -> bool {
        self.is_ours || self.counts()
    }
}

/// An access token of ours that is good.
pub(crate) struct Access {
    pub(crate) claims: AccessTokenClaims,
    pub(crate) authorized: Authorized,
    pub(crate) family: Handle,
}

impl Tokens {
    /// What will come of a code: made before the code is spent, so that a replay can name it.
    pub(crate) fn conceive(&self, scope: &Scopes, refreshes: bool) -> Birth {
        let family = new_handle();
        let lives = if refreshes { self.family_lives(scope) } else { self.settings().access + SKEW };
        Birth { family, first: refreshes.then(|| RefreshToken::first(family)), ends: self.now() + lives }
    }

    /// The first tokens of a family. `None` if it was ended before it began: its code came twice.
    pub(crate) async fn begin(
        &self,
        birth: Birth,
        authorized: Authorized,
        wish: Wish<'_>,
    ) -> Result<Option<Issued>, StoreError> {
        let Birth { family, first, ends } = birth;
        let refresh_token = first.as_ref().map(|first| first.write(wish.keyed));
        let row = Row::Live(Box::new(Family::new(authorized.clone(), first.as_ref(), ends)));
        let named = mint::jti(&family, &new_handle());
        let issued = self.sign(&authorized, &wish, named, (self.now(), ends)).await?;
        match self.families().insert(None, family.as_bytes(), &row, ends).await? {
            WriteOutcome::Done(_) => Ok(Some(Issued { refresh_token, ..issued })),
            WriteOutcome::Lost(_) => Ok(None),
        }
    }

    /// Whose refresh token it is; `None` if it is nobody's any more.
    pub(crate) async fn presented(&self, text: &str, keyed: &Keyed) -> Result<Option<Presented>, StoreError> {
        let Some((token, is_ours)) = RefreshToken::parse(text, keyed) else { return Ok(None) };
        let found = self.families().get(None, token.family.as_bytes()).wait().await?;
        let Some(Stored { value: Row::Live(family), version, expires_at }) = found else { return Ok(None) };
        Ok(Some(Presented { token, is_ours, family, read: Stored { value: (), version, expires_at } }))
    }

    /// Trades a refresh token for the next one. `jkt` is the key that was proved with the request.
    pub(crate) async fn refresh(
        &self,
        presented: &Presented,
        jkt: Option<&str>,
        wish: Wish<'_>,
    ) -> Result<Result<Issued, Denied>, StoreError> {
        let (authorized, family) = (presented.authorized(), presented.token.family);
        if authorized.jkt.as_deref().is_some_and(|own| jkt != Some(own)) {
            return Ok(Err(Denied::Foreign));
        }
        if wish.scope.is_some_and(|scope| !scope.is_subset(&authorized.scope)) {
            return Ok(Err(Denied::ScopeGrows));
        }
        if self.has_ended(authorized).await? {
            return Ok(Err(Denied::Unknown));
        }
        // what can fail without the store does so before the token is used
        self.keys().current().await?;
        let used = self.use_up(presented, (random(), new_handle())).await?;
        match used {
            Refreshed::Refused => Ok(Err(Denied::Unknown)),
            Refreshed::Reused => {
                self.revoke_family(&family).await?;
                Ok(Err(Denied::Reused))
            }
            Refreshed::Next { token: next, jti, at } => {
                // who asks again for other scopes gets another token
                let named = mint::jti(&next.family, &mint::for_scope(&jti, wish.scope.unwrap_or(&authorized.scope)));
                let issued = self.sign(authorized, &wish, named, (at, presented.ends())).await?;
                let passed = self.now().as_secs().saturating_sub(at.as_secs());
                let expires_in = issued.expires_in.saturating_sub(passed);
                Ok(Ok(Issued { expires_in, refresh_token: Some(next.write(wish.keyed)), ..issued }))
            }
        }
    }

    /// Uses a refresh token, if it is good for it, with this salt and name for its successor.
    async fn use_up(&self, presented: &Presented, fresh: (Digest, Handle)) -> Result<Refreshed, StoreError> {
        let Presented { token, is_ours, family, read } = presented;
        let id = token.family.as_bytes();
        let next = |family: &Family, now| match family.refresh(token, *is_ours, fresh, now) {
            (Some(next), refreshed) => Change::Put(Row::Live(Box::new(next)), family.ends(), refreshed),
            (None, refreshed) => Change::Keep(refreshed),
        };
        // mostly nobody came in between, and it need not be read again
        match next(family, self.now()) {
            Change::Keep(refreshed) => return Ok(refreshed),
            Change::Put(row, ends, refreshed) => {
                if let WriteOutcome::Done(_) = self.families().swap(None, id, read, &row, ends).await? {
                    return Ok(refreshed);
                }
            }
        }
        let again = |row: Option<&Row>, now| match row {
            Some(Row::Live(family)) => next(family, now),
            _ => Change::Keep(Refreshed::Refused),
        };
        self.families().update(None, id, again).await
    }

    /// Ends all that came of one code: wholly, also where nobody waits for it any more, for who hangs up in time must not
    /// keep half.
    pub(crate) async fn revoke_family(&self, family: &Handle) -> Result<(), StoreError> {
        let (tokens, family) = (self.clone(), *family);
        RunToCompletion::new(async move { tokens.end_family(&family).await }).await
    }

    async fn end_family(&self, family: &Handle) -> Result<(), StoreError> {
        // access tokens first: what fails in between can be asked for again
        self.mark(Name::Family(family)).await?;
        let lives = self.settings().refresh;
        let end = |row: Option<&Row>, now: UnixTime| match row {
            Some(Row::Revoked) => Change::Keep(None),
            Some(Row::Live(live)) => Change::Put(Row::Revoked, live.ends(), Some(live.authorized.clone())),
            // it is being born: so it never is
            None => Change::Put(Row::Revoked, now + lives, None),
        };
        match self.families().update(None, family.as_bytes(), end).await? {
            Some(who) => self.note_over(&who, family).await,
            None => Ok(()),
        }
    }

    /// Ends all that came of a session of this handle, for ever, but what was given to last beyond it (`offline_access`).
    /// The session itself goes on, and so does what came of those that it took the place of: for a sign-out there is
    /// [`AuthService::sign_out`](crate::AuthService::sign_out).
    pub async fn revoke_session(&self, session: &Handle) -> Result<(), StoreError> {
        self.revoked().mark(Name::Session(session), REFRESH_OF_A_SESSION + LAST_ACCESS).await
    }

    /// Ends every token that a user has, at every client: after a change of the password, or when an account is closed.
    ///
    /// Sessions that are signed in go on: end them too, with
    /// [`Sessions::revoke_user`](crate::Sessions::revoke_user), and first, so that no login goes on from one in between. A
    /// login in the same second counts as ended: its user logs in once more. Where clocks of several nodes differ, so does
    /// what counts as before.
    ///
    /// Access tokens that only [remote verifiers](crate::bearer) see live to their end.
    pub async fn revoke_user(&self, tenant: &Tenant, user: &UserId) -> Result<(), StoreError> {
        self.revoked().mark(Name::User(tenant, user), LONGEST_REFRESH + LAST_ACCESS).await
    }

    pub(super) async fn mark(&self, name: Name<'_>) -> Result<(), StoreError> {
        self.revoked().mark(name, LAST_ACCESS).await
    }

    /// Whether the session or the user that it came of lost all tokens.
    pub(crate) async fn has_ended(&self, who: &Authorized) -> Result<bool, StoreError> {
        let began = UnixTime::from_secs(who.auth_time);
        if self.revoked().has(Name::User(&who.tenant, &who.user), began).wait().await? {
            return Ok(true);
        }
        match &who.session {
            Some(session) if !who.scope.contains(OFFLINE_ACCESS) => {
                self.revoked().has(Name::Session(session), began).wait().await
            }
            _ => Ok(false),
        }
    }

    /// The keys as they are published, as a JSON Web Key Set.
    pub(crate) async fn published(&self) -> Result<Vec<u8>, StoreError> {
        Ok(self.keys().current().await?.set.to_json())
    }

    async fn family(&self, family: &Handle) -> Result<Option<Row>, StoreError> {
        let found = self.families().get(None, family.as_bytes()).wait().await?;
        Ok(found.map(|stored| stored.value))
    }

    /// An access token of ours, if it is good: for whatever API it is.
    pub(crate) async fn access(&self, token: &str) -> Result<Option<Access>, StoreError> {
        let Some(claims) = self.claims::<AccessTokenClaims>(token, crate::bearer::TYPE).await? else { return Ok(None) };
        let now = self.now().as_secs();
        if claims.iss != self.issuer() || now >= claims.exp || claims.iat > now + SKEW.as_secs() {
            return Ok(None);
        }
        let Some(family) = mint::family_of(&claims.jti) else { return Ok(None) };
        let Some(Row::Live(row)) = self.family(&family).await? else { return Ok(None) };
        let alive = !self.has_ended(&row.authorized).await?;
        Ok(alive.then_some(Access { claims, authorized: row.authorized, family }))
    }

    /// An id_token of ours, as old as it may be: a hint, never a proof.
    pub(crate) async fn hint(&self, token: &str) -> Result<Option<IdClaims>, StoreError> {
        let claims = self.claims::<IdClaims>(token, mint::ID_TOKEN).await?;
        Ok(claims.filter(|claims| claims.iss == self.issuer()))
    }

    async fn claims<T: serde::de::DeserializeOwned>(&self, token: &str, typ: &str) -> Result<Option<T>, StoreError> {
        let Some(token) = Unverified::parse(token, typ) else { return Ok(None) };
        let mut keys = self.keys().current().await?;
        if token.kid().is_some_and(|kid| !keys.set.names(kid)) {
            keys = self.keys().newer(&keys.set).await?;
        }
        Ok(token.claims(&keys.set))
    }

    /// Tokens as of a time, of a family that ends then. Nothing of a family lives on after it: `/revoke` could not end it.
    async fn sign(
        &self,
        who: &Authorized,
        wish: &Wish<'_>,
        jti: String,
        (at, ends): (UnixTime, UnixTime),
    ) -> Result<Issued, StoreError> {
        let settings = self.settings();
        let keys = self.keys().current().await?;
        let broken = || StoreError::new(StoreErrorKind::Corrupt, "there is no key that signs by this algorithm");
        let span = Span { from: at.as_secs(), until: (at + settings.access).min(ends).as_secs() };
        let signer = keys.signer(settings.algorithm, self.now()).ok_or_else(broken)?;
        let granted = wish.scope.unwrap_or(&who.scope);
        let scope = granted.to_string();
        let audience = wish.audience.unwrap_or(&settings.audience);
        let claims = mint::access(self.issuer(), audience, who, &scope, jti, span);
        let access_token = jws::sign(&signer, crate::bearer::TYPE, &claims).ok_or_else(broken)?;
        let expires_in = span.until.saturating_sub(span.from);
        if !granted.contains("openid") {
            return Ok(Issued { access_token, expires_in, refresh_token: None, id_token: None, scope });
        }
        let algorithm = wish.id_token.unwrap_or(settings.algorithm);
        let signer = keys.signer(algorithm, self.now()).ok_or_else(broken)?;
        let claims = IdClaims {
            at_hash: Some(mint::at_hash(&access_token, algorithm)),
            more: wish.claims.clone(),
            ..mint::id(self.issuer(), who, wish.nonce.clone(), span)
        };
        let id_token = Some(jws::sign(&signer, mint::ID_TOKEN, &claims).ok_or_else(broken)?);
        Ok(Issued { access_token, expires_in, refresh_token: None, id_token, scope })
    }

    /// By what an access token can be taken back.
    pub(super) fn names(&self, claims: &AccessTokenClaims) -> Result<Names, StoreError> {
        let tenant = claims.tenant.as_deref().and_then(|tenant| Tenant::parse(tenant).ok());
        let user = tenant.zip(UserId::parse(&claims.sub).ok());
        let (family, session) = (mint::family_of(&claims.jti), claims.sid.as_deref().and_then(Handle::parse));
        let names = [
            family.as_ref().map(Name::Family),
            session.as_ref().map(Name::Session),
            user.as_ref().map(|(tenant, user)| Name::User(tenant, user)),
        ];
        self.revoked().names(names, UnixTime::from_secs(claims.auth_time.unwrap_or(claims.iat)))
    }
}

/// The scope by which tokens live on after the session that they began in.
pub(crate) const OFFLINE_ACCESS: &str = "offline_access";

fn new_handle() -> Handle {
    Handle::of(&random())
}
