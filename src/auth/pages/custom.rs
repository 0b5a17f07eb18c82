//! How the pages look, and pages of the operator's own in place of the built-in ones.

use bytes::Bytes;
use http::HeaderValue;

use crate::{
    auth::pages::colors::Colors,
    http::return_to::check_page_url,
    util::{builder::setters, error::ConfigError},
    words::Language,
};

/// The pages that users see, and the words of all messages. Everything that is not set keeps its default.
///
/// ```
/// use tollgate::{Language, auth::{Colors, Pages}};
///
/// let logo = r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 10"><circle cx="5" cy="5" r="5"/></svg>"#;
/// let pages = Pages::new()
///     .logo("Acme", logo)
///     .home_url("https://acme.example/")
///     .colors(Colors::new().accent("#0b6b43"))
///     .dark_colors(Colors::new().accent("#7ddcae"))
///     .texts(Language::English, [("login.title", "Welcome back"), ("message.code_subject", "Your code for Acme")])
///     .texts(Language::German, [("login.title", "Willkommen"), ("message.code_subject", "Ihr Code für Acme")]);
/// ```
///
/// # Languages
///
/// The built-in pages and messages are in English or German. A page uses the first of these in the request parameter
/// `ui_locales`, or else the browser's preference in `Accept-Language`, or else English. Messages are in the language
/// of the page that caused them. The details of an error are for the operator, and always in English.
///
/// # Pages of your own
///
/// Each page can be replaced as a whole:
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
/// nothing inline. Your own pages can also show images of the same origin and `data:` URLs; the confirmation page of
/// `/logout` shows none. [`content_security_policy`](Self::content_security_policy) changes the policy of the login
/// page, for example to allow images or fonts from another host.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Pages {
    pub(crate) logo: Option<(String, Bytes)>,
    pub(crate) home: Option<String>,
    pub(crate) light: Colors,
    pub(crate) dark: Colors,
    pub(crate) texts: Vec<(Language, String, String)>,
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

    setters! {
        /// Shows a logo on the built-in pages: an SVG, PNG, JPEG or WebP image of at most 256 KiB. Screen readers read
        /// out `name`. The logo is at most 3 rem high, and served at `/authentication/logo`. Scripts in an SVG cannot
        /// run.
        pub fn logo(name: impl Into<String>, image: impl Into<Bytes>) { logo: Some((name.into(), image.into())) }

        /// Sets where your application begins: a path of this site, or an `https` URL. The pages for the account, for errors and
        /// after a sign-out then have a link to it. By default, they have none.
        pub fn home_url(url: impl Into<String>) { home: Some(url.into()) }

        /// Sets colors of the built-in pages for browsers that prefer light colors.
        pub fn colors(light: Colors) { light: light }

        /// Sets colors of the built-in pages for browsers that prefer dark colors.
        pub fn dark_colors(dark: Colors) { dark: dark }
    }

    /// Replaces words of the built-in pages and of messages in one language: pairs of a key and a text. [`build`] refuses an
    /// unknown key, and a text whose placeholders in braces differ from those of the built-in one. The file
    /// `src/words/en.txt` of this crate lists all keys, in the order of the pages.
    ///
    /// [`build`]: crate::auth::AuthServiceBuilder::build
    pub fn texts<K: Into<String>, T: Into<String>>(
        mut self,
        language: Language,
        texts: impl IntoIterator<Item = (K, T)>,
    ) -> Self {
        self.texts.extend(texts.into_iter().map(|(key, text)| (language, key.into(), text.into())));
        self
    }

    setters! {
        /// Replaces the login page, which also asks for consent, with this document. It is served at
        /// `GET /authentication/start`, and its script gets its data from the same URL with `Accept: application/json`.
        ///
        /// The page must pass the parameters `max_age`, `steps`, `prompt`, `acr_values`, `claims` and `return_to` from
        /// its query to `start`, if present. Without them, a request for another step or a fresh sign-in is never met.
        /// Steps can remain after the first one, even if `start` required one step: rely on the `remaining_steps` of
        /// each response. `choices` lists what the user can use. Users who have an authenticator app or a passkey need
        /// a field for its code, or a way to use the passkey.
        ///
        /// The page can also send `ui_locales`, so that messages are in its language.
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
        pub fn login_html(html: impl Into<String>) { login: LoginPage::Html(html.into()) }

        /// Sends browsers to a login page at this URL. The page gets the query of the request. Takes a path of this site or
        /// an `https` URL.
        pub fn login_url(url: impl Into<String>) { login: LoginPage::Url(url.into()) }

        /// Sets the `Content-Security-Policy` of a login page that [`login_html`](Self::login_html) has set. Defaults to a
        /// strict policy.
        pub fn content_security_policy(policy: impl Into<String>) { login_policy: Some(policy.into()) }

        /// Replaces the page for errors that are shown to a person. `{advice}`, `{detail}` and `{code}` are filled in.
        /// `{link}` becomes a paragraph that links to a new sign-in or to the same page if that helps, or else nothing.
        /// The advice is in the language of the user, `{lang}`. `{home}` becomes a paragraph that links to the
        /// [`home_url`](Self::home_url), or nothing.
        pub fn error_html(html: impl Into<String>) { error: Some(html.into()) }

        /// Replaces the confirmation page of `/logout`. The document needs a form that posts to `logout`, contains
        /// `{fields}`, and has a button with the name `confirmed` and any value.
        pub fn sign_out_question_html(html: impl Into<String>) { sign_out_question: Some(html.into()) }

        /// Replaces the page after `/logout`. `{next}` is filled in with a link back to the application, or with a sentence.
        pub fn signed_out_html(html: impl Into<String>) { signed_out: Some(html.into()) }
    }

    /// Checks what only shows when a page is sent.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if let Some(url) = &self.home {
            check_page_url("home url", url)?;
        }
        if let LoginPage::Url(url) = &self.login {
            check_page_url("login url", url)?;
            // browsers get it with the query of their request
            ConfigError::refuse_if(url.contains('?'), "login url", url, "must have no query")?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_is_a_path_of_this_site_or_has_tls() {
        for (url, is_accepted) in [
            ("/", true),
            ("/demo/?from=login", true),
            ("https://acme.example", true),
            ("https://acme.example/app?from=login", true),
            ("", false),
            ("app", false),
            ("//evil.example", false),
            ("/\\evil.example", false),
            ("http://acme.example/", false),
            ("javascript:alert(1)", false),
            ("https://", false),
            ("https:///app", false),
            ("/a b", false),
            ("/a#b", false),
        ] {
            assert_eq!(Pages::new().home_url(url).check().is_ok(), is_accepted, "{url}");
        }
    }

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
