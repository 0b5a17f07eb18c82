//! [`Posted`]: the form that a client posts, and the client that posts it.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    auth::{
        context::{RequestContext, client_authentication, incoming::IncomingRequest, stages::ClientReach},
        http::problem::{Code, Problem},
        state::token_endpoints::TokenEndpoints,
    },
    client::{Client, RESOURCE},
    util::form::Form,
};

/// The fields of a form, or the reason why it can't be used.
pub(crate) struct Posted<'b>(Result<Form<'b>, &'static str>);

/// A request for tokens by a client that is known and authenticated, unless it is public.
#[derive(Clone, Copy)]
pub(crate) struct TokenCall<'a> {
    pub(crate) cx: &'a RequestContext<'a>,
    pub(crate) endpoints: &'a TokenEndpoints,
    pub(crate) client: &'a Client,
    pub(crate) posted: &'a Posted<'a>,
}

impl<'b> Posted<'b> {
    pub(crate) fn from_form_body(body: &'b Bytes) -> Self {
        Self(match Form::parse(body) {
            Ok(form) if form.has_duplicates_except(Some(RESOURCE)) => Err("a parameter appears more than once"),
            Ok(form) => Ok(form),
            Err(error) => Err(error.detail()),
        })
    }

    /// Returns a field that is present and not empty.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.0.as_ref().ok()?.value(name)
    }

    /// Returns the resources that the request names.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &str> {
        self.0.as_ref().ok().into_iter().flat_map(|form| form.values(RESOURCE))
    }

    /// Finds the client that posts, and charges the request to its tenant. Also returns the context of a charged request
    /// whose client is refused.
    pub(crate) async fn charged_client<'a>(
        &self,
        request: &mut IncomingRequest<'a>,
    ) -> Result<(RequestContext<'a>, Result<Arc<Client>, Problem>), Problem> {
        let (cx, named) = self.named_client(request, self.value("refresh_token")).await?;
        let client = match named {
            Ok(client) => self.authenticate_client(&cx, client).await,
            Err(problem) => Err(problem),
        };
        Ok((cx, client))
    }

    /// Authenticates the calling client, unless it is public. Credentials also name the client, so a request with them may omit
    /// `client_id`.
    async fn authenticate_client(
        &self,
        cx: &RequestContext<'_>,
        client: Option<Arc<Client>>,
    ) -> Result<Arc<Client>, Problem> {
        client_authentication::authenticate_caller(cx, client.as_deref(), |name| self.value(name)).await?;
        if client.is_none() {
            self.required("client_id", "client_id is missing")?;
        }
        client.ok_or(Problem::new(Code::InvalidClient, "client_id is unknown"))
    }

    /// Finds the client that posts and authenticates it, and charges the request to its tenant. Public clients are refused
    /// like unknown ones.
    pub(crate) async fn confidential_client<'a>(
        &self,
        request: &mut IncomingRequest<'a>,
    ) -> Result<(RequestContext<'a>, Arc<Client>), Problem> {
        let (cx, named) = self.named_client(request, None).await?;
        let wrong = || Problem::unauthenticated_client("only clients that authenticate can call this");
        let client = named?.filter(|client| client.is_confidential()).ok_or_else(wrong)?;
        client_authentication::authenticate_client(&cx, &client, |name| self.value(name)).await?;
        Ok((cx, client))
    }

    /// Finds the client that a request names, and charges its tenant.
    async fn named_client<'a>(
        &self,
        request: &mut IncomingRequest<'a>,
        refresh_token: Option<&str>,
    ) -> Result<(RequestContext<'a>, Result<Option<Arc<Client>>, Problem>), Problem> {
        let id = client_authentication::named_client(&request.parts.headers, |name| self.value(name));
        // if only the reserve of the tenant is left, a usable token of that tenant can spend it
        request.refresh_token = refresh_token.map(str::to_owned);
        let (cx, client) = request.charged_caller(id.as_deref(), ClientReach::Registered).await?;
        Ok((cx, client.and_then(|client| self.check().map(|()| client))))
    }

    /// Checks that the body is a form with each parameter once.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        self.0.as_ref().map(|_| ()).map_err(|detail| Problem::invalid(detail))
    }

    /// Returns the form, if it has each parameter once.
    pub(crate) fn into_form(self) -> Result<Form<'b>, Problem> {
        self.0.map_err(Problem::invalid)
    }

    pub(crate) fn required(&self, name: &str, missing: &'static str) -> Result<&str, Problem> {
        self.value(name).ok_or(Problem::invalid(missing))
    }
}
