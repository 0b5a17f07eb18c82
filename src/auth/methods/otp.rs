//! One-time codes: the methods `sms`, `email` and `whatsapp`.

use std::time::Duration;

use http::{Response, StatusCode};
use serde::Serialize;

use super::{attempt::Attempt, contacts, method::LoginMethod, step::LoginStep};
use crate::{
    auth::{
        context::RequestContext,
        http::{
            answer::{self, Counters},
            fields::Fields,
            problem::{Code, Problem},
        },
        state::guard::{AttemptKey, submitted},
    },
    delivery::{Channel, Message},
    event::EventKind,
    http::body::Body,
    limit::Spend,
    login::{BoundUser, Challenge, DIGITS, LoginCall, LoginError, OneTimeCode, OpenCode, SendRefused, Subject},
    policy::Method,
    user::{Contact, EmailAddress, Identifier, PhoneNumber},
    util::{clock::ceil_seconds, secret::Digest},
};

/// A method that sends a code through this channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtpMethod {
    pub(super) method: Method,
    pub(super) channel: Channel,
}

#[derive(Serialize)]
struct CodeSent {
    #[serde(flatten)]
    login: Counters,
    challenge: ChallengeShown,
}

#[derive(Serialize)]
struct ChallengeShown {
    r#type: &'static str,
    channel: &'static str,
    digits: usize,
    expires_in: u64,
    resend_in: u64,
}

impl LoginMethod for OtpMethod {
    /// Sends a code if the address is a verified contact of the account. Otherwise it does the same and sends nothing.
    async fn begin(&self, step: LoginStep<'_>) -> Result<Response<Body>, Problem> {
        let contact = match &step.fields.contact_id {
            Some(id) => contacts::chosen(&step, id, self.method).await?,
            None => typed_contact(&step.fields, self.method)?,
        };
        let (core, limits) = (step.cx.core, &step.cx.core.login_limits);
        let (login, keyed, now) = (&step.login, step.keyed, step.now());
        let address = submitted::address(&contact, keyed);
        let code = OneTimeCode::generate();
        step.preview(&LoginCall::MayOpen(self.method))?;

        let spend = spend(step.cx).await.map_err(|wait| step.problem(refused(SendRefused::TooMany(wait))))?;
        let name = Identifier::parse(contact.as_str()).ok();
        let found = step.account(name.as_ref()).await?;
        let device = step.device(step.device_owner(&found, found.active()));
        let key = AttemptKey { tenant: &login.tenant, method: self.method, submitted: &address, account: None, device };
        let pair = match &device {
            Some(device) => submitted::by_device(device, &address, keyed),
            None => step.pair(&address),
        };
        if let Some(error) = core.guard.count_request(key, &pair).await? {
            if let Some(spend) = spend {
                core.limits.messages.refund(spend);
            }
            return Err(step.problem(refused(error)));
        }
        let user = found.active().filter(|account| account.has_verified(&contact)).and(found.user());
        let key = AttemptKey { account: user.as_ref().map(|user| &user.id), ..key };
        let below_limit = core.guard.count_message(key, keyed).await?;
        if !below_limit {
            step.tally(EventKind::LoginCeiling, Some(self.method));
        }
        let owner = user.filter(|_| below_limit);

        let to = (self.method, &address);
        let open = OpenCode::new(to, owner.clone(), &login.id, &code, keyed, (limits, now));
        let update = step.apply(&LoginCall::Open(&Challenge::Code(open))).await?;
        let view = update.view(now)?;
        // the same work without an owner: a message is created, and dropped by the queue
        let expires = now + limits.code_lifetime;
        let message = Message::new(self.channel, login.tenant.clone(), contact.as_str(), code.expose(), expires);
        let sent = step.cx.core.journal.event(EventKind::OtpSent, login, Some(self.method), keyed);
        // the queue reports a message that it has no room for; the caller sees no difference
        let taken = core.queue.push(self.channel, owner.is_some().then_some(message));
        if owner.is_some() && taken {
            step.cx.core.journal.tally_event(&sent);
        }
        let challenge = ChallengeShown {
            r#type: "otp",
            channel: self.channel.as_str(),
            digits: DIGITS,
            expires_in: ceil_seconds(limits.code_lifetime),
            resend_in: ceil_seconds(limits.resend_interval),
        };
        Ok(answer::json(StatusCode::OK, &CodeSent { login: Counters::from(view), challenge }))
    }
}

/// Compares a typed code with the open one.
pub(crate) async fn verify(mut step: LoginStep<'_>) -> Result<Response<Body>, Problem> {
    let guess = step.fields.otp.take().map(|typed| typed.0).unwrap_or_default();
    if guess.is_empty() {
        return Err(Problem::invalid("otp is missing"));
    }
    let (step, keyed) = (&step, step.keyed);
    let of = step.login.open.as_ref().and_then(Challenge::code);
    step.preview(&LoginCall::Verify { of, guess: &guess, keyed, owner: None })?;
    let open = of.ok_or(Problem::denied(LoginError::NoPendingChallenge))?;
    let pair = step.pair(&Digest::from_bytes(open.contact));
    let mut attempt = Attempt::begin(step, open.method, pair).await?;
    let owner = match owner(step, open, &mut attempt).await {
        Ok(owner) => owner,
        Err(problem) => {
            attempt.withdraw().await;
            return Err(problem);
        }
    };
    let update = step.apply(&LoginCall::Verify { of, guess: &guess, keyed, owner: owner.as_ref() }).await?;
    match update.answer {
        Ok(_) => attempt.succeeded().await,
        // the guess was compared, and counts
        Err(LoginError::WrongSecret(_)) => {}
        Err(_) if update.changed => {}
        Err(_) => attempt.withdraw().await,
    }
    step.conclude(&update, open.method)
}

/// Returns the user that the code was sent to, if the account is still active and may prove a step.
async fn owner(step: &LoginStep<'_>, open: &OpenCode, attempt: &mut Attempt<'_>) -> Result<Option<BoundUser>, Problem> {
    let found = match step.login.subject {
        Subject::Unbound => {
            let accounts = &step.cx.core.accounts;
            accounts.of_user(&step.login.tenant, open.owner.as_ref().map(|owner| &owner.id)).await?
        }
        _ => step.account(None).await?,
    };
    let account = found.active().filter(|account| open.owner.as_ref().is_some_and(|owner| owner.id == *account.id()));
    let below_ceiling = attempt.count_for(step.device_owner(&found, account)).await?;
    Ok(account.and(found.user()).filter(|_| below_ceiling))
}

/// Charges a message to the caller's address, or returns how long to wait.
async fn spend(cx: &RequestContext<'_>) -> Result<Option<Spend>, Duration> {
    let Some(address) = cx.known_address() else { return Ok(None) };
    let decision = cx.core.limits.messages.check(&address, 1).await;
    if decision.is_admitted() { Ok(Some(decision.into_spend())) } else { Err(decision.wait()) }
}

fn typed_contact(fields: &Fields, method: Method) -> Result<Contact, Problem> {
    if method == Method::Email {
        let typed = fields.email.as_deref().ok_or(Problem::invalid("email is missing"))?;
        let address = EmailAddress::parse(typed).map_err(|_| Problem::invalid("email is malformed"))?;
        return Ok(Contact::Email(address));
    }
    let typed = fields.phone_number.as_deref().ok_or(Problem::invalid("phone_number is missing"))?;
    let number = PhoneNumber::parse(typed);
    Ok(Contact::Phone(number.map_err(|_| Problem::invalid("phone_number is not in international format"))?))
}

fn refused(refused: SendRefused) -> Problem {
    match refused {
        SendRefused::TooSoon(wait) => {
            Problem::new(Code::SlowDown, "a code was just sent; try again later").retry_in(wait)
        }
        SendRefused::TooMany(wait) => {
            Problem::new(Code::TooManyAttempts, "too many codes were requested; try again later").retry_in(wait)
        }
    }
}
