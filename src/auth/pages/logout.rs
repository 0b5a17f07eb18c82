//! The pages of `/logout` and `/sign-out`.

use http::{Response, StatusCode};

use crate::{
    auth::pages::built::{BuiltPages, Template, hidden_fields},
    http::body::Body,
    words::Language,
};

const ROOT: &str = "authentication/";

/// Returns the page that asks whether to log out. Its form posts these parameters of the request to `action`, and may lead to
/// `target`.
pub(crate) fn logout_question_page(
    pages: &BuiltPages,
    language: Language,
    action: &str,
    fields: &[(&str, Option<&str>)],
    target: Option<&str>,
) -> Response<Body> {
    let fields = hidden_fields(fields.iter().filter_map(|(name, value)| Some((*name, (*value)?))));
    // a page of the operator's own posts to `logout`
    let own = pages.own.sign_out_question.as_deref().filter(|_| action == "logout");
    let template = Template { built_in: include_str!("logout.html"), own, root: ROOT };
    pages.form_page(template, language, target, |name| match name {
        "action" => Some(action.to_owned()),
        "fields" => Some(fields.clone()),
        _ => None,
    })
}

/// Returns the page that confirms the sign-out, with a link to this location.
pub(crate) fn logout_done_page(pages: &BuiltPages, language: Language, location: Option<&str>) -> Response<Body> {
    let link = location.map(|location| pages.link_back(language, location)).or_else(|| pages.home_link(language));
    let next = link.unwrap_or_else(|| pages.text(language, "logout.close"));
    let own = pages.own.signed_out.as_deref();
    let template = Template { built_in: include_str!("logged_out.html"), own, root: ROOT };
    pages.page(StatusCode::OK, template, language, |name| (name == "next").then(|| next.clone()))
}
