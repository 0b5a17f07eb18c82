//! The pages of a service: templates that are filled in for each response.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header, request::Parts};

use crate::{
    auth::{
        http::answer,
        pages::{colors, custom::Pages, logo::Logo},
    },
    http::body::Body,
    util::{encoding::escape_html, error::ConfigError, form::Form},
    words::{self, Language, Words},
};

/// The settings of the pages after they were checked.
pub(crate) struct BuiltPages {
    /// The pages of the operator's own.
    pub(crate) own: Pages,
    pub(crate) words: Words,
    pub(crate) logo: Option<Logo>,
    pub(crate) style: Bytes,
}

/// A page that is filled in: the built-in template, or the one of the operator in its place.
pub(crate) struct Template<'a> {
    pub(crate) built_in: &'static str,
    pub(crate) own: Option<&'a str>,
    /// Leads from the URL of the page to the folder of the login page, because the service can be mounted below any path.
    pub(crate) root: &'a str,
}

impl BuiltPages {
    /// Checks the settings, and prepares what is the same for all responses.
    pub(crate) fn new(mut own: Pages) -> Result<Self, ConfigError> {
        own.check()?;
        let mut words = Words::built_in();
        for (language, key, text) in own.texts.drain(..) {
            words.replace(language, [(&*key, &*text)])?;
        }
        let logo = own.logo.take().map(|(name, image)| Logo::parse(&name, image)).transpose()?;
        let style = [include_str!("page.css"), &colors::rules(&own.light, &own.dark)?].concat().into();
        Ok(Self { own, words, logo, style })
    }

    /// Returns a page in this language. `value` fills in what is neither a text nor the same on all pages.
    pub(crate) fn page(
        &self,
        status: StatusCode,
        Template { built_in, own, root }: Template<'_>,
        language: Language,
        value: impl Fn(&str) -> Option<String>,
    ) -> Response<Body> {
        let text = words::fill(own.unwrap_or(built_in), |name| match name {
            "lang" => Some(language.to_string()),
            "root" => Some(root.to_owned()),
            "logo" => Some(self.logo.as_ref().map(|logo| logo.html(root)).unwrap_or_default()),
            "home" => Some(self.home_link(language).map(|link| format!("<p>{link}</p>")).unwrap_or_default()),
            key if key.contains('.') => Some(self.text(language, key)).filter(|text| !text.is_empty()),
            name => value(name),
        });
        let mut response = answer::response_with_body(status, "text/html; charset=utf-8", text);
        let headers = response.headers_mut();
        headers.insert(header::VARY, HeaderValue::from_static("accept-language"));
        headers.insert(header::CONTENT_LANGUAGE, HeaderValue::from_static(language.as_str()));
        if own.is_some() {
            headers.insert(header::CONTENT_SECURITY_POLICY, answer::OWN_PAGE);
        } else if self.logo.is_some() {
            headers.insert(header::CONTENT_SECURITY_POLICY, answer::PAGE_WITH_LOGO);
        }
        response
    }

    /// Creates a page with a form that may lead to `target`, which is a source for a content security policy. Browsers apply the
    /// policy also to redirects after the form.
    pub(crate) fn form_page(
        &self,
        template: Template<'_>,
        language: Language,
        target: Option<&str>,
        value: impl Fn(&str) -> Option<String>,
    ) -> Response<Body> {
        let target = target.map(|target| format!(" {target}")).unwrap_or_default();
        let logo = if template.own.is_none() && self.logo.is_some() { " img-src 'self';" } else { "" };
        let policy = format!(
            "default-src 'none'; style-src 'self';{logo} base-uri 'none'; form-action 'self'{target}; frame-ancestors 'none'"
        );
        let mut response = self.page(StatusCode::OK, template, language, value);
        // never fails: a source is visible ASCII
        if let Ok(policy) = HeaderValue::try_from(policy) {
            response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
        }
        // with `no-referrer`, browsers send `Origin: null` with the form, and some send no other header that shows its origin
        response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
        response
    }

    /// Returns a link back to the application.
    pub(crate) fn link_back(&self, language: Language, location: &str) -> String {
        format!(r#"<a href="{}">{}</a>"#, escape_html(location), self.text(language, "logout.go_back"))
    }

    /// Returns a link to the start of the application, if it is known.
    pub(crate) fn home_link(&self, language: Language) -> Option<String> {
        self.own.home.as_deref().map(|home| self.link_back(language, home))
    }

    /// Returns the words of a key for a page.
    pub(crate) fn text(&self, language: Language, key: &str) -> String {
        escape_html(self.words.get(language, key))
    }

    /// Returns the words for a script, as JSON in an element of the page.
    pub(crate) fn script_words(&self, language: Language, prefixes: &[&str]) -> String {
        // never fails: these are only texts
        let json = serde_json::to_string(&self.words.starting_with(language, prefixes)).unwrap_or_default();
        json.replace('<', "\\u003c")
    }
}

/// Returns the hidden fields of a form.
pub(crate) fn hidden_fields<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let field =
        |(name, value): (&str, &str)| format!(r#"<input type="hidden" name="{name}" value="{}">"#, escape_html(value));
    fields.into_iter().map(field).collect::<Vec<_>>().join("\n    ")
}

/// Returns the language of a page: the first supported one of `ui_locales` in the query, or what the browser prefers.
pub(crate) fn language_of(parts: &Parts) -> Language {
    let form = Form::parse(parts.uri.query().unwrap_or_default().as_bytes()).ok();
    language(form.as_ref().and_then(|form| form.value("ui_locales")), parts)
}

/// Returns the first supported language of `ui_locales`, or what the browser prefers.
pub(crate) fn language(ui_locales: Option<&str>, parts: &Parts) -> Language {
    ui_locales.and_then(Language::of_locales).unwrap_or_else(|| Language::accepted(&parts.headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_cannot_leave_their_element() {
        let text = "</script><b>&{client}";
        let built = BuiltPages::new(Pages::new().texts(Language::German, [("login.to_client", text)])).unwrap();
        let json = built.script_words(Language::German, &["login."]);
        assert!(!json.contains('<'), "{json}");
        let words: std::collections::BTreeMap<String, String> = serde_json::from_str(&json).unwrap();
        assert_eq!(words["login.to_client"], text);
        assert!(words.keys().all(|key| key.starts_with("login.")));
        assert_eq!(built.text(Language::German, "login.to_client"), "&lt;/script&gt;&lt;b&gt;&amp;{client}");
    }
}
