//! The pages of `/logout`.

use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    auth::{http::answer, pages::custom::Pages},
    http::body::Body,
};

/// Returns the page that asks whether to log out. Its form repeats these parameters of the request.
pub(crate) fn ask(pages: &Pages, fields: &[(&str, Option<&str>)]) -> Response<Body> {
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
    response.headers_mut().insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        ),
    );
    // with `no-referrer`, browsers send `Origin: null` with the form, and some send no other header that shows its origin
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

/// Returns the page that confirms the sign-out, with a link to this location.
pub(crate) fn done(pages: &Pages, location: Option<&str>) -> Response<Body> {
    let next = match location {
        Some(location) => format!(r#"<a href="{}">Go back to the application</a>"#, escape(location)),
        None => "You can close this page.".to_owned(),
    };
    html(pages.signed_out.as_deref().unwrap_or(include_str!("logged_out.html")).replace("{next}", &next))
}

fn html(text: String) -> Response<Body> {
    answer::whole(StatusCode::OK, "text/html; charset=utf-8", text)
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
