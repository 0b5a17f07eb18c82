//! One-time codes: the methods `sms`, `email` and `whatsapp`.

use std::time::Duration;

use http::{Response, StatusCode};
use serde::Serialize;

use super::{
    answer::{self, Counters},
    attempt::Attempt,
    fields::Fields,
    guard::{Tried, submitted},
    problem::{Code, Problem},
    step::Entered,
    visit::Visit,
};
use crate::{
    delivery::{Channel, Message},
    event::EventKind,
    http::body::Body,
    limit::Spend,
    login::{CODE_LIVES, COOL_DOWN, Call, Challenge, DIGITS, Denied, OneTimeCode, OpenCode, TooSoon},
    policy::Method,
    session::UserId,
    user::{Contact, EmailAddress, PhoneNumber},
    util::{clock::ceil_seconds, secret::Digest},
};

#[derive(Serialize)]
struct Opened {
    #[serde(flatten)]
    login: Counters,
    challenge: Shown,
}

#[derive(Serialize)]
struct Shown {
    r#type: &'static str,
    channel: &'static str,
    digits: usize,
    expires_in: u64,
    resend_in: u64,
}

/// Sends a code, if the address is a verified one of the account; otherwise all is the same, and nothing is sent.
pub(super) async fn send(visit: &mut Visit<'_>, entered: Entered, method: Method) -> Result<Response<Body>, Problem> {
    let Some(channel) = channel(method).filter(|channel| visit.inner.config.queue.has(*channel)) else {
        // it was enabled when the login began
        let now = visit.inner.running().logins.now();
        return Err(Problem::denied(Denied::MethodNotAllowed).of(entered.login.view(now)));
    };
    let contact = contact(&entered.fields, method)?;
    let keyed = visit.inner.keyed().await?;
    let running = visit.inner.running();
    let (login, now) = (&entered.login, running.logins.now());
    let address = submitted::address(&login.tenant, &contact, keyed);
    let code = OneTimeCode::generate();
    entered.foresee(visit, &Call::MayOpen(method))?;

    let tried = Tried { tenant: &login.tenant, method, submitted: &address, account: None };
    let spend = spend(visit).map_err(|wait| refused(TooSoon::Spent(wait)).of(login.view(now)))?;
    let pair = submitted::pair(&login.identifier, &address, keyed);
    let asked = running.guard.count_request(tried, &pair).await?;
    if let Err(too_soon) = asked {
        if let Some(spend) = spend {
            running.messages.refund(spend);
        }
        return Err(refused(too_soon).of(login.view(now)));
    }
    let account = entered.account(visit).await?;
    let owner = account.filter(|account| account.has_verified(&contact)).map(|account| account.id().clone());
    let tried = Tried { account: owner.as_ref(), ..tried };
    let below_ceiling = running.guard.count_message(tried, keyed).await?;
    if !below_ceiling {
        visit.inner.journal().tally_login(EventKind::LoginCeiling, login, Some(method), keyed);
    }
    let owner = owner.filter(|_| below_ceiling);

    let open = OpenCode::new(method, &address, owner.clone(), &login.id, code.expose(), keyed, now);
    let moved = entered.step(visit, &Call::Open(&Challenge::Code(open))).await?;
    let view = moved.told(now)?;
    // the same work for nobody: a message is made, and dropped where another would be sent
    let message = Message::new(channel, login.tenant.clone(), contact.as_str(), code.expose(), now + CODE_LIVES);
    let sent = visit.inner.journal().about(EventKind::OtpSent, login, Some(method), keyed);
    // what finds no room is reported by the queue; the caller sees no difference
    let taken = running.queue.push(channel, owner.is_some().then_some(message));
    if owner.is_some() && taken {
        visit.inner.journal().tally_event(&sent);
    }
    let challenge = Shown {
        r#type: "otp",
        channel: channel.as_str(),
        digits: DIGITS,
        expires_in: ceil_seconds(CODE_LIVES),
        resend_in: ceil_seconds(COOL_DOWN),
    };
    Ok(answer::json(StatusCode::OK, &Opened { login: Counters::from(view), challenge }))
}

/// Charges a message to the address that asks for it; or says how long to wait.
fn spend(visit: &Visit<'_>) -> Result<Option<Spend>, Duration> {
    let Some(address) = visit.known_address() else { return Ok(None) };
    let decision = visit.inner.running().messages.check(&address, 1);
    if decision.is_admitted() { Ok(Some(decision.into_spend())) } else { Err(decision.wait()) }
}

/// Takes a code back.
pub(super) async fn verify(visit: &mut Visit<'_>, mut entered: Entered) -> Result<Response<Body>, Problem> {
    let guess = entered.fields.otp.take().map(|typed| typed.0).unwrap_or_default();
    if guess.is_empty() {
        return Err(Problem::invalid("otp is missing"));
    }
    let keyed = visit.inner.keyed().await?;
    let of = entered.login.open.as_ref().map(|Challenge::Code(open)| open);
    entered.foresee(visit, &Call::Verify { of, guess: &guess, keyed, owner: None })?;
    let open = of.ok_or(Problem::denied(Denied::NoPendingChallenge))?;
    let pair = submitted::pair(&entered.login.identifier, &Digest::from_bytes(open.address), keyed);
    let mut attempt = Attempt::begin(visit, &entered, open.method, pair, keyed).await?;
    let owner = match owner(visit, &entered, open, &mut attempt).await {
        Ok(owner) => owner,
        Err(problem) => {
            attempt.take_back(visit).await;
            return Err(problem);
        }
    };
    let moved = entered.step(visit, &Call::Verify { of, guess: &guess, keyed, owner: owner.as_ref() }).await?;
    match moved.answer {
        Ok(_) => attempt.succeeded(visit).await,
        // it was compared, and counts
        Err(Denied::Wrong(_)) => {}
        Err(_) if moved.changed => {}
        Err(_) => attempt.take_back(visit).await,
    }
    Entered::conclude(visit, &moved, open.method, keyed)
}

/// Who may be proved by the code: whose address it went to, if that is still the account of the login.
async fn owner(
    visit: &Visit<'_>,
    entered: &Entered,
    open: &OpenCode,
    attempt: &mut Attempt<'_>,
) -> Result<Option<UserId>, Problem> {
    let account = entered.account(visit).await?;
    let owner = account.map(|account| account.id().clone()).filter(|id| Some(id) == open.owner.as_ref());
    let below_ceiling = attempt.count_for(visit, owner.as_ref()).await?;
    Ok(owner.filter(|_| below_ceiling))
}

fn contact(fields: &Fields, method: Method) -> Result<Contact, Problem> {
    if method == Method::Email {
        let typed = fields.email.as_deref().ok_or(Problem::invalid("email is missing"))?;
        let address = EmailAddress::parse(typed).map_err(|_| Problem::invalid("email is malformed"))?;
        return Ok(Contact::Email(address));
    }
    let typed = fields.phone_number.as_deref().ok_or(Problem::invalid("phone_number is missing"))?;
    let number = PhoneNumber::parse(typed);
    Ok(Contact::Phone(number.map_err(|_| Problem::invalid("phone_number is not in international format"))?))
}

fn channel(method: Method) -> Option<Channel> {
    match method {
        Method::Sms => Some(Channel::Sms),
        Method::Email => Some(Channel::Email),
        Method::Whatsapp => Some(Channel::Whatsapp),
        Method::Password | Method::Sso | Method::Passkey => None,
    }
}

fn refused(too_soon: TooSoon) -> Problem {
    match too_soon {
        TooSoon::CoolDown(wait) => Problem::new(Code::SlowDown, "a code was sent just now").retry_in(wait),
        TooSoon::Spent(wait) => Problem::new(Code::TooManyAttempts, "no more codes are sent for now").retry_in(wait),
    }
}
