//! Everything that a login service is made of. The builder assembles it once; afterwards no setting changes.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use http::HeaderValue;

use crate::{
    auth::{
        factors::{
            credentials::{credential::CurrentProofs, table::CredentialTable},
            settings::EnabledFactors,
        },
        first_party::site::FirstParty,
        http::{bodies::BodyLimits, cookies::LoginCookies},
        pages::built::BuiltPages,
        state::{
            accounts::Accounts,
            codes::Codes,
            consents::{Consent, Consents},
            devices::Devices,
            guard::Guard,
            journal::{EventSource, LoginJournal},
            key::HashKey,
            logins::Logins,
            pushed::PushedRequests,
            redeemed_challenges::RedeemedChallenges,
            tickets::Tickets,
            token_endpoints::TokenEndpoints,
            unverified::UnverifiedWork,
        },
    },
    client::{AnyClients, Client},
    delivery::Queue,
    event::EventKind,
    limit::{AnyLimiter, RateLimitGate},
    login::{Keyed, LoginLimits},
    password::{PasswordRules, Passwords},
    policy::{Method, MethodSet, Policies, Policy},
    session::{Proof, Session, SessionLayer, Sessions, UserId},
    store::{AnyStore, StoreError},
    support::issuer::Issuer,
    tenant::{ClientIp, Tenant},
    user::{
        Account, AnyUsers,
        sign_up::{SignUp, SignUpRules},
    },
    util::clock::Clock,
};

/// The parts of a login service.
pub(crate) struct Core {
    pub(crate) issuer: Issuer,
    /// The URLs of the tenants that have an origin of their own.
    pub(crate) tenant_urls: BTreeMap<Tenant, String>,
    /// The challenge of a 401.
    pub(crate) realm: HeaderValue,
    pub(crate) store: AnyStore,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) clients: AnyClients,
    pub(crate) users: AnyUsers,
    pub(crate) policies: Policies,
    pub(crate) passwords: Passwords,
    pub(crate) password_rules: PasswordRules,
    pub(crate) queue: Queue,
    pub(crate) sessions: Sessions,
    /// The layer that protects the routes of this site.
    pub(crate) session_layer: SessionLayer,
    /// The largest number of steps that a route of this site requires.
    pub(crate) route_steps: AtomicUsize,
    /// Set if users sign in to the site itself.
    pub(crate) first_party: Option<FirstParty>,
    pub(crate) sign_up: SignUpRules,
    /// Whether users can reset a forgotten password.
    pub(crate) offers_reset: bool,
    pub(crate) client_ip: ClientIp,
    pub(crate) cookies: LoginCookies,
    pub(crate) devices: Devices,
    pub(crate) pages: BuiltPages,

    pub(crate) logins: Logins,
    pub(crate) codes: Codes,
    pub(crate) consents: Consents,
    pub(crate) accounts: Accounts,
    pub(crate) credentials: CredentialTable,
    pub(crate) factors: EnabledFactors,
    pub(crate) login_limits: LoginLimits,
    /// How long a session lasts whose user has chosen to stay signed in.
    pub(crate) remember: Option<Duration>,
    pub(crate) redeemed_challenges: RedeemedChallenges,
    pub(crate) pushed: PushedRequests,
    pub(crate) tickets: Tickets,
    pub(crate) guard: Guard,
    pub(crate) journal: LoginJournal,
    pub(crate) limits: Limits,
    pub(crate) bodies: Arc<BodyLimits>,
    pub(crate) key: HashKey,

    pub(crate) tokens: Option<TokenEndpoints>,
}

/// The budgets that requests spend.
pub(crate) struct Limits {
    /// Requests of each tenant.
    pub(crate) tenants: RateLimitGate,
    /// Styles and scripts of pages that each address loads.
    pub(crate) page_parts: RateLimitGate,
    /// The share of the tenants' budgets that one address may spend.
    pub(crate) per_address: Option<RateLimitGate>,
    /// Failed attempts of each address.
    pub(crate) failures: AnyLimiter,
    /// Calls of each address to each identity provider that the provider could not answer.
    pub(crate) provider_outages: AnyLimiter,
    /// Messages requested from each address.
    pub(crate) messages: AnyLimiter,
    /// Codes requested from each address that go to contacts without an account.
    pub(crate) new_contact_codes: AnyLimiter,
    /// Lookups and signature checks before a tenant is charged.
    pub(crate) unverified: UnverifiedWork,
    pub(crate) addresses: Addresses,
}

/// Whether the addresses of clients are known. Without them, no limit of an address applies.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    are_unknown: AtomicBool,
}

impl Addresses {
    /// Records an event if the last request was different. Counted, because a caller might be able to alternate.
    pub(crate) fn saw(&self, is_known: bool, journal: &LoginJournal) {
        if self.are_unknown.load(Relaxed) != is_known || self.are_unknown.swap(!is_known, Relaxed) != is_known {
            return;
        }
        if is_known {
            journal.tally(EventKind::ClientAddressKnown, None, None);
        } else {
            crate::util::trace::warning!("client addresses are unknown: per-address limits are disabled");
            journal.tally(EventKind::ClientAddressUnknown, None, None);
        }
    }
}

impl Core {
    /// Finds a registered client by its id. Never the built-in one, which has no codes and no tokens.
    pub(crate) async fn registered_client(&self, id: Option<&str>) -> Result<Option<Arc<Client>>, StoreError> {
        match id {
            Some(id) if id.len() <= Client::MAX_ID && id != Client::FIRST_PARTY => self.clients.find(id).await,
            _ => Ok(None),
        }
    }

    /// Returns the resources that a client may request: those that the operator lists, and the audience of its other tokens.
    pub(crate) fn allowed_resources<'a>(&'a self, client: &'a Client) -> Vec<&'a str> {
        match &self.tokens {
            Some(tokens) => tokens.allowed_resources(client),
            None => client.resources().collect(),
        }
    }

    /// Returns the audience of a client's tokens that are requested without a resource, if the service issues tokens.
    pub(crate) fn default_audience<'a>(&'a self, client: &'a Client) -> Option<&'a str> {
        self.tokens.as_ref().map(|tokens| tokens.service.default_audience(client))
    }

    /// Returns the key of the keyed hashes. Call it after a read of the store: if that shows that the store has lost
    /// something, the key is read again.
    pub(crate) async fn keyed(&self) -> Result<&Keyed, StoreError> {
        if let Some(keyed) = self.key.known(&self.store) {
            return Ok(keyed);
        }
        // boxed, so that the futures of most calls have no room for it
        Box::pin(self.key.load(&self.store, &self.clock)).await
    }

    /// Removes the proofs that no longer count from a session. If one is removed and the rest does not meet the policy of the
    /// tenant, the session ends. Returns `None` if it has ended.
    pub(crate) async fn keep_proofs(
        &self,
        session: &Session,
        current: &CurrentProofs,
    ) -> Result<Option<Session>, StoreError> {
        let counts = |proof: &Proof| current.proofs.contains(proof) || !session.proofs().contains(proof);
        let is_enough = self.meets_policy(session.tenant(), None, current);
        // what was proved in the meantime counts too
        let are_enough = |proofs: &[Proof]| is_enough || proofs.iter().any(|proof| !current.proofs.contains(proof));
        let amr = |proofs: &[Proof]| are_enough(proofs).then(|| amr(proofs)).filter(|_| !proofs.is_empty());
        self.sessions.keep_proofs(session, |proof| counts(proof).then(|| proof.clone()), amr).await
    }

    /// Returns whether these proofs still meet the policies of a tenant and of a client, whatever `acr` was requested.
    pub(crate) fn meets_policy(&self, tenant: &Tenant, client: Option<&Policy>, current: &CurrentProofs) -> bool {
        self.policies.plan(tenant, client, None, self.enabled(tenant)).is_ok_and(|plan| current.meets(&plan))
    }

    /// Returns whether a sign-in to the site of a tenant needs the second factor that its account has enrolled.
    pub(crate) fn asks_enrolled(&self, tenant: &Tenant) -> bool {
        self.policies.plan(tenant, None, None, self.enabled(tenant)).is_ok_and(|plan| plan.asks_enrolled)
    }

    /// Returns the consents of a user to third-party clients, newest first, with the names of scopes, claims and APIs.
    pub(crate) async fn shown_consents(&self, tenant: &Tenant, user: &UserId) -> Result<Vec<Consent>, StoreError> {
        let mut all = self.consents.list(tenant, user).await?;
        // scopes and claims describe tokens for the issuer
        all.iter_mut().for_each(|consent| {
            consent.access.resources.remove(self.issuer.as_str());
        });
        Ok(all)
    }

    /// Removes the decisions of a user about a client, and revokes the client's tokens for this user. Returns whether there was
    /// a decision.
    pub(crate) async fn withdraw_consent(
        &self,
        tenant: &Tenant,
        user: &UserId,
        client_id: &str,
    ) -> Result<bool, StoreError> {
        if !self.consents.list(tenant, user).await?.iter().any(|consent| consent.client_id == client_id) {
            return Ok(false);
        }
        let revoke = async || match &self.tokens {
            Some(endpoints) => endpoints.service.revoke_client(tenant, user, client_id).await,
            None => Ok(()),
        };
        // if this fails, the client is still listed, and the user can try again
        revoke().await?;
        self.consents.withdraw(tenant, user, client_id).await?;
        // a code that was exchanged meanwhile either found no decision, or its tokens are listed now
        revoke().await?;
        let source = EventSource::of_user(tenant, user);
        self.journal.tally_login(EventKind::ConsentRevoked, source, (None, None), self.keyed().await?);
        Ok(true)
    }

    /// Ends everything that a user has begun, and deletes what the user has enrolled. Returns how many sessions there were.
    ///
    /// Also removes the messages that wait for the verified contacts of `account`, and the invitations to them. An unverified
    /// contact may belong to somebody else.
    pub(crate) async fn forget_user(
        &self,
        (tenant, user): (&Tenant, &UserId),
        account: Option<&Account>,
    ) -> Result<usize, StoreError> {
        let ended = self.sessions.end_user(tenant, user).await?;
        self.credentials.forget(tenant, user).await?;
        self.consents.forget(tenant, user).await?;
        let keyed = self.keyed().await?;
        for contact in account.into_iter().flat_map(Account::verified_contacts) {
            self.queue.forget(tenant, contact.as_str());
            self.tickets.end_invitation((tenant, contact), keyed).await?;
        }
        self.journal.record(EventKind::UserForgotten, EventSource::of_user(tenant, user), None, keyed);
        Ok(ended)
    }

    /// Returns the URL of a page of the site for the users of a tenant. It comes from the settings, never from a request.
    pub(crate) fn link_to(&self, tenant: &Tenant, path: &str) -> String {
        let base = self.tenant_urls.get(tenant).map_or(self.issuer.as_str(), String::as_str);
        format!("{base}{path}")
    }

    /// Returns whether users can create accounts, perhaps only with an invitation.
    pub(crate) fn offers_sign_up(&self) -> bool {
        self.sign_up.kind != SignUp::Closed
    }

    /// Returns the methods that users of this tenant can use here.
    pub(crate) fn enabled(&self, tenant: &Tenant) -> MethodSet {
        let enabled = self.factors.methods;
        if self.has_providers(tenant) { enabled.with(Method::Sso) } else { enabled }
    }

    /// Returns whether users of this tenant can sign in through another identity provider.
    pub(crate) fn has_providers(&self, tenant: &Tenant) -> bool {
        self.factors.sso.iter_for_tenant(tenant).next().is_some()
    }
}

/// Returns the names of the methods that were proved (RFC 8176).
pub(crate) fn amr(proofs: &[Proof]) -> Vec<Box<str>> {
    MethodSet::of_proofs(proofs).amr().into_iter().map(Box::from).collect()
}
