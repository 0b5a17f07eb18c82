//! The redirect URI of the demo: it checks the `state`, and its page exchanges the code for tokens.

use std::collections::BTreeMap;

use axum::{
    extract::{Query, State},
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use tollgate::cookie::{self, SetCookie};

use crate::{
    demo::AFTER_LOGOUT,
    html::{escape, page},
    pages::{Kept, cookie_name},
};

pub(crate) async fn callback(
    State(origin): State<String>,
    uri: Uri,
    headers: HeaderMap,
    Query(answer): Query<BTreeMap<String, String>>,
) -> Response {
    let of = |name: &str| answer.get(name).map_or("", String::as_str);
    let name = cookie_name(of("state"));
    let mut kept = cookie::read_cookies(&headers, &name).filter_map(Kept::read);
    let Some(kept) = kept.find(|kept| kept.state == of("state")) else {
        let body = "<h1>Not logged in</h1>\n<p>This login was not started in this browser: its state does not match.";
        return (StatusCode::BAD_REQUEST, page(body)).into_response();
    };
    let body = if of("iss") != origin {
        "<h1>Not logged in</h1>\n<p>The response came from another issuer.".to_owned()
    } else if let Some(code) = answer.get("code") {
        logged_in(&origin, uri.path(), &kept, code)
    } else {
        format!("<h1>Not logged in</h1>\n<p>{}: {}", escape(of("error")), escape(of("error_description")))
    };
    let mut response = page(&format!("{body}\n<p><a href=\"/demo/\">Back to the demo</a>"));
    // each state is accepted once
    if let Ok(removal) = SetCookie::removal(&name).and_then(SetCookie::insecure_plain_http) {
        removal.append_to(response.headers_mut());
    }
    response
}

/// The page that `page.js` completes.
fn logged_in(origin: &str, path: &str, kept: &Kept<'_>, code: &str) -> String {
    format!(
        r#"<h1>Logged in</h1>
<p>with the code <code id="code">{code}</code>. The login also started a session on this site: see your <a href="/account">account</a>.
<p><button id="me">Call /api/me</button><button id="userinfo">Ask /userinfo</button><button id="refresh">Refresh</button
><button id="revoke">Revoke</button>
<form id="sign-out" method="post" action="/logout">
<input type="hidden" name="client_id" value="{client}"><input type="hidden" name="id_token_hint">
<input type="hidden" name="post_logout_redirect_uri" value="{origin}{AFTER_LOGOUT}"><button>Log out</button>
</form>
<h2>The last answer</h2><pre id="answer" role="status">…</pre>
<h2>The access token</h2><pre id="token"></pre>
<h2>It says</h2><pre id="access"></pre>
<h2>The id_token says</h2><pre id="identity"></pre>
<h2>The refresh token</h2><pre id="refreshes"></pre>
<div id="login" data-client="{client}" data-code="{code}" data-verifier="{verifier}" data-nonce="{nonce}"
 data-redirect="{origin}{path}"></div>
<script src="/demo/page.js"></script>"#,
        code = escape(code),
        client = escape(kept.client),
        verifier = escape(kept.verifier),
        nonce = escape(kept.nonce),
    )
}
