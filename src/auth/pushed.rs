//! Requests that were pushed (RFC 9126): their parameters go from program to program, and never through a URL.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};

#[cfg(feature = "tokens")]
use super::token;
use super::{
    answer, fields,
    problem::{Code, Problem},
    query::{self, Query},
    visit::Visit,
};
#[cfg(feature = "tokens")]
use crate::util::form;
use crate::{
    http::body::Body,
    store::{
        AnyStore, StoreError, StoreErrorKind, WriteOutcome,
        table::{Change, Table},
    },
    util::{
        clock::{Clock, ceil_seconds},
        secret::Secret,
    },
};

/// What the name of a pushed request begins with; its secret follows.
const PREFIX: &str = "urn:ietf:params:oauth:request_uri:";
/// The longest request that is kept.
const LONGEST: usize = 8 * 1024;
/// How long it may take until a browser comes with it.
const UNUSED: Duration = Duration::from_secs(90);
/// And how long from then on until there is a code: as long as a login.
const USED: Duration = Duration::from_secs(30 * 60);

/// A request as it was pushed, under the digest of its secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Pushed {
    client_id: String,
    parameters: String,
    is_used: bool,
}

#[derive(Clone, Debug)]
pub(super) struct PushedRequests(Table<Pushed>);

/// The secret in the name of a pushed request, where that is what this is.
pub(super) fn named(request_uri: &str) -> Option<Option<Secret>> {
    request_uri.strip_prefix(PREFIX).map(Secret::parse)
}

impl PushedRequests {
    pub(super) fn new(store: AnyStore, clock: Arc<dyn Clock>) -> Self {
        Self(Table::new(store, "pushed_requests", clock))
    }

    async fn push(&self, client_id: &str, parameters: String) -> Result<Secret, StoreError> {
        let secret = Secret::generate();
        let row = Pushed { client_id: client_id.to_owned(), parameters, is_used: false };
        match self.0.insert(None, secret.digest().as_bytes(), &row, self.0.now() + UNUSED).await? {
            WriteOutcome::Done(_) => Ok(secret),
            WriteOutcome::Lost(_) => Err(StoreErrorKind::Busy.into()),
        }
    }

    /// The parameters of a request that this client has pushed. From the first time on there is time for a login.
    pub(super) async fn open(&self, secret: &Secret, client_id: &str) -> Result<Option<String>, StoreError> {
        let open = |row: Option<&Pushed>, now| match row.filter(|row| row.client_id == client_id) {
            None => Change::Keep(None),
            Some(row) if row.is_used => Change::Keep(Some(row.parameters.clone())),
            Some(row) => Change::Put(Pushed { is_used: true, ..row.clone() }, now + USED, Some(row.parameters.clone())),
        };
        self.0.update(None, secret.digest().as_bytes(), open).await
    }

    /// Takes a request away, for its code is issued; says whether it was there.
    pub(super) async fn take(&self, secret: &Secret) -> Result<bool, StoreError> {
        Ok(self.0.take(None, secret.digest().as_bytes()).await?.is_some())
    }
}

#[derive(Serialize)]
struct Answer {
    request_uri: String,
    expires_in: u64,
}

/// `POST /par`.
pub(super) async fn push<B>(visit: &mut Visit<'_>, body: B) -> Result<Response<Body>, Problem>
where
    B: http_body::Body<Data = Bytes> + Send,
{
    let body = match fields::form(visit.parts, body).await {
        Ok(body) if body.len() > LONGEST => {
            visit.charge(None)?;
            return Err(Problem::new(Code::TooLarge, "the request is longer than 8 KiB"));
        }
        Ok(body) => body,
        Err(problem) => {
            visit.charge(None)?;
            return Err(problem);
        }
    };
    let asked = query::pushing(visit, Query::parse(&body)).await?;
    let checked = asked.checked(visit)?;
    if visit.inner.running().challenges.is_redeemed(&checked.binding).await? {
        return Err(Problem::invalid(query::REDEEMED));
    }
    // it was read as one
    let parameters = String::from_utf8(body.to_vec()).map_err(|_| Problem::invalid("the body is no form"))?;
    #[cfg(feature = "tokens")]
    let parameters = bound(visit, &asked.query, parameters, checked.wishes.wanted.dpop_jkt.as_deref()).await?;
    let secret = visit.inner.running().pushed.push(asked.to.client.id(), parameters).await?;
    let answer = Answer { request_uri: format!("{PREFIX}{}", secret.expose()), expires_in: ceil_seconds(UNUSED) };
    Ok(answer::json(StatusCode::CREATED, &answer))
}

/// The parameters with the key that the request proves to have, to which the code is bound then (RFC 9449 §10.1).
#[cfg(feature = "tokens")]
async fn bound(
    visit: &Visit<'_>,
    query: &Query<'_>,
    parameters: String,
    named: Option<&str>,
) -> Result<String, Problem> {
    if visit.inner.config.tokens.is_none() {
        return Ok(parameters);
    }
    match (token::proved_key(visit, "/par", None).await?, named) {
        (None, _) => Ok(parameters),
        (Some(proved), Some(named)) if proved == named => Ok(parameters),
        (Some(_), Some(_)) => {
            Err(Problem::new(Code::InvalidDpopProof, "dpop_jkt names another key than the proof has"))
        }
        // in the place of one that is empty
        (Some(proved), None) => {
            let others = query.pairs().filter(|(name, _)| *name != "dpop_jkt");
            let written = form::written(others.chain([("dpop_jkt", &*proved)]));
            // it has to be read again, and is longer now
            if written.len() > LONGEST || form::Form::parse(written.as_bytes()).is_err() {
                return Err(Problem::new(Code::TooLarge, "the request with its key is longer than 8 KiB"));
            }
            Ok(written)
        }
    }
}
