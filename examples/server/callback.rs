//! The redirect URI of the demo: it checks the `state`, and its page exchanges the code for tokens.

use std::collections::BTreeMap;

use axum::{
    extract::{Query, State},
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use tollgate::cookie::{self, SetCookie};

use crate::{
    demo::{AFTER_LOGOUT, TWO_STEPS},
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
    let error = format!("{}: {}", escape(of("error")), escape(of("error_description")));
    let Some(kept) = kept.find(|kept| kept.state == of("state")) else {
        let (title, reason) = match answer.contains_key("error") {
            true => ("Not logged in", &*error),
            false => ("This page works once", "Its code is used up, or the login began in another browser"),
        };
        let body = format!(
            "<h1>{title}</h1>\n<p>{reason}. Log in again from the <a href=\"/demo/\">start page</a>, or see your \
             <a href=\"/account\">account</a>."
        );
        return (StatusCode::BAD_REQUEST, page(&body)).into_response();
    };
    let body = if of("iss") != origin {
        "<h1>Not logged in</h1>\n<p>The response came from another issuer. <a href=\"/demo/\">Back to the start</a>"
            .to_owned()
    } else if let Some(code) = answer.get("code") {
        logged_in(&origin, uri.path(), &kept, code)
    } else {
        format!("<h1>Not logged in</h1>\n<p>{error}. <a href=\"/demo/\">Back to the start</a>")
    };
    let mut response = page(&body);
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
<p class="lead">The browser came back with the code <code id="code">{code}</code>, which this page has exchanged for tokens. They
exist only in its memory. The login also started a session on this site: see your <a href="/account">account</a>.
<div class="columns">
<div>
<section class="card" aria-labelledby="requests-title">
<h2 id="requests-title">Requests</h2>
<p class="note">The curl lines use these variables:
<pre id="shell" class="token" tabindex="0"></pre>
<ul class="actions">
<li><button id="me">Call /api/me</button>
<pre tabindex="0">curl -i -H "authorization: Bearer $ACCESS" {origin}/api/me</pre>
<li><button id="userinfo">Ask /userinfo</button>
<pre tabindex="0">curl -i -H "authorization: Bearer $ACCESS" {origin}/userinfo</pre>
<li><button id="refresh">Refresh</button>
<pre tabindex="0">curl -i {origin}/token -d client_id={client} -d grant_type=refresh_token -d refresh_token=$REFRESH</pre>
<li><button id="revoke">Revoke</button>
<pre tabindex="0">curl -i {origin}/revoke -d client_id={client} -d token=$REFRESH</pre>
<li><form action="/demo/login/{client}"><input type="hidden" name="acr_values" value="{TWO_STEPS}"><button id="step-up">Step up
to two steps</button></form>
<pre tabindex="0">curl -i '{origin}/demo/login/{client}?acr_values={TWO_STEPS}'</pre>
<li><form id="sign-out" method="post" action="/logout">
<input type="hidden" name="client_id" value="{client}"><input type="hidden" name="id_token_hint">
<input type="hidden" name="post_logout_redirect_uri" value="{origin}{AFTER_LOGOUT}"><button>Sign out</button>
</form>
<pre tabindex="0">curl -i {origin}/logout -d client_id={client} -d id_token_hint=$IDENTITY</pre>
</ul>
</section>
<section class="card" aria-labelledby="refresh-title">
<h2 id="refresh-title">Refresh token</h2>
<p class="note">It has no claims, and it works once: each refresh returns the next one.
<pre id="refreshes" tabindex="0"></pre>
</section>
</div>
<div>
<section class="card" aria-labelledby="answer-title">
<h2 id="answer-title">The last answer</h2>
<pre id="answer" role="status" tabindex="0">…</pre>
</section>
<section class="card" aria-labelledby="access-title">
<h2 id="access-title">Access token</h2>
<p class="note">Its claims. It is for APIs, which verify it.
<pre id="access" tabindex="0"></pre>
</section>
<section class="card" aria-labelledby="identity-title">
<h2 id="identity-title">ID token</h2>
<p class="note">Its claims. It tells this client who has logged in, and how.
<pre id="identity" tabindex="0"></pre>
</section>
</div>
</div>
<div id="login" data-client="{client}" data-code="{code}" data-verifier="{verifier}" data-nonce="{nonce}"
 data-redirect="{origin}{path}"></div>
<script src="/demo/page.js"></script>"#,
        code = escape(code),
        client = escape(kept.client),
        verifier = escape(kept.verifier),
        nonce = escape(kept.nonce),
    )
}
