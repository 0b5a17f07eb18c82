//! `POST /authentication/complete`: all steps are done, and the browser may return to `/authorize`. From now on it is
//! trusted for the user.

use http::StatusCode;
use serde_json::json;

use crate::{
    auth::{
        context::stages::OwnLogin,
        factors::step::prepare_login_step,
        http::{answer, fields::Fields, problem::EndpointResult},
        state::{accounts::GenerationOf, devices::DeviceOwner},
    },
    event::EventKind,
    login::{LoginCall, LoginError},
};

pub(crate) async fn complete_login(own: &OwnLogin<'_>, fields: Fields) -> EndpointResult {
    let step = prepare_login_step(own, fields).await?;
    step.refuse_reset()?;
    let mut owner = None;
    if step.login.remaining() == 0
        && let Some(who) = step.login.authentication(None)
    {
        match step.cx.core.counting(&who, GenerationOf::Batch, step.keyed).await? {
            Some(account) => owner = Some((account, who.generation)),
            None => return Err(step.end().await?),
        }
    }
    let update = match &owner {
        // `/authorize` compares it again, so a login that is completed just now gets nothing
        Some((account, generation)) => match step.apply_for((account.id(), *generation), &LoginCall::Complete).await? {
            Some(update) => update,
            None => return Err(step.end().await?),
        },
        None => step.apply(&LoginCall::Complete).await?,
    };
    if update.answer == Err(LoginError::StepsRemaining) {
        step.tally(EventKind::SequenceFailed, None);
    }
    let view = update.response_view(step.now())?;
    let completed = json!({ "session_id": view.id.to_string(), "status": view.status.as_str() });
    let mut response = answer::json(StatusCode::OK, &completed);
    // carried proofs show a stolen session cookie as well as its owner
    if let Some((account, generation)) = owner.filter(|_| !step.login.is_all_carried()) {
        let owner = DeviceOwner { tenant: &step.login.tenant, account: Some(&account), generation };
        let cookie =
            step.cx.core.devices.trust(&step.cx.parts.headers, (owner, &step.login.id), step.keyed, step.now());
        cookie.append_to(response.headers_mut());
    }
    Ok(response)
}
