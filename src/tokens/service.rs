//! [`TokenService`]: issues, renews, reads and revokes tokens.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    family::{Family, Next, family_of_code},
    family_list::{FamilyList, ListedFamily},
    grant::Grant,
    issued_claims::{self, ID_TOKEN, IdClaims},
    keys::Keys,
    refresh_token::{RefreshToken, random_digest},
    revocation::Revocations,
};
use crate::{
    bearer::{AccessTokenClaims, Audience},
    client::{Client, Scopes},
    jose::{Algorithm, jws::Unverified},
    login::Keyed,
    session::Authentication,
    store::{
        StoreError, WriteOutcome,
        table::{Change, Stored, Table},
    },
    user,
    util::{
        clock::{Clock, UnixTime},
        public_id::PublicId,
        secret::SecretDigest,
    },
};

/// How far the clocks of verifiers may be behind.
const SKEW: Duration = Duration::from_secs(60);
/// The longest time that any access token can be accepted. Revocations are kept this long, because an older token may
/// have been issued with a longer lifetime than the current setting allows.
pub(super) const LAST_ACCESS: Duration = Lifetimes::LONGEST_ACCESS.saturating_add(SKEW).saturating_add(SKEW);

/// How long tokens live.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetimes {
    pub(super) access: Duration,
    /// The lifetime of refresh tokens that outlive their session.
    pub(super) refresh: Duration,
    /// The lifetime of refresh tokens that end with their session.
    pub(super) session_refresh: Duration,
    /// How long a used refresh token returns its successor again.
    pub(super) grace: Duration,
    /// How long the longest session lives.
    pub(super) session: Duration,
}

impl Lifetimes {
    pub(super) const LONGEST_ACCESS: Duration = Duration::from_secs(600);
}

/// Issues, renews, reads and revokes tokens. Clones share everything.
#[derive(Clone)]
pub(crate) struct TokenService(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) issuer: String,
    pub(super) audience: String,
    pub(super) algorithm: Algorithm,
    pub(super) lifetimes: Lifetimes,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) keys: Keys,
    pub(super) families: Table<Family>,
    pub(super) lists: Table<FamilyList>,
    pub(super) revocations: Revocations,
}

/// The tokens issued to a client, as they are sent (RFC 6749 §5.1).
#[derive(Serialize)]
pub(crate) struct Issued {
    pub(crate) access_token: String,
    pub(crate) token_type: &'static str,
    /// In seconds.
    pub(crate) expires_in: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refresh_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id_token: Option<String>,
    pub(crate) scope: String,
}

/// Describes the tokens to issue for a grant.
pub(crate) struct TokenRequest<'a> {
    /// The part of the grant's authentication that still counts.
    pub(crate) who: &'a Authentication,
    pub(crate) audience: Audience,
    /// Whether an id_token is issued too, if the scope has `openid`.
    pub(crate) with_id_token: bool,
    pub(crate) id_token_algorithm: Option<Algorithm>,
    /// `None` for the whole scope of the grant.
    pub(crate) scope: Option<&'a Scopes>,
    pub(crate) nonce: Option<&'a str>,
    /// The account's claims that go into the id_token.
    pub(crate) account_claims: Map<String, Value>,
    /// Claims from the application's `Users`, with the tokens that contain them.
    pub(crate) extra_claims: user::Claims,
    pub(crate) keyed: &'a Keyed,
}

/// A family that was not stored yet.
pub(crate) struct NewFamily {
    pub(crate) id: PublicId,
    first: Option<RefreshToken>,
    family: Family,
}

/// A parsed refresh token and its family.
pub(crate) struct Presented {
    token: RefreshToken,
    is_ours: bool,
    family: Family,
    read: Stored<()>,
}

impl Presented {
    pub(crate) fn family(&self) -> PublicId {
        self.token.family
    }

    pub(crate) fn grant(&self) -> &Grant {
        &self.family.grant
    }

    pub(crate) fn ends(&self) -> UnixTime {
        self.family.ends()
    }

    /// Returns whether it was ever issued by this service.
    pub(crate) fn is_known(&self) -> bool {
        self.is_ours || self.family.is_current(&self.token)
    }
}

/// A valid access token.
pub(crate) struct ValidAccess {
    pub(crate) claims: AccessTokenClaims,
    /// The grant of a user. `None` for the token of a machine client.
    pub(crate) grant: Option<Arc<Grant>>,
    pub(crate) family: PublicId,
}

impl TokenService {
    // ---- keys

    pub(crate) fn issuer(&self) -> &str {
        &self.0.issuer
    }

    /// Returns the audience of a client's access tokens that are requested without a resource.
    pub(crate) fn default_audience<'a>(&'a self, client: &'a Client) -> &'a str {
        client.tokens.audience.as_deref().unwrap_or(&self.0.audience)
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        self.0.algorithm
    }

    /// Reads the keys, or creates them.
    pub(crate) async fn prepare(&self) -> Result<(), StoreError> {
        self.0.keys.current().await.map(|_| ())
    }

    pub(crate) async fn rotate_keys(&self) -> Result<(), StoreError> {
        self.0.keys.rotate().await
    }

    pub(crate) async fn withdraw_keys(&self) -> Result<(), StoreError> {
        self.0.keys.withdraw().await
    }

    /// Returns the public keys as a JSON Web Key Set.
    pub(crate) async fn key_set(&self) -> Result<Vec<u8>, StoreError> {
        Ok(self.0.keys.current().await?.set.to_json())
    }

    // ---- codes

    /// Creates the family that a code begins. The client gets refresh tokens if `refreshes` is set.
    pub(crate) fn new_family(&self, code: &SecretDigest, grant: Grant, refreshes: bool) -> NewFamily {
        let (id, now, lifetimes) = (family_of_code(code), self.now(), &self.0.lifetimes);
        let lives = match refreshes {
            true if grant.outlives_session() => lifetimes.refresh,
            true => lifetimes.refresh.min(lifetimes.session_refresh),
            false => lifetimes.access + SKEW,
        };
        let first = refreshes.then(|| RefreshToken::first(id));
        let family = Family::new(grant, first.as_ref(), now, now + lives);
        NewFamily { id, first, family }
    }

    /// Signs the first tokens of a family. They count once the family is [stored](Self::store_family).
    pub(crate) async fn first_tokens(&self, new: &NewFamily, request: &TokenRequest<'_>) -> Result<Issued, StoreError> {
        let NewFamily { id, first, family } = new;
        let issued =
            self.sign_user_tokens(family, request, issued_claims::jti(id, &PublicId::random()), self.now()).await?;
        let refresh_token = first.as_ref().map(|first| first.to_token_text(request.keyed));
        Ok(Issued { refresh_token, ..issued })
    }

    /// Stores a family, which redeems its code, and revokes the family that has to make room. Returns `false` if the code
    /// was redeemed before. Must run to completion, because half of it would leave a family that is not listed.
    ///
    /// The id of a family is derived from its code, so only one request can store it.
    pub(crate) async fn store_family(&self, new: NewFamily) -> Result<bool, StoreError> {
        let NewFamily { id, family, .. } = new;
        let tenant = family.grant.who.tenant.clone();
        let listed = ListedFamily { id, session: family.grant.session, ends: family.ends };
        let list = |list: Option<&FamilyList>, now: UnixTime| {
            let (list, evicted) = list.cloned().unwrap_or_default().with(listed.clone(), now);
            let ends = list.ends();
            Change::Put(list, ends, evicted)
        };
        let evicted = self.0.lists.update(Some(&tenant), &FamilyList::id(&family.grant), list).await?;
        if let Some(evicted) = evicted {
            self.end_family(&evicted.id).await?;
        }
        let inserted = self.0.families.insert(None, id.as_bytes(), &family, family.ends()).await?;
        if let WriteOutcome::Lost(_) = inserted {
            return Ok(false);
        }
        // the family may have been revoked already: evicted before it was stored, or stored and revoked by a request
        // that redeemed the same code. The revocation mark outlives every code.
        if self.0.revocations.has_revoked_family(&id).await? {
            self.0.families.remove(None, id.as_bytes()).await?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Returns the family that a code began, if the code was redeemed and the family lives. Also returns whether the code
    /// was redeemed long enough ago for another redemption to be a replay.
    pub(crate) async fn family_of_redeemed(
        &self,
        code: &SecretDigest,
    ) -> Result<Option<(PublicId, Arc<Grant>, bool)>, StoreError> {
        let (id, now) = (family_of_code(code), self.now());
        Ok(self.family(&id).await?.map(|found| (id, Arc::clone(&found.value.grant), found.value.is_replay(now))))
    }

    // ---- refresh tokens

    /// Reads a refresh token. Returns `None` if the text is none, or if its family has ended.
    pub(crate) async fn find_refresh_token(&self, text: &str, keyed: &Keyed) -> Result<Option<Presented>, StoreError> {
        let Some((token, is_ours)) = RefreshToken::parse(text, keyed) else { return Ok(None) };
        let Some(stored) = self.family(&token.family).await? else { return Ok(None) };
        let Stored { value, version, expires_at } = stored;
        let read = Stored { value: (), version, expires_at };
        Ok(Some(Presented { token, is_ours, family: value, read }))
    }

    /// Returns whether the token was used before, so that its family must be revoked.
    pub(crate) fn is_reused(&self, presented: &Presented) -> bool {
        let Presented { token, is_ours, family, .. } = presented;
        family.is_reused(token, *is_ours, self.0.lifetimes.grace, self.now())
    }

    /// Returns whether the token gives tokens now. During the grace, a used token looks like the current one, so that a
    /// thief can't watch for its use and join.
    pub(crate) fn is_usable(&self, presented: &Presented) -> bool {
        let Presented { token, is_ours, family, .. } = presented;
        family.is_usable(token, *is_ours, self.0.lifetimes.grace, self.now())
    }

    /// Exchanges a refresh token for the next one. Returns `None` if the token is not valid, or no longer. The key that the
    /// token is bound to, the scope, and the account with its generation must have been checked for this request.
    pub(crate) async fn refresh(
        &self,
        presented: &Presented,
        request: &TokenRequest<'_>,
    ) -> Result<Option<Issued>, StoreError> {
        let grant = presented.grant();
        if self.has_lost_session(grant).await? {
            return Ok(None);
        }
        // what can fail comes before the token is used up
        self.prepare().await?;
        let Some(Next { token: next, jti, at }) = self.use_token(presented, random_digest()).await? else {
            return Ok(None);
        };
        // a repeated request for another scope or resource gets another access token
        let scope = request.scope.unwrap_or(grant.scope());
        let own = issued_claims::jti_for_content(&jti, scope, &request.audience);
        let jti = issued_claims::jti(&next.family, &own);
        let issued = self.sign_user_tokens(&presented.family, request, jti, at).await?;
        let passed = self.now().as_secs().saturating_sub(at.as_secs());
        let expires_in = issued.expires_in.saturating_sub(passed);
        Ok(Some(Issued { expires_in, refresh_token: Some(next.to_token_text(request.keyed)), ..issued }))
    }

    /// Uses a refresh token. `salt` makes its successor.
    async fn use_token(&self, presented: &Presented, salt: SecretDigest) -> Result<Option<Next>, StoreError> {
        let Presented { token, is_ours, family, read } = presented;
        let (id, grace) = (token.family.as_bytes(), self.0.lifetimes.grace);
        let next = |family: &Family, now| match family.refresh(token, *is_ours, salt, grace, now) {
            (Some(next), refreshed) => Change::Put(next, family.ends(), refreshed),
            (None, refreshed) => Change::Keep(refreshed),
        };
        // usually the row has not changed since, and need not be read again
        match next(family, self.now()) {
            Change::Keep(refreshed) => return Ok(refreshed),
            Change::Put(row, ends, refreshed) => {
                if let WriteOutcome::Done(_) = self.0.families.swap(None, id, read, &row, ends).await? {
                    return Ok(refreshed);
                }
            }
        }
        let again = |row: Option<&Family>, now| row.map_or(Change::Keep(None), |row| next(row, now));
        Box::pin(self.0.families.update(None, id, again)).await
    }

    // ---- reading tokens

    /// Reads an access token for any API. Returns `None` if it was not issued here or is not valid.
    pub(crate) async fn access(&self, token: &str) -> Result<Option<ValidAccess>, StoreError> {
        let Some(claims) = self.claims::<AccessTokenClaims>(token, crate::bearer::TYPE).await? else { return Ok(None) };
        let now = self.now().as_secs();
        if claims.iss != self.issuer() || now >= claims.exp || claims.iat > now + SKEW.as_secs() {
            return Ok(None);
        }
        let Some(family) = issued_claims::family_of(&claims.jti) else { return Ok(None) };
        if claims.is_machine() {
            let is_revoked = self.0.revocations.has_revoked_family(&family).await?;
            // which tokens may be lost is known once the cutoff is read
            self.0.revocations.cutoff().wait().await?;
            let is_revoked = is_revoked || self.0.revocations.may_have_lost(claims.iat);
            return Ok((!is_revoked).then_some(ValidAccess { claims, grant: None, family }));
        }
        let Some(Stored { value: Family { grant, .. }, .. }) = self.family(&family).await? else { return Ok(None) };
        let has_ended = self.has_ended(&grant).await? || self.0.revocations.may_have_lost(claims.iat);
        Ok((!has_ended).then_some(ValidAccess { claims, grant: Some(grant), family }))
    }

    /// Reads an id_token that was issued here (`id_token_hint`). It is a hint and proves nothing, so it may have expired. Its key
    /// counts after a rotation as long as a session from before it can live, and never after it was withdrawn.
    pub(crate) async fn hint(&self, token: &str) -> Result<Option<IdClaims>, StoreError> {
        let Some(parsed) = Unverified::parse(token, ID_TOKEN) else { return Ok(None) };
        let (keys, lives, now) = (self.0.keys.current().await?, self.0.lifetimes.session, self.now());
        let claims = match parsed.kid().and_then(|kid| keys.for_hint(kid, lives, now)) {
            Some(key) => parsed.claims(&key),
            None => self.claims(token, ID_TOKEN).await?,
        };
        Ok(claims.filter(|claims: &IdClaims| claims.iss == self.issuer()))
    }

    pub(super) async fn claims<T: serde::de::DeserializeOwned>(
        &self,
        token: &str,
        typ: &str,
    ) -> Result<Option<T>, StoreError> {
        let Some(token) = Unverified::parse(token, typ) else { return Ok(None) };
        let mut keys = self.0.keys.current().await?;
        if token.kid().is_some_and(|kid| !keys.set.names(kid)) {
            keys = self.0.keys.reread_keys(&keys.set).await?;
        }
        Ok(token.claims(&keys.set))
    }

    /// Reads a family, unless it began before everything was ended.
    async fn family(&self, id: &PublicId) -> Result<Option<Stored<Family>>, StoreError> {
        let found = self.0.families.get(None, id.as_bytes()).wait().await?;
        let cutoff = self.0.revocations.cutoff().wait().await?.as_nanos();
        Ok(found.filter(|stored| stored.value.born >= cutoff))
    }

    pub(super) fn now(&self) -> UnixTime {
        self.0.clock.unix(self.0.clock.now())
    }
}

crate::util::fmt::debug_fields!(TokenService, |own| issuer: own.0.issuer);
