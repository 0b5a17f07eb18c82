//! The query of a request, or a form that is read like one.

use std::borrow::Cow;

use http::request::Parts;

use crate::{auth::http::problem::Problem, util::form::Form};

/// The parameters of a request.
pub(crate) struct Query<'a> {
    /// The query of a URL that repeats the request.
    pub(crate) raw: Cow<'a, str>,
    pub(crate) form: Form<'a>,
}

impl<'a> Query<'a> {
    pub(crate) fn from_request_uri(parts: &'a Parts) -> Result<Self, Problem> {
        let raw = parts.uri.query().unwrap_or_default();
        Ok(Self { raw: Cow::Borrowed(raw), ..Self::parse(raw.as_bytes())? })
    }

    pub(crate) fn parse(text: &'a [u8]) -> Result<Self, Problem> {
        let form = Form::parse(text).map_err(|error| Problem::invalid(error.detail()))?;
        Ok(Self { raw: Cow::Borrowed(""), form })
    }

    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.form.value(name)
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.form.pairs()
    }

    /// Returns the client id, if it is given exactly once.
    pub(crate) fn client_id(&self) -> Option<&str> {
        self.value("client_id").filter(|_| !self.is_twice("client_id"))
    }

    pub(crate) fn is_twice(&self, name: &str) -> bool {
        self.form.values(name).nth(1).is_some()
    }
}
