//! Pages of the operator's own in place of the built-in ones.

use http::HeaderValue;

use crate::util::error::ConfigError;

/// The pages that users see. Each one that is not set stays the built-in one.
///
/// ```
/// use tollgate::auth::Pages;
///
/// let pages = Pages::new()
///     .login_html("<!doctype html><title>Sign in</title><script src=\"/my-login.js\" type=\"module\"></script>")
///     .error_html("<!doctype html><title>Sorry</title><p>{advice}</p><small>{detail} ({code})</small>");
/// ```
///
/// # Security
///
/// Pages are sent with a strict `Content-Security-Policy`: scripts, styles and requests only from the same origin, and
/// nothing inline. Your own pages can also show images of the same origin and `data:` URLs; the question of `/logout` shows
/// none. [`content_security_policy`](Self::content_security_policy) changes the policy of the login page, for example to allow
/// images or fonts of another host.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Pages {
    pub(crate) login: LoginPage,
    pub(crate) login_policy: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) sign_out_question: Option<String>,
    pub(crate) signed_out: Option<String>,
}

/// Where the login page comes from.
#[derive(Clone, Debug, Default)]
pub(crate) enum LoginPage {
    #[default]
    BuiltIn,
    Html(String),
    Url(String),
}

impl Pages {
    /// Keeps all built-in pages.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the login page, which also asks for consent, with this document. It is served at
    /// `GET /authentication/start`, and its script learns everything from the same URL with `Accept: application/json`.
    ///
    /// The page must send the parameters `max_age`, `steps`, `prompt`, `acr_values`, `claims` and `return_to` of its query to
    /// `start`, those that are there. Without them, a step-up for another step or a fresh sign-in never ends. Steps can remain
    /// after the first one, even if `start` required one step: `remaining_steps` of each answer counts, and `choices` lists what
    /// the user can use. A user who has an authenticator app or a passkey needs a field for a code, or a passkey.
    ///
    /// A page that offers passkeys gets their options from `start`, which needs no identifier for them. A page that offers
    /// other providers opens the `redirect_url` of `authenticate`, and finds the outcome in its own fragment (`#sso=ok`).
    ///
    /// It can show images of this origin, such as a logo that your application serves:
    ///
    /// ```
    /// # use tollgate::auth::Pages;
    /// let pages = Pages::new().login_html("<!doctype html><img src=\"/logo.svg\" alt=\"Acme\">…");
    /// ```
    pub fn login_html(mut self, html: impl Into<String>) -> Self {
        self.login = LoginPage::Html(html.into());
        self
    }

    /// Sends browsers to a login page at this URL. The page gets the query of the request. Takes a path of this site or
    /// an `https` URL.
    pub fn login_url(mut self, url: impl Into<String>) -> Self {
        self.login = LoginPage::Url(url.into());
        self
    }

    /// Sets the `Content-Security-Policy` of a login page that [`login_html`](Self::login_html) has set. Defaults to a
    /// strict policy.
    pub fn content_security_policy(mut self, policy: impl Into<String>) -> Self {
        self.login_policy = Some(policy.into());
        self
    }

    /// Replaces the page for errors that are shown to a person. `{advice}`, `{detail}` and `{code}` are filled in, and `{link}`
    /// with a paragraph that links to a new sign-in where one helps, or with nothing.
    pub fn error_html(mut self, html: impl Into<String>) -> Self {
        self.error = Some(html.into());
        self
    }

    /// Replaces the question of `/logout`. The document needs a form that posts to `logout`, contains `{fields}`, and has
    /// a button with the name `confirmed` and any value.
    pub fn sign_out_question_html(mut self, html: impl Into<String>) -> Self {
        self.sign_out_question = Some(html.into());
        self
    }

    /// Replaces the page after `/logout`. `{next}` is filled in with a link back to the application, or with a sentence.
    pub fn signed_out_html(mut self, html: impl Into<String>) -> Self {
        self.signed_out = Some(html.into());
        self
    }

    /// Checks what only shows when a page is sent.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if let LoginPage::Url(url) = &self.login {
            check_login_url(url)?;
        }
        if let Some(policy) = self.login_policy.as_deref().filter(|policy| HeaderValue::from_str(policy).is_err()) {
            return Err(ConfigError::new("content security policy", policy, "must be a header value"));
        }
        if self.sign_out_question.as_deref().is_some_and(|html| !html.contains("{fields}")) {
            return Err(ConfigError::new("sign-out question", "", "must contain {fields} in its form"));
        }
        Ok(())
    }
}

fn check_login_url(url: &str) -> Result<(), ConfigError> {
    let error = |reason| ConfigError::new("login url", url, reason);
    let local = url.starts_with('/') && !matches!(url.as_bytes().get(1), Some(b'/' | b'\\'));
    if !local && !url.starts_with("https://") {
        return Err(error("must be a path of this site or start with https://"));
    }
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains(['#', '\\', '?']) {
        return Err(error("must be visible ASCII without a query or a fragment"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_cannot_work_are_refused() {
        let url = |url: &str| Pages::new().login_url(url).check();
        assert!(url("/login").is_ok() && url("https://login.example/start").is_ok());
        for bad in ["", "login", "//evil.example", "/\\evil.example", "http://a.example", "/a?b", "/a#b", "/é", "/a b"]
        {
            assert!(url(bad).is_err(), "{bad}");
        }
        assert!(Pages::new().content_security_policy("default-src 'none'").check().is_ok());
        assert!(Pages::new().content_security_policy("a\nb").check().is_err());
        assert!(Pages::new().sign_out_question_html("<form></form>").check().is_err());
        assert!(Pages::new().sign_out_question_html("<form>{fields}</form>").check().is_ok());
    }
}
