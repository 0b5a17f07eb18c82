//! The page on which a user decides about a third-party client.

use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    auth::pages::built::{BuiltPages, Template},
    http::body::Body,
    words::{self, Language, escape_html},
};

const ROOT: &str = "authentication/";

/// The contents of the page.
pub(crate) struct Question<'a> {
    pub(crate) client: &'a str,
    /// Where the answer goes.
    pub(crate) place: String,
    /// The user who decides.
    pub(crate) user: String,
    /// The scopes, claims and resources that the client requests: the key of a text, and the name in it.
    pub(crate) wishes: Vec<(&'static str, &'a str)>,
    /// Whether the user has an account page here.
    pub(crate) has_account_page: bool,
    /// The fields that the form repeats.
    pub(crate) fields: [(&'static str, &'a str); 2],
    /// The redirect URI, as a source for a content security policy. Browsers apply the policy also to redirects after the
    /// form.
    pub(crate) target: Option<&'a str>,
}

/// Returns the page that asks.
pub(crate) fn consent_page(pages: &BuiltPages, language: Language, question: &Question<'_>) -> Response<Body> {
    let (client, place, user) =
        (escape_html(question.client), escape_html(&question.place), escape_html(&question.user));
    let filled = |key| {
        words::fill_values(&pages.text(language, key), &[("client", &client), ("place", &place), ("name", &user)])
    };
    let template = Template { built_in: include_str!("consent.html"), own: None, root: ROOT };
    let mut response = pages.page(StatusCode::OK, template, language, |name| match name {
        "question" => Some(filled("consent.question")),
        "user" => Some(filled("consent.user")),
        "wants" => Some(filled("consent.wants")),
        "wishes" => {
            let line = |(key, name): &(&str, &str)| {
                let words = words::fill_values(
                    &pages.text(language, key),
                    &[("name", &format!("<code>{}</code>", escape_html(name)))],
                );
                format!("<li>{words}</li>")
            };
            Some(question.wishes.iter().map(line).collect::<Vec<_>>().join("\n    "))
        }
        "note" => {
            let withdraw = question.has_account_page.then(|| pages.text(language, "consent.withdraw"));
            Some([Some(filled("consent.afterwards")), withdraw].into_iter().flatten().collect::<Vec<_>>().join(" "))
        }
        "fields" => {
            let field = |(name, value): &(&str, &str)| {
                format!(r#"<input type="hidden" name="{name}" value="{}">"#, escape_html(value))
            };
            Some(question.fields.iter().map(field).collect::<Vec<_>>().join("\n    "))
        }
        _ => None,
    });
    let target = question.target.map(|target| format!(" {target}")).unwrap_or_default();
    let logo = if pages.logo.is_some() { " img-src 'self';" } else { "" };
    let policy = format!(
        "default-src 'none'; style-src 'self';{logo} base-uri 'none'; form-action 'self'{target}; frame-ancestors 'none'"
    );
    // never fails: a source is visible ASCII
    if let Ok(policy) = HeaderValue::try_from(policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    // with `no-referrer`, browsers send `Origin: null` with the form, and some send no other header that shows its origin
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

/// Returns the page with a link to the client. It replaces a redirect that no content security policy can permit after a form.
pub(crate) fn consent_done_page(pages: &BuiltPages, language: Language, location: &str) -> Response<Body> {
    let next = format!(r#"<a href="{}">{}</a>"#, escape_html(location), pages.text(language, "logout.go_back"));
    let template = Template { built_in: include_str!("consent_done.html"), own: None, root: ROOT };
    pages.page(StatusCode::OK, template, language, |name| (name == "next").then(|| next.clone()))
}
