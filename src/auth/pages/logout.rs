//! The pages of `/logout`.

use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    auth::{http::answer, pages::custom::Pages},
    http::body::Body,
};

/// Returns the page that asks whether to log out. Its form repeats these parameters of the request, and may lead to
/// `target`, which is a source for a content security policy. Browsers apply the policy also to redirects after the form.
pub(crate) fn logout_question_page(
    pages: &Pages,
    fields: &[(&str, Option<&str>)],
    target: Option<&str>,
) -> Response<Body> {
    let field = |(name, value): &(&str, Option<&str>)| {
        Some(format!(r#"<input type="hidden" name="{name}" value="{}">"#, escape((*value)?)))
    };
    let fields: Vec<_> = fields.iter().filter_map(field).collect();
    let mut response = html(
        pages
            .sign_out_question
            .as_deref()
            .unwrap_or(include_str!("logout.html"))
            .replace("{fields}", &fields.join("\n    ")),
    );
    let target = target.map(|target| format!(" {target}")).unwrap_or_default();
    let policy = format!(
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'{target}; frame-ancestors 'none'"
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
pub(crate) fn logout_done_page(pages: &Pages, location: Option<&str>) -> Response<Body> {
    let next = match location {
        Some(location) => format!(r#"<a href="{}">Go back to the application</a>"#, escape(location)),
        None => "You can close this page.".to_owned(),
    };
    let mut response =
        html(pages.signed_out.as_deref().unwrap_or(include_str!("logged_out.html")).replace("{next}", &next));
    if pages.signed_out.is_some() {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, answer::OWN_PAGE);
    }
    response
}

fn html(text: String) -> Response<Body> {
    answer::response_with_body(StatusCode::OK, "text/html; charset=utf-8", text)
}

/// Escapes a text between tags or in quotes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_text_cannot_leave_its_quotes() {
        assert_eq!(escape(r#"<a href='x' b="y">&"#), "&lt;a href=&#39;x&#39; b=&quot;y&quot;&gt;&amp;");
    }
}
