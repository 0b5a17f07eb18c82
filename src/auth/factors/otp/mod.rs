//! One-time codes: the methods `sms`, `email` and `whatsapp`.

pub(crate) mod contacts;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    auth::{
        context::stages::OwnLogin,
        factors::{
            attempt::{AddressSpend, Attempt},
            step::{LoginStep, prepare_login_step},
        },
        http::{
            answer,
            fields::Fields,
            problem::{Code, EndpointResult, Problem},
        },
        state::{
            accounts::FoundAccount,
            guard::{AttemptKey, CodeDecision, CountedCode, submitted},
            logins::{LoginUpdate, ROUNDS},
        },
    },
    delivery::{Channel, Message},
    event::EventKind,
    login::{
        BoundUser, Challenge, DIGITS, LoginCall, LoginError, OneTimeCode, OpenCode, RESEND_INTERVAL, SendRefused,
        Subject,
    },
    policy::{EnrolledFactors, Method},
    store::{StoreError, StoreErrorKind, batch::Batch},
    user::{Account, Contact, EmailAddress, Identifier, PhoneNumber},
    util::{clock::ceil_seconds, secret::SecretDigest},
};

#[derive(Serialize)]
struct ChallengeShown {
    r#type: &'static str,
    channel: &'static str,
    digits: usize,
    expires_in: u64,
    resend_in: u64,
}

/// Sends a code if the address is a verified contact of the account. Otherwise it does the same and sends nothing.
pub(crate) async fn send_login_code(step: LoginStep<'_>, method: Method, channel: Channel) -> EndpointResult {
    let contact = match &step.fields.contact_id {
        Some(id) => contacts::chosen(&step, id, method).await?,
        None => typed_contact(&step.fields, method)?,
    };
    let (core, limits) = (step.cx.core, &step.cx.core.login_limits);
    let (login, keyed, now) = (&*step.login, step.keyed, step.now());
    let address = submitted::address(&contact, keyed);
    let code = OneTimeCode::generate();
    step.preview(&LoginCall::MayOpen(method))?;

    let spend = AddressSpend::spend_one(step.cx, &core.limits.messages)
        .await
        .map_err(|wait| step.problem(send_refusal_problem(SendRefused::TooMany(wait))))?;
    let name = Identifier::parse(contact.as_str()).ok();
    let mut found = step.for_batch(step.account_of(name.as_ref()).await?).await?;
    let device = step.device(step.device_owner(&found, found.active()));
    let owner = found.active().filter(|account| account.has_verified(&contact)).map(|account| account.id().clone());
    let tenant = &login.tenant;
    let key = AttemptKey { tenant, method, submitted: &address, account: owner.as_ref(), device };
    let pair = match &device {
        Some(device) => submitted::by_device(device, &address, keyed),
        None => step.pair(&address),
    };
    let open = |owner| {
        let to = (method, &address);
        Challenge::Code(OpenCode::new(to, owner, &login.id, &code, keyed, (limits, now)))
    };
    let (update, below_limit) = match open_challenge(&step, &mut found, key, &pair, open).await? {
        Ok(opened) => opened,
        Err(error) => {
            spend.refund();
            return Err(step.problem(send_refusal_problem(error)));
        }
    };
    let view = update.response_view(now)?;
    let is_sent = owner.is_some() && below_limit;
    // the same work without an owner: a message is created and queued, but not sent
    let expires = now + limits.code_lifetime;
    let message = Message::new(channel, login.tenant.clone(), contact.as_str(), code.expose(), expires);
    let message = message.in_language(step.cx.language(login)).with_words(core.pages.words.clone());
    let journal = &core.journal;
    let sent = journal.log.is_some().then(|| journal.event(EventKind::OtpSent, login, Some(method), keyed));
    // the queue reports a message that it has no room for; the caller sees no difference
    let taken = match is_sent {
        true => core.queue.push(channel, message),
        false => core.queue.push_decoy(channel, message),
    };
    if let (Some(sent), true) = (sent, is_sent && taken) {
        journal.tally_event(&sent);
    }
    let challenge = ChallengeShown {
        r#type: "otp",
        channel: channel.as_str(),
        digits: DIGITS,
        expires_in: ceil_seconds(limits.code_lifetime),
        resend_in: ceil_seconds(RESEND_INTERVAL),
    };
    Ok(answer::login_progress(view, BTreeMap::from([("challenge", challenge)])))
}

/// Counts a request for a code and opens its challenge, in one call of the store. Returns the login, and whether the
/// address was below its limit, or why the request is refused.
async fn open_challenge(
    step: &LoginStep<'_>,
    found: &mut FoundAccount,
    key: AttemptKey<'_>,
    pair: &SecretDigest,
    challenge: impl Fn(Option<BoundUser>) -> Challenge,
) -> Result<Result<(LoginUpdate, bool), SendRefused>, Problem> {
    let (core, keyed) = (step.cx.core, step.keyed);
    let mut counted = CountedCode::default();
    let ids = [*pair, key.messages(keyed)];
    for _ in 0..ROUNDS {
        let rows = step.read_with(found, core.guard.prepare_code_reads(key.tenant, &ids)?).await?;
        let decision = core.guard.decide_code(key, (ids, rows, counted))?;
        let CodeDecision { below_limit, counts } = match decision {
            Ok(decision) => decision,
            Err(refused) => return Ok(Err(refused)),
        };
        let latest = step.latest();
        let generation = found.generation();
        let owner = key.account.filter(|_| below_limit).map(|id| BoundUser { id: id.clone(), generation });
        let challenge = challenge(owner);
        let prepared = core.logins.prepare(&step.digest, &latest, &LoginCall::Open(&challenge))?;
        let Some(write) = prepared.write.clone() else {
            return Ok(Ok((prepared.update_after_write(None, latest), below_limit)));
        };
        let mut batch = Batch::without_user(&core.store);
        let (counts, write) = (batch.add_all(counts), batch.add(write));
        let outcomes = batch.run().await?;
        if !counted.note(below_limit, &counts, &outcomes) {
            continue;
        }
        if !below_limit {
            step.tally(EventKind::LoginCeiling, Some(key.method));
        }
        let update = match outcomes.version(&write) {
            Some(version) => step.applied(prepared.update_after_write(Some(version), latest)),
            None => step.apply(&LoginCall::Open(&challenge)).await?,
        };
        return Ok(Ok((update, below_limit)));
    }
    Err(StoreError::from(StoreErrorKind::Busy).into())
}

/// Compares a typed code with the open one.
pub(crate) async fn verify_login_code(own: &OwnLogin<'_>, fields: Fields) -> EndpointResult {
    let mut step = prepare_login_step(own, fields).await?;
    let guess = step.fields.otp.take().map(|typed| typed.0).unwrap_or_default();
    if guess.is_empty() {
        return Err(Problem::invalid("otp is missing"));
    }
    let (step, keyed) = (&step, step.keyed);
    let of = step.login.open.as_ref().and_then(Challenge::code);
    step.preview(&LoginCall::Verify { of, guess: &guess, keyed, owner: None, factors: EnrolledFactors::default() })?;
    let open = of.ok_or(Problem::denied(LoginError::NoPendingChallenge))?;
    let pair = step.pair(&SecretDigest::from_bytes(open.contact));
    let mut attempt = Attempt::start_attempt(step, open.method, pair).await?;
    match settle(step, open, &guess, &mut attempt).await {
        Ok(update) => {
            match update.answer {
                Ok(_) => attempt.refund(),
                // the guess was compared, and counts
                Err(LoginError::WrongSecret(_)) => {}
                Err(_) if update.changed => {}
                Err(_) => attempt.withdraw().await,
            }
            step.conclude(&update, open.method)
        }
        Err(problem) => {
            attempt.withdraw().await;
            Err(problem)
        }
    }
}

/// Compares a guess, and stores the outcome in one call of the store: first the counts, and then the login. A right guess
/// removes the failures before it. It counts only if no other attempt was counted since the rows were read, so as many
/// guesses are compared as one after the other.
async fn settle(
    step: &LoginStep<'_>,
    open: &OpenCode,
    guess: &str,
    attempt: &mut Attempt<'_>,
) -> Result<LoginUpdate, Problem> {
    let (core, login, keyed) = (step.cx.core, &step.login, step.keyed);
    let user = match &login.subject {
        Subject::Unbound => open.owner.as_ref().map(|owner| &owner.id),
        subject => subject.user().map(|user| &user.id),
    };
    let mut found = step.for_batch(core.accounts.of_user(&login.tenant, user).await?).await?;
    let may_prove = |account: &&Account| open.owner.as_ref().is_some_and(|owner| owner.id == *account.id());
    for _ in 0..ROUNDS {
        attempt.set_owner(step.device_owner(&found, found.active().filter(may_prove)));
        let ids = attempt.key().ids(keyed);
        let read = step.read_with(&mut found, core.guard.prepare_attempt_reads(&login.tenant, &ids)?).await?;
        let rows: Vec<_> = ids.into_iter().zip(read).collect();
        let decision = attempt.decide(&rows)?;
        let owner = found.active().filter(may_prove).and(found.user()).filter(|_| decision.below_ceiling);
        let latest = step.latest();
        let (owner, factors) = (owner.as_ref(), EnrolledFactors::default());
        let call = LoginCall::Verify { of: Some(open), guess, keyed, owner, factors };
        let mut prepared = core.logins.prepare(&step.digest, &latest, &call)?;
        let is_right = prepared.answer.is_ok();
        // read only after a right guess, so that wrong ones take the same time for every account
        if is_right {
            let factors = match owner {
                Some(owner) => step.enrolled_factors(owner).await?,
                None => factors,
            };
            let call = LoginCall::Verify { of: Some(open), guess, keyed, owner, factors };
            prepared = core.logins.prepare(&step.digest, &latest, &call)?;
        }
        let Some(write) = prepared.write.clone() else { return Ok(prepared.update_after_write(None, latest)) };
        let mut batch = Batch::without_user(&core.store);
        let cleared = match is_right {
            true => Some(core.guard.prepare_clear(&login.tenant, &decision)?.map(|write| batch.add(write))),
            false => None,
        };
        let counts = batch.add_all(decision.counts.iter().filter(|_| !is_right).cloned());
        let write = batch.add(write);
        let outcomes = batch.run().await?;
        match &cleared {
            Some(rows) => attempt.counted.note_cleared(rows.each_ref().map(|row| outcomes.version(row).is_some())),
            None if attempt.counted.note(&decision, (&counts, &outcomes)) => {
                attempt.check_ceiling();
            }
            None => {}
        }
        match outcomes.version(&write) {
            Some(version) => return Ok(step.applied(prepared.update_after_write(Some(version), latest))),
            None => step.refresh().await?,
        }
    }
    Err(StoreError::from(StoreErrorKind::Busy).into())
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

fn send_refusal_problem(refused: SendRefused) -> Problem {
    match refused {
        SendRefused::TooSoon(wait) => {
            Problem::new(Code::SlowDown, "a code was just sent; try again later").retry_in(wait)
        }
        SendRefused::TooMany(wait) => {
            Problem::new(Code::TooManyAttempts, "too many codes were requested; try again later").retry_in(wait)
        }
    }
}
