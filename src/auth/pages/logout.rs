//! The pages of `/logout`.

use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    auth::pages::built::{BuiltPages, Template},
    http::body::Body,
    words::{Language, escape_html},
};

const ROOT: &str = "authentication/";

/// Returns the page that asks whether to log out. Its form repeats these parameters of the request, and may lead to
/// `target`, which is a source for a content security policy. Browsers apply the policy also to redirects after the form.
pub(crate) fn logout_question_page(
    pages: &BuiltPages,
    language: Language,
    fields: &[(&str, Option<&str>)],
    target: Option<&str>,
) -> Response<Body> {
    let field = |(name, value): &(&str, Option<&str>)| {
        Some(format!(r#"<input type="hidden" name="{name}" value="{}">"#, escape_html((*value)?)))
    };
    let fields: Vec<_> = fields.iter().filter_map(field).collect();
    let fields = fields.join("\n    ");
    let own = pages.own.sign_out_question.as_deref();
    let template = Template { built_in: include_str!("logout.html"), own, root: ROOT };
    let value = |name: &str| (name == "fields").then(|| fields.clone());
    let mut response = pages.page(StatusCode::OK, template, language, value);
    let target = target.map(|target| format!(" {target}")).unwrap_or_default();
    let logo = if own.is_none() && pages.logo.is_some() { " img-src 'self';" } else { "" };
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

/// Returns the page that confirms the sign-out, with a link to this location.
pub(crate) fn logout_done_page(pages: &BuiltPages, language: Language, location: Option<&str>) -> Response<Body> {
    let next = match location {
        Some(location) => {
            format!(r#"<a href="{}">{}</a>"#, escape_html(location), pages.text(language, "logout.go_back"))
        }
        None => pages.text(language, "logout.close"),
    };
    let own = pages.own.signed_out.as_deref();
    let template = Template { built_in: include_str!("logged_out.html"), own, root: ROOT };
    pages.page(StatusCode::OK, template, language, |name| (name == "next").then(|| next.clone()))
}
