//! Sign-up: `POST /sign-up/code` and `verify` prove an address, `invitation` accepts one that was proved by a link, and
//! `POST /sign-up` creates the account.
//!
//! The calls are those of a login that has begun without a name. It binds them to one browser, and goes on as the login of the
//! new user. An address that has an account gets the same answers; only the message differs.

use std::mem::take;

use http::StatusCode;
use serde_json::json;

use super::links::{accept_link, invalid_link, place_of_login};
use crate::{
    auth::{
        context::stages::OwnLogin,
        factors::{
            self,
            step::{LoginStep, prepare_login_step},
        },
        http::{
            answer,
            fields::Fields,
            problem::{Code, EndpointResult, Problem},
            route::SIGN_IN,
        },
        state::tickets::{Ticket, TicketPlace, TicketPurpose},
    },
    delivery::{Channel, Link, LinkKind},
    event::EventKind,
    login::LoginCall,
    password::Password,
    policy::{Method, MethodSet},
    session::{Proof, UserId},
    user::{Contact, EmailAddress, Identifier, NewAccount, NewUser, sign_up::SignUp},
    util::public_id::PublicId,
};

/// The longest name of a user, in bytes.
const LONGEST_NAME: usize = Identifier::MAX_LEN;

/// Sends a code to the address, or the message that it has an account.
pub(crate) async fn send_sign_up_code(own: &OwnLogin<'_>, fields: Fields) -> EndpointResult {
    let step = prepare_sign_up(own, fields).await?;
    let core = step.cx.core;
    if core.sign_up.kind != SignUp::Open {
        let detail = "accounts are created by invitation only";
        return Err(step.problem(Problem::new(Code::AccessDenied, detail)));
    }
    let typed = step.fields.email.as_deref().ok_or(Problem::invalid("email is missing"))?;
    let address = EmailAddress::parse(typed).map_err(|_| Problem::invalid("email is malformed"))?;
    if !core.sign_up.allows(&address) {
        return Err(step.problem(Problem::new(Code::AccessDenied, "addresses of this domain can't sign up here")));
    }
    let (tenant, contact) = (&step.login.tenant, Contact::Email(address));
    let found = core.accounts.named(tenant, &identifier_of(&contact)?).await?;
    let sign_in = core.link_to(tenant, core.first_party.as_ref().map_or("", |_| SIGN_IN));
    let link = Link::new(LinkKind::AccountExists, sign_in);
    let (ticket, language) = (Ticket::for_contact(contact.clone()), step.cx.language(&step.login));
    let instead = found.map(|_| link);
    let sent = step.cx.send_ticket_code(place(&step), (&ticket, &contact), Channel::Email, language, instead).await;
    let sent = sent.map_err(|problem| step.problem(problem))?;
    step.apply(&LoginCall::Touch).await?;
    Ok(answer::json(StatusCode::OK, &sent))
}

/// Compares a typed code with the one that was sent.
pub(crate) async fn verify_sign_up_code(own: &OwnLogin<'_>, mut fields: Fields) -> EndpointResult {
    let typed = fields.otp.take().map(|typed| typed.0).unwrap_or_default();
    let step = prepare_sign_up(own, fields).await?;
    if typed.is_empty() {
        return Err(Problem::invalid("otp is missing"));
    }
    let proved = step.cx.prove_ticket_code(place(&step), &typed).await;
    proved.map_err(|problem| step.problem(problem))?;
    let view = step.apply(&LoginCall::Touch).await?.response_view(step.now())?;
    Ok(answer::login_progress(view, ()))
}

/// Accepts the link of an invitation. Its address then counts as proved in this browser.
pub(crate) async fn accept_invitation(own: &OwnLogin<'_>, mut fields: Fields) -> EndpointResult {
    let secret = fields.link.take();
    let step = prepare_sign_up(own, fields).await?;
    let (ticket, view) = accept_link(&step, (TicketPurpose::Invitation, secret), place(&step)).await?;
    let email = ticket.contact.as_ref().map(|contact| contact.as_str().to_owned()).unwrap_or_default();
    Ok(answer::login_progress(view, json!({ "email": email })))
}

/// Creates the account of a proved address. The login goes on with the address and the password as its proofs.
pub(crate) async fn create_account(own: &OwnLogin<'_>, mut fields: Fields) -> EndpointResult {
    let (password, name) = (fields.password.take(), fields.name.take());
    let step = prepare_sign_up(own, fields).await?;
    let (core, keyed, tenant) = (step.cx.core, step.keyed, &step.login.tenant);
    let proved = core.tickets.proved(place(&step), keyed).await?;
    let proved = proved.ok_or_else(|| step.problem(Problem::new(Code::StepRequired, "prove an address first")))?;
    let contact = proved.value.ticket.contact.clone().ok_or_else(Problem::unavailable)?;
    let password = password.map(|mut typed| Password::new(take(&mut *typed.0)));
    let password = password.ok_or(Problem::invalid("password is missing"))?;
    let name = name.as_deref().map(str::trim);
    if name.is_some_and(|name| !(1..=LONGEST_NAME).contains(&name.len()) || name.chars().any(char::is_control)) {
        return Err(Problem::invalid("name must have 1 to 320 bytes and no control characters"));
    }
    let id = UserId::parse(PublicId::random().to_string()).map_err(|_| Problem::unavailable())?;
    let new = NewUser::new(id, identifier_of(&contact)?).contact(contact.clone());
    let new = name.into_iter().fold(new, NewUser::name);
    let hash = core.hash_new_password(tenant, new.account(), password).await;
    let new = new.password(hash.map_err(|problem| step.problem(problem))?);
    let new = new.claims_of_invitation(proved.value.ticket.claims.clone());
    // it may have been withdrawn or used since its link was opened
    if !core.tickets.is_current(tenant, &proved.value.ticket, keyed).await? {
        return Err(step.problem(invalid_link()));
    }
    let outcome = match core.users.create(tenant, new).await? {
        NewAccount::Created(user) => Ok(log_in(&step, &user, &contact).await?),
        // the caller has proved ownership of the address
        NewAccount::Taken => Err(step.problem(Problem::new(Code::AccountExists, "this address has an account"))),
        NewAccount::NotOffered => return Err(step.problem(not_offered())),
    };
    // the proof and the invitation end last, so that a call that failed can be repeated: an address has one account
    let used_up = core.tickets.use_up(place(&step), &proved, keyed).await;
    let ended = core.tickets.end_invitation((tenant, &contact), keyed).await;
    step.cx.log_failures([used_up.err(), ended.err()]);
    outcome
}

/// Binds the login to the new user.
async fn log_in(step: &LoginStep<'_>, user: &UserId, contact: &Contact) -> EndpointResult {
    let (core, keyed, now, tenant) = (step.cx.core, step.keyed, step.now(), &step.login.tenant);
    let account = core.accounts.of_user(tenant, Some(user)).await?;
    let found = core.accounts.with_generation(tenant, account).await?;
    let (Some(account), Some(user)) = (found.active(), found.user()) else { return Err(Problem::unavailable()) };
    let email = Some(factors::contact_mark(contact, keyed));
    let password = crate::auth::core::Core::current_mark(account, None, Method::Password, keyed);
    let counting = proofs_of_plan(step);
    let proof = |(method, mark): (Method, Option<[u8; 32]>)| {
        let proof = Proof { method: method.as_str().into(), at: now.as_nanos(), mark, elsewhere: None };
        counting.contains(method).then_some(proof)
    };
    let proofs: Vec<Proof> =
        [(Method::Email, email), (Method::Password, password)].into_iter().filter_map(proof).collect();
    let update = step.apply(&LoginCall::SignUp(Some((&user, &proofs)))).await?;
    core.journal.record(EventKind::AccountCreated, &*update.stored.value, None, keyed);
    let view = update.response_view(step.now())?;
    Ok(answer::login_progress(view, ()))
}

/// Returns the proofs of a new account: both of them if they complete the login, so that its user can go on to a second factor,
/// and otherwise those that bring it closer to its end.
fn proofs_of_plan(step: &LoginStep<'_>) -> MethodSet {
    let proved = (Method::Email | Method::Password).intersection(step.cx.core.enabled(&step.login.tenant));
    if step.login.plan.is_met_by(proved) { proved } else { step.login.plan.closest(proved) }
}

/// Checks that an account can be created in this login.
async fn prepare_sign_up<'a>(own: &'a OwnLogin<'_>, fields: Fields) -> Result<LoginStep<'a>, Problem> {
    let step = prepare_login_step(own, fields).await?;
    step.refuse_reset()?;
    step.preview(&LoginCall::SignUp(None))?;
    if proofs_of_plan(&step).is_empty() {
        return Err(step.problem(Problem::unmet()));
    }
    Ok(step)
}

fn place<'s>(step: &'s LoginStep<'_>) -> TicketPlace<'s> {
    place_of_login(step, TicketPurpose::SignUp)
}

fn identifier_of(contact: &Contact) -> Result<Identifier, Problem> {
    Identifier::parse(contact.as_str()).map_err(|_| Problem::invalid("email is malformed"))
}

pub(super) fn not_offered() -> Problem {
    Problem::new(Code::AccessDenied, "these accounts don't offer this")
}
