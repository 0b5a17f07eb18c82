//! One-time codes: the methods `sms`, `email` and `whatsapp`.

use http::{Response, StatusCode};
use serde::Serialize;

use super::{
    answer::{self, Counters},
    fields::Fields,
    guard::Tried,
    problem::{Code, Problem},
    step::Entered,
    visit::Visit,
};
use crate::{
    body::Body,
    clock::ceil_seconds,
    delivery::{Channel, Message},
    event::EventKind,
    limit::Decision,
    login::{CODE_LIVES, COOL_DOWN, Call, DIGITS, OneTimeCode, OpenCode, TooSoon},
    policy::Method,
    secret::Digest,
    user::{Contact, EmailAddress, PhoneNumber},
};

#[derive(Serialize)]
struct Opened {
    #[serde(flatten)]
    login: Counters,
    challenge: Challenge,
}

#[derive(Serialize)]
struct Challenge {
    r#type: &'static str,
    channel: &'static str,
    digits: usize,
    expires_in: u64,
    resend_in: u64,
}

/// Sends a code, if the address is a verified one of the account; otherwise all is the same, and nothing is sent.
pub(super) async fn send(visit: &mut Visit<'_>, entered: Entered, method: Method) -> Result<Response<Body>, Problem> {
    let contact = contact(&entered.fields, method)?;
    let Some(channel) = channel(method).filter(|channel| visit.inner.config.queue.has(*channel)) else {
        return Err(Problem::new(Code::MethodNotAllowed, "this method is not asked for now"));
    };
    let keyed = visit.inner.keyed().await?;
    let running = visit.inner.running();
    let (login, now) = (&entered.login, running.logins.now());
    let to = match &contact {
        Contact::Email(address) => address.as_str(),
        Contact::Phone(number) => number.as_str(),
    };
    let address = keyed.hash("address", [login.tenant.as_str().as_bytes(), to.as_bytes()]);
    let code = OneTimeCode::generate();
    entered
        .foresee(visit, &Call::Open(&OpenCode::new(method, &address, None, &login.id, code.expose(), keyed, now)))?;

    let tried = Tried { tenant: &login.tenant, method, submitted: &address, account: None };
    if let Some(Decision::Refused(refusal)) = running.messages.as_ref().map(|limit| limit.check(&visit.address(), 1)) {
        let wait = refusal.rate_limit.map(|limit| limit.wait()).unwrap_or_default();
        return Err(refused(TooSoon::Spent(wait)).of(login.view(now)));
    }
    let asked = running.guard.count_request(tried, login.identifier.as_str().as_bytes(), keyed).await?;
    if let Err(too_soon) = asked {
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
    let moved = entered.step(visit, &Call::Open(&open)).await?;
    let view = moved.told(now)?;
    // the same work for nobody: a message is made, and dropped where another would be sent
    let message = Message::new(channel, login.tenant.clone(), to, code.expose(), now + CODE_LIVES);
    let sent = visit.inner.journal().about(EventKind::OtpSent, login, Some(method), keyed);
    // what finds no room is reported by the queue; the caller sees no difference
    let taken = running.queue.push(channel, owner.is_some().then_some(message));
    if owner.is_some() && taken {
        visit.inner.journal().tally_event(&sent);
    }
    let challenge = Challenge {
        r#type: "otp",
        channel: channel.as_str(),
        digits: DIGITS,
        expires_in: ceil_seconds(CODE_LIVES),
        resend_in: ceil_seconds(COOL_DOWN),
    };
    Ok(answer::json(StatusCode::OK, &Opened { login: Counters::from(view), challenge }))
}

/// Takes a code back.
pub(super) async fn verify(visit: &mut Visit<'_>, mut entered: Entered) -> Result<Response<Body>, Problem> {
    let guess = entered.fields.otp.take().map(|typed| typed.0).unwrap_or_default();
    if guess.is_empty() {
        return Err(Problem::invalid("otp is missing"));
    }
    let keyed = visit.inner.keyed().await?;
    let call = Call::Verify { guess: &guess, keyed, owner: None };
    entered.foresee(visit, &call)?;
    let Some(open) = entered.login.open.clone() else {
        return Err(Problem::denied(crate::login::Denied::NoPendingChallenge));
    };
    let tenant = entered.login.tenant.clone();
    let address = Digest::from_bytes(open.address);
    let tried = Tried { tenant: &tenant, method: open.method, submitted: &address, account: None };
    let spend = entered.count(visit, tried, keyed).await?;

    let account = entered.account(visit).await?;
    let owner = account.map(|account| account.id().clone()).filter(|id| Some(id) == open.owner.as_ref());
    let tried = Tried { account: owner.as_ref(), ..tried };
    let guard = &visit.inner.running().guard;
    let below_ceiling = guard.count_silently(tried, keyed).await?;
    if !below_ceiling {
        visit.inner.journal().tally_login(EventKind::LoginCeiling, &entered.login, Some(open.method), keyed);
    }
    let owner_below = owner.as_ref().filter(|_| below_ceiling);
    let moved = entered.step(visit, &Call::Verify { guess: &guess, keyed, owner: owner_below }).await?;
    if moved.answer.is_ok() {
        guard.clear(tried, keyed).await;
        visit.inner.running().failures.refund(spend);
    }
    Entered::conclude(visit, &moved, open.method, keyed)
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
