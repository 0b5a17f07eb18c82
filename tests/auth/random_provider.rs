//! Two identity providers for random calls, which need no network, and a model of the links to them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tollgate::{auth::AuthServiceBuilder, policy::FactorClass};

use crate::world::{ADA, GRACE, World, form_of};

/// The names of the providers.
pub(crate) const PROVIDERS: [&str; 2] = ["company", "public"];
const ISSUERS: [&str; 2] = ["https://company.example", "https://public.example"];
/// The domain whose mailboxes the company runs.
const TRUSTED: &str = "example.com";
/// A verified contact of ada elsewhere.
const ELSEWHERE: &str = "ada@elsewhere.example";
/// A contact of ada that was never verified.
const UNVERIFIED: &str = "later@example.com";

/// A user of a provider.
pub(crate) struct Person {
    pub(crate) provider: usize,
    subject: &'static str,
    #[cfg_attr(not(feature = "external-providers"), allow(dead_code, reason = "only providers send it"))]
    email: &'static str,
    #[cfg_attr(not(feature = "external-providers"), allow(dead_code, reason = "only providers send it"))]
    email_verified: bool,
    /// The account that they are linked to from the beginning, and the strength of that link.
    linked: Option<(&'static str, u8)>,
    /// The account that the hook of the operator names.
    hooked: Option<&'static str>,
    /// The account with this address as a verified contact, if the provider is trusted for it.
    address_of: Option<&'static str>,
}

const SOMEBODY: Person =
    Person { provider: 0, subject: "", email: "", email_verified: true, linked: None, hooked: None, address_of: None };

/// Users of the providers. Those with the same subject at two providers are different people.
pub(crate) const PEOPLE: [Person; 12] = [
    Person { subject: "1", email: ADA, linked: Some(("u-ada", 2)), address_of: Some("u-ada"), ..SOMEBODY },
    Person { subject: "2", email: GRACE, address_of: Some("u-grace"), ..SOMEBODY },
    Person { subject: "3", email: ADA, address_of: Some("u-ada"), ..SOMEBODY },
    Person { subject: "4", email: GRACE, linked: Some(("u-grace", 1)), address_of: Some("u-grace"), ..SOMEBODY },
    Person { subject: "5", email: ADA, email_verified: false, ..SOMEBODY },
    Person { subject: "6", email: UNVERIFIED, ..SOMEBODY },
    Person { subject: "7", email: ELSEWHERE, ..SOMEBODY },
    Person { subject: "8", email: "stranger@example.com", ..SOMEBODY },
    Person { provider: 1, subject: "1", email: GRACE, linked: Some(("u-grace", 2)), ..SOMEBODY },
    Person { provider: 1, subject: "2", email: GRACE, linked: Some(("u-ada", 2)), ..SOMEBODY },
    Person { provider: 1, subject: "3", email: ADA, ..SOMEBODY },
    Person { provider: 1, subject: "4", email: ADA, hooked: Some("u-grace"), ..SOMEBODY },
];

/// Returns the users of a provider.
pub(crate) fn users_of(provider: usize) -> std::ops::Range<usize> {
    let others = PEOPLE.iter().position(|person| person.provider == 1).unwrap();
    if provider == 0 { 0..others } else { others..PEOPLE.len() }
}

/// Returns a person of this provider who may have the account.
pub(crate) fn likely(provider: usize, is_grace: bool, pick: usize) -> usize {
    match (provider, is_grace) {
        (0, false) => [0, 2][pick % 2],
        (0, true) => [1, 3][pick % 2],
        (_, false) => 9,
        (_, true) => [8, 11][pick % 2],
    }
}

/// A user's way to a provider, as its URL describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Visit {
    pub(crate) provider: usize,
    state: String,
    nonce: String,
    challenge: String,
}

impl Visit {
    #[cfg(feature = "external-providers")]
    pub(crate) fn of(provider: usize, url: &str) -> Self {
        let asked = crate::sso_provider::asked(url);
        let [state, nonce, challenge] = ["state", "nonce", "code_challenge"].map(|name| asked[name].clone());
        assert!(url.starts_with(&format!("{}/authorize?", ISSUERS[provider])), "{url}");
        Self { provider, state, nonce, challenge }
    }

    #[cfg(not(feature = "external-providers"))]
    pub(crate) fn of(_: usize, url: &str) -> Self {
        panic!("no service sends users to {url}")
    }

    /// Returns `state` with the id of this login.
    pub(crate) fn state_of(&self, login: &str) -> String {
        let (_, secret) = self.state.split_once('.').unwrap();
        format!("{login}.{secret}")
    }

    /// Returns the code of a person whom the provider signs in on this visit.
    pub(crate) fn code(&self, person: usize) -> String {
        format!("{person}.{}.{}", self.nonce, self.challenge)
    }

    /// Returns the path and query of a callback.
    pub(crate) fn callback(&self, provider: usize, fields: &[(&str, &str)]) -> String {
        format!("/authentication/sso/{}/callback?{}", PROVIDERS[provider], form_of(fields))
    }

    pub(crate) fn state(&self) -> &str {
        &self.state
    }
}

/// The facts about a login that decide on a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linking<'a> {
    pub(crate) account: Option<&'static str>,
    pub(crate) is_unbound: bool,
    pub(crate) proved: &'a [FactorClass],
    pub(crate) required: usize,
}

/// The account of each linked person, and the strength of the link.
#[derive(Debug)]
pub(crate) struct Links(BTreeMap<usize, (&'static str, u8)>);

impl Links {
    pub(crate) fn new() -> Self {
        Self(PEOPLE.iter().enumerate().filter_map(|(at, person)| Some((at, person.linked?))).collect())
    }

    /// Returns the user that a person proves to be in a login, and notes a new link.
    pub(crate) fn proves(&mut self, person: usize, login: Linking<'_>) -> Option<&'static str> {
        let by_address = || {
            let vouching = login.proved.iter().filter(|class| **class != FactorClass::Mailbox);
            let classes: BTreeSet<_> = vouching.chain([&FactorClass::Federated]).collect();
            let is_theirs = login.account.is_some() && login.account == PEOPLE[person].address_of;
            (is_theirs && classes.len() > 1).then(|| (login.account.unwrap(), u8::try_from(classes.len()).unwrap()))
        };
        let by_hook = || PEOPLE[person].hooked.map(|user| (user, u8::MAX));
        let first = || if login.is_unbound { by_hook() } else { by_address() };
        let found = self.0.get(&person).copied().or_else(first);
        let (owner, strength) = found.filter(|(_, strength)| usize::from(*strength) >= login.required)?;
        self.0.insert(person, (owner, strength));
        (login.is_unbound || login.account == Some(owner)).then_some(owner)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the links of a user as they are stored: sorted issuers and subjects, with their strength.
    pub(crate) fn of(&self, user: &str) -> Vec<(String, String, u64)> {
        let own = self.0.iter().filter(|(_, (owner, _))| *owner == user);
        let mut own: Vec<_> = own
            .map(|(person, (_, strength))| {
                let Person { provider, subject, .. } = &PEOPLE[*person];
                (ISSUERS[*provider].to_owned(), (*subject).to_owned(), u64::from(*strength))
            })
            .collect();
        own.sort();
        own
    }
}

/// Returns the links that a user has at the beginning.
pub(crate) fn enrolled(user: &str) -> Value {
    let own = PEOPLE.iter().filter_map(|person| Some((person, person.linked.filter(|(owner, _)| *owner == user)?.1)));
    let link = |(person, strength): (&Person, u8)| {
        json!({ "issuer": ISSUERS[person.provider], "subject": person.subject, "provider": PROVIDERS[person.provider],
            "name": "", "created_at": 0, "strength": strength })
    };
    own.map(link).collect()
}

/// Returns the stored links of a user, sorted.
pub(crate) async fn stored(world: &World, user: &str) -> Vec<(String, String, u64)> {
    let row = crate::enrolled::stored(world, user).await.unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let links = row["links"].as_array().into_iter().flatten();
    let mut links: Vec<_> = links
        .map(|link| (text(&link["issuer"]), text(&link["subject"]), link["strength"]["steps"].as_u64().unwrap()))
        .collect();
    links.sort();
    links
}

/// Adds two contacts to the account of ada that no provider can vouch for.
pub(crate) async fn more_contacts(world: &World) {
    use tollgate::user::{Contact, EmailAddress};
    let (acme, ada) = ("acme".parse().unwrap(), "u-ada".parse().unwrap());
    let contact = |address: &str| Contact::Email(EmailAddress::parse(address).unwrap());
    world.users.verify_contact(&acme, &ada, contact(ELSEWHERE)).await.unwrap();
    world.users.add_contact(&acme, &ada, contact(UNVERIFIED)).await.unwrap();
}

/// Adds both providers. The company is trusted for its domain. The operator has a hook for users of the other one.
#[cfg(feature = "external-providers")]
pub(crate) fn both(service: AuthServiceBuilder) -> AuthServiceBuilder {
    use self::in_process::InProcess;
    use tollgate::sso::SsoConnection;
    let [company, public] = [0, 1].map(|provider| SsoConnection::new(InProcess { provider }));
    let (company, public) = (company.trust_email_domain(TRUSTED).unwrap(), public.create_account(in_process::Hook));
    service.sso(PROVIDERS[0], company).sso(PROVIDERS[1], public)
}

#[cfg(not(feature = "external-providers"))]
pub(crate) fn both(service: AuthServiceBuilder) -> AuthServiceBuilder {
    let _ = TRUSTED;
    service
}

#[cfg(feature = "external-providers")]
mod in_process {
    use tollgate::{
        Tenant, UserId,
        pkce::CodeChallenge,
        sso::{CreateAccount, ProviderUser, SsoCallback, SsoError, SsoProvider, SsoRequest},
    };

    use super::{ISSUERS, PEOPLE, form_of};

    /// A provider whose codes say whom it has signed in, and for which request. It redeems a code as often as it is sent.
    pub(super) struct InProcess {
        pub(super) provider: usize,
    }

    impl SsoProvider for InProcess {
        async fn authorization_url(&self, request: &SsoRequest<'_>) -> Result<String, SsoError> {
            let fields = [
                ("redirect_uri", request.redirect_uri()),
                ("state", request.state()),
                ("nonce", request.nonce()),
                ("code_challenge", request.code_challenge().as_str()),
            ];
            Ok(format!("{}/authorize?{}", ISSUERS[self.provider], form_of(&fields)))
        }

        async fn user(&self, callback: &SsoCallback<'_>) -> Result<ProviderUser, SsoError> {
            let code: Vec<_> = callback.code()?.split('.').collect();
            let is_asked =
                code[1] == callback.nonce() && code[2] == CodeChallenge::from_verifier(callback.verifier()).as_str();
            let person = &PEOPLE[code[0].parse::<usize>().unwrap()];
            if !is_asked || person.provider != self.provider {
                return Err(SsoError::Failed("the code belongs to another request"));
            }
            let user = ProviderUser::new(ISSUERS[self.provider], person.subject);
            Ok(user.with_email(person.email, person.email_verified))
        }
    }

    pub(super) struct Hook;

    impl CreateAccount for Hook {
        type Error = std::io::Error;

        async fn account(&self, _: &Tenant, user: &ProviderUser) -> Result<Option<UserId>, std::io::Error> {
            let known = |subject: &str| PEOPLE.iter().find(|person| person.provider == 1 && person.subject == subject);
            Ok(known(user.subject()).and_then(|person| person.hooked).map(|user| UserId::parse(user).unwrap()))
        }
    }
}
