//! The page on which a user decides about a third-party client.

use http::{Response, StatusCode};

use crate::{
    auth::pages::built::{BuiltPages, Template, hidden_fields},
    http::body::Body,
    util::encoding::escape_html,
    words::{self, Language},
};

const ROOT: &str = "authentication/";

/// The contents of the page.
pub(crate) struct Question<'a> {
    pub(crate) client: &'a str,
    /// Where the answer goes.
    pub(crate) place: String,
    /// The user who decides.
    pub(crate) user: String,
    /// Whether the user is signed in already. Otherwise this sign-in ends with the decision.
    pub(crate) has_session: bool,
    /// The URL of the login page for this request, for another user.
    pub(crate) login_page: String,
    /// The scopes, claims and resources that the client requests: the key of a text, and the name in it.
    pub(crate) access: Vec<(&'static str, &'a str)>,
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
    pages.form_page(template, language, question.target, |name| match name {
        "question" => Some(filled("consent.question")),
        "user" => {
            let (url, another) = (escape_html(&question.login_page), pages.text(language, "login.another_account"));
            let user = filled(if question.has_session { "consent.user" } else { "consent.user_signing_in" });
            Some(format!(r#"{user} <a href="{url}">{another}</a>"#))
        }
        "wants" => Some(filled("consent.wants")),
        "access" => {
            let line = |(key, name): &(&str, &str)| {
                let words = words::fill_values(
                    &pages.text(language, key),
                    &[("name", &format!("<code>{}</code>", escape_html(name)))],
                );
                format!("<li>{words}</li>")
            };
            Some(question.access.iter().map(line).collect::<Vec<_>>().join("\n    "))
        }
        "note" => {
            let withdraw = question.has_account_page.then(|| pages.text(language, "consent.withdraw"));
            Some([Some(filled("consent.afterwards")), withdraw].into_iter().flatten().collect::<Vec<_>>().join(" "))
        }
        "fields" => Some(hidden_fields(question.fields)),
        _ => None,
    })
}

/// Returns the page with a link to the client. It replaces a redirect that no content security policy can permit after a form.
pub(crate) fn consent_done_page(pages: &BuiltPages, language: Language, location: &str) -> Response<Body> {
    let next = pages.link_back(language, location);
    let template = Template { built_in: include_str!("consent_done.html"), own: None, root: ROOT };
    pages.page(StatusCode::OK, template, language, |name| (name == "next").then(|| next.clone()))
}
