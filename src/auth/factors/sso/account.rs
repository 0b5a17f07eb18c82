//! The account that a user of another identity provider signs in to, and new links to it.

use super::{outcome::SsoRefusal, row::SsoLink};
use crate::{
    auth::{
        context::RequestContext,
        factors::{
            credentials::{
                credential::{Credential, CurrentProofs, Strength},
                row::Credentials,
                table::{Added, is_added},
            },
            step::LoginStep,
        },
        http::problem::Problem,
    },
    delivery::NoticeKind,
    login::{BoundUser, Login, Subject},
    policy::{FactorClass, Method, MethodSet},
    session::{Proof, UserId},
    sso::{ProviderUser, SsoConnection},
    tenant::Tenant,
    user::{Account, Contact, Identifier},
    util::{clock::UnixTime, public_id::PublicId},
};

/// Returns the user whose account belongs to a provider's user, and the mark of the link, or why it may not prove this step.
pub(super) async fn find_or_link_account(
    step: &LoginStep<'_>,
    (name, connection): (&str, &SsoConnection),
    user: &ProviderUser,
) -> Result<Result<(BoundUser, [u8; 32]), SsoRefusal>, Problem> {
    let (core, tenant) = (step.cx.core, &step.login.tenant);
    // another connection of this tenant can claim the same issuer, so links belong to one connection
    let linked = core.credentials.by_link(tenant, (name, user.issuer(), user.subject())).await?;
    let is_new = linked.is_none();
    let (id, link) = match linked {
        Some((id, _)) if !step.login.subject.accepts(&id) => return Ok(Err(SsoRefusal::OtherAccount)),
        Some(found) => found,
        None => {
            let (id, strength) = match first_link(step, connection, user).await? {
                Ok(first) => first,
                Err(refusal) => return Ok(Err(refusal)),
            };
            (id, new_link(name, user, step.now(), strength))
        }
    };
    // a link that is too weak for this login proves nothing, and is not made either
    if !link.strength.counts_for(&step.login.plan) {
        return Ok(Err(SsoRefusal::TooWeak));
    }
    if is_new {
        // its user must be told of it
        step.cx.continue_without_caller();
    }
    // only the user can make a link again that the user has removed, and no hook of the operator
    let is_by_user = !link.strength.is_full();
    if is_new {
        let account = core.accounts.of_user(tenant, Some(&id)).await?;
        let added = core.credentials.add_link((tenant, &id), &link, is_by_user).await;
        // after an error, it may be there too
        let may_be_there = match is_added(&added) {
            Some(is_added) => is_added,
            None => !core.credentials.by_id(tenant, link.link_id()).await.is_ok_and(|found| found.is_none()),
        };
        if let Some(account) = account.filter(|account| may_be_there && !account.is_disabled()) {
            let language = step.cx.language(&step.login);
            let announced = core.announce(&*step.login, (tenant, &account), NoticeKind::LinkAdded, language).await;
            // the link is made, so the step goes on
            step.cx.log_failures([announced.err()]);
        }
        if added? != Added::Done {
            return Ok(Err(SsoRefusal::NotLinked));
        }
    }
    let account = core.accounts.of_user(tenant, Some(&id)).await?;
    let found = core.accounts.with_generation(tenant, account).await?;
    // no new link stays if the account was closed or forgotten meanwhile, or all logins of its user were ended
    let is_ended = step.login.subject.user().is_some_and(|user| user.generation < found.generation());
    if is_new && (is_ended || found.active().is_none()) {
        let _removed = core.credentials.discard_link((tenant, &id), &link).await?;
        return Ok(Err(SsoRefusal::AccountClosed));
    }
    let mark = link.mark(step.keyed);
    Ok(found.active().and(found.user()).map(|user| (user, mark)).ok_or(SsoRefusal::AccountClosed))
}

/// Returns the account that a provider's user without a link may be linked to, and the strength of that link, or why there is
/// none.
async fn first_link(
    step: &LoginStep<'_>,
    connection: &SsoConnection,
    user: &ProviderUser,
) -> Result<Result<(UserId, Strength), SsoRefusal>, Problem> {
    let (core, login) = (step.cx.core, &step.login);
    if login.subject == Subject::Unbound
        && let Some(created) = connection.account_from_hook(&login.tenant, user).await?
    {
        return Ok(Ok((created, Strength::FULL.clone())));
    }
    // before the first proof, the user behind a typed name must not show
    let (Subject::User(bound), Some(who)) = (&login.subject, login.authentication(None)) else {
        return refusal_without_account(step.cx, &login.tenant, user).await.map(Err);
    };
    if let Some(refusal) = refusal_of_address(user) {
        return Ok(Err(refusal));
    }
    let Some(email) = connection.trusted_email(user).filter(|_| is_vouched_for(login)) else {
        return Ok(Err(SsoRefusal::NotLinked));
    };
    // a password that was changed meanwhile no longer counts
    let current = core.current_proofs(&who, step.keyed).await?;
    let current = current.filter(|current| current.proofs.len() == who.proofs.len());
    let current = current.filter(|current| current.account.has_verified(&Contact::Email(email)));
    let Some(CurrentProofs { strengths, .. }) = current else { return Ok(Err(SsoRefusal::NotLinked)) };
    Ok(Ok((bound.id.clone(), strength_of_link(login, &strengths))))
}

/// Returns why a user of a provider who is not linked has no account here.
///
/// Only the owner of an address learns whether it belongs to an account: the provider must have verified it.
async fn refusal_without_account(
    cx: &RequestContext<'_>,
    tenant: &Tenant,
    user: &ProviderUser,
) -> Result<SsoRefusal, Problem> {
    if let Some(refusal) = refusal_of_address(user) {
        return Ok(refusal);
    }
    let Some(name) = user.email().and_then(|email| Identifier::parse(email).ok()) else {
        return Ok(SsoRefusal::NoAccount);
    };
    let found = cx.core.accounts.named(tenant, &name).await?;
    Ok(if found.is_some_and(|account| !account.is_disabled()) {
        SsoRefusal::AccountExists
    } else {
        SsoRefusal::NoAccount
    })
}

/// Returns what is wrong with the address that a provider names, if it is not usable.
fn refusal_of_address(user: &ProviderUser) -> Option<SsoRefusal> {
    match user.email() {
        None => Some(SsoRefusal::NoAddress),
        Some(_) if !user.email_verified() => Some(SsoRefusal::AddressNotVerified),
        Some(_) => None,
    }
}

/// Returns the methods that were proved in this very login and vouch for a first link. Proofs of an earlier login do
/// not count, because somebody else may use the browser by now. A code by e-mail does not count, because a thief of the mailbox
/// can have the account at the provider that runs it, too.
fn vouching(login: &Login) -> MethodSet {
    let own: &[Proof] = login.proofs.get(login.carried..).unwrap_or_default();
    let methods = own.iter().filter_map(|proof| Method::from_name(&proof.method));
    methods.filter(|method| method.class() != FactorClass::Mailbox).collect()
}

fn is_vouched_for(login: &Login) -> bool {
    !vouching(login).is_empty()
}

/// Returns the strength of a link that is made in this login, whose proofs have these strengths. The trusted provider proves
/// the address, which counts like another factor.
fn strength_of_link(login: &Login, strengths: &[Strength]) -> Strength {
    let methods = vouching(login).with(Method::Sso);
    Strength::of_proofs(methods.classes(), methods, strengths)
}

/// Returns whether a user has a link to this provider that counts in a login.
pub(crate) fn has_link_for(login: &Login, row: &Credentials, name: &str) -> bool {
    row.links.iter().any(|link| link.provider == name && link.strength.counts_for(&login.plan))
}

/// Returns whether a user who comes back from this provider can be linked, and prove the next step at once. The proofs of the
/// login count for its plan already.
pub(crate) fn may_link(login: &Login, connection: &SsoConnection, account: &Account) -> bool {
    is_vouched_for(login)
        && strength_of_link(login, &[]).counts_for(&login.plan)
        && connection.trusts_contact_of(account)
}

/// Creates the row of a link to this user of a provider.
pub(crate) fn new_link(provider: &str, user: &ProviderUser, now: UnixTime, strength: Strength) -> SsoLink {
    SsoLink {
        enrolment: PublicId::random(),
        issuer: user.issuer().to_owned(),
        subject: user.subject().to_owned(),
        provider: provider.to_owned(),
        name: shown_name(user),
        created_at: now.as_secs(),
        strength,
    }
}

/// Returns what the account page shows, cut to a reasonable length.
fn shown_name(user: &ProviderUser) -> String {
    let name = user.email().or(user.name()).unwrap_or_default();
    name.chars().filter(|char| !char.is_control()).take(100).collect()
}
