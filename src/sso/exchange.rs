//! Requests to a provider.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::{
    http::body::Body,
    sso::provider::SsoError,
    support::outgoing::{Failure, Outgoing},
    util::{error::ConfigError, form, json},
};

/// The maximum length of a response in bytes.
const MOST_BYTES: usize = 256 * 1024;
const LONGEST_DEADLINE: Duration = Duration::from_secs(10);

/// Sends requests to a provider. Follows no redirects.
#[derive(Clone)]
pub(super) struct Exchange {
    pub(super) client: Outgoing,
    /// For each request.
    pub(super) deadline: Duration,
}

impl Exchange {
    /// Trusts the public certificate authorities, and waits at most 5 seconds for a response.
    pub(super) fn new() -> Result<Self, ConfigError> {
        Ok(Self { client: Outgoing::new()?, deadline: Duration::from_secs(5) })
    }

    /// Sets how long to wait for a response: at most 10 seconds.
    pub(super) fn set_deadline(&mut self, deadline: Duration) -> Result<(), ConfigError> {
        let range = Duration::from_nanos(1)..=LONGEST_DEADLINE;
        ConfigError::check_range("provider timeout", deadline, range, "must be greater than zero and at most 10 s")?;
        self.deadline = deadline;
        Ok(())
    }

    /// Posts a form. The response must be a JSON object.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        to: &Uri,
        fields: &[(&str, &str)],
        authorization: Option<HeaderValue>,
    ) -> Result<T, SsoError> {
        let form = form::encode_pairs(fields.iter().copied());
        let mut request = Request::new(Body::from(form));
        *request.method_mut() = Method::POST;
        let content_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(header::CONTENT_TYPE, content_type);
        self.send(to, request, authorization).await
    }

    /// Reads what an access token gives access to. The response must be JSON.
    pub(super) async fn get<T: DeserializeOwned>(&self, from: &Uri, access_token: &str) -> Result<T, SsoError> {
        let bearer = Zeroizing::new(format!("Bearer {access_token}"));
        let authorization = HeaderValue::from_str(&bearer);
        let authorization =
            authorization.map_err(|_| SsoError::Failed("the provider sent an unusable access token"))?;
        self.send(from, Request::new(Body::empty()), Some(authorization)).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        to: &Uri,
        mut request: Request<Body>,
        authorization: Option<HeaderValue>,
    ) -> Result<T, SsoError> {
        *request.uri_mut() = to.clone();
        let fixed: [(HeaderName, &str); 2] = [(header::ACCEPT, "application/json"), (header::USER_AGENT, "tollgate")];
        for (name, value) in fixed {
            request.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        if let Some(mut value) = authorization {
            value.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let answer =
            self.client.fetch_response(request, MOST_BYTES, self.deadline).await.map_err(|failure| match failure {
                Failure::Connection(_) => SsoError::Unavailable("the connection to the provider failed"),
                Failure::TooSlow => SsoError::Unavailable("the provider took too long"),
                Failure::Body => SsoError::Failed("the response of the provider is too long or incomplete"),
            })?;
        parse_json_response(answer.status(), answer.body())
    }
}

fn parse_json_response<T: DeserializeOwned>(status: StatusCode, text: &Bytes) -> Result<T, SsoError> {
    match status {
        StatusCode::OK => {}
        StatusCode::TOO_MANY_REQUESTS => return Err(SsoError::Unavailable("the provider limits requests")),
        StatusCode::UNAUTHORIZED => return Err(SsoError::Failed("the provider does not accept our authentication")),
        status if status.is_server_error() => return Err(SsoError::Unavailable("the provider has a failure")),
        status if status.is_redirection() => return Err(SsoError::Failed("the provider redirects elsewhere")),
        _ => return Err(SsoError::Failed("the provider refused a request")),
    }
    // lists have no names to be given twice
    let parsed = match text.trim_ascii_start().first() {
        Some(b'[') => serde_json::from_slice(text).ok(),
        _ => json::from_object(text).ok(),
    };
    parsed.ok_or(SsoError::Failed("the provider sent an unexpected document"))
}
