//! The start page of the demo.

use crate::demo::{ACME_KEY, GLOBEX_KEY, KEY_HEADER, PEOPLE, TWO_STEPS};

/// The start page. Its links contain the host, so that all cookies belong to one host.
pub(crate) fn start_page(origin: &str) -> String {
    let [acme, globex] = [("acme", ACME_KEY, 600), ("globex", GLOBEX_KEY, 60)].map(|tenant| panel(origin, tenant));
    let [ada, grace] = &PEOPLE;
    format!(
        r#"<h1>tollgate demo</h1>
<p class="lead">Rate limits, logins and tokens of one server, with public keys and two users. Each card works here and with curl.
<section class="card" aria-labelledby="limit">
<h2 id="limit">Try the limit</h2>
<p>Two tenants call <code>/api/hello</code>, each with a key and a limit of its own. Flood acme: it is refused beyond 600 requests
in any minute, while globex goes on as before.
<p class="row"><button id="flood" class="main" aria-pressed="false">Flood acme</button>
<span id="flood-state" class="note" role="status">Six requests at a time, for 15 seconds, and one a second for globex.</span>
<div class="pair">
{acme}
{globex}
</div>
</section>
<div class="cards">
<section class="card" aria-labelledby="log-in">
<h2 id="log-in">Log in</h2>
<p>As <strong>{ada}</strong>, password <code>{ada_password}</code>, or as <strong>{grace}</strong>,
<code>{grace_password}</code>. Their addresses are <code>{ada_email}</code> and <code>{grace_email}</code>, their numbers
<code>{ada_phone}</code> and <code>{grace_phone}</code>. Codes arrive among the <a href="{origin}/demo/outbox" target="outbox">messages</a>: open them next to
this page.
Logins spend the limit of acme, too: after a flood, wait a minute.
<ul>
<li><a href="{origin}/demo/login/demo-web">Log in with one step</a>: a password or a code
<li><a href="{origin}/demo/login/demo-mfa">Log in with two steps</a>: if you are signed in, only the second is missing
<li><a href="{origin}/demo/login/demo-web?acr_values={TWO_STEPS}">Step up</a>: after one step, this asks for the second
<li><a href="{origin}/demo/login/demo-native">Log in like a native app</a>: it asks again each time, because it does not take part in single sign-on
<li><a href="{origin}/demo/login/demo-partner">Log in at a partner</a>: it asks you what it may see, and you can
<a href="{origin}/account/security">take that away</a> again
</ul>
<pre tabindex="0">curl -i '{origin}/demo/login/demo-web'</pre>
</section>
<section class="card" aria-labelledby="tokens">
<h2 id="tokens">See the tokens</h2>
<p>After a login the page shows what the tokens contain, refreshes them, calls <code>/api/me</code>, steps up and signs out, with the
curl line of each request. <a href="{origin}/demo/login/demo-web">Log in to see them</a>.
<p>The server is an OpenID provider:
<a href="{origin}/.well-known/openid-configuration">its configuration</a>.
<pre tabindex="0">curl -s {origin}/.well-known/openid-configuration</pre>
</section>
<section class="card" aria-labelledby="events">
<h2 id="events">Watch the events</h2>
<p><a href="{origin}/events/">The event page</a> shows who is limited, since when and until when, and every login. Open it
next to this page, and flood acme.
<p>In the demo, programs of this machine read the events of all tenants without a key. Elsewhere a tenant reads its own.
<pre tabindex="0">curl -s -H '{KEY_HEADER}: {ACME_KEY}' {origin}/events/log</pre>
</section>
<section class="card" aria-labelledby="account">
<h2 id="account">Manage an account</h2>
<ol>
<li>Open <a href="{origin}/account/security">your security page</a> and sign in. Before it changes anything, it asks for a second
step: choose the code by e-mail.
<li>Add a passkey, or set up an authenticator app and recovery codes.
<li>Log in again. With a passkey you need neither name nor password.
</ol>
<p>Or <a href="{origin}/sign-up?return_to=/account/security">create an account</a> of your own. Its code arrives among the messages.
</section>
</div>
<script src="/demo/limit.js" type="module"></script>"#,
        ada = ada.name,
        ada_password = ada.password,
        ada_email = ada.email,
        ada_phone = ada.phone,
        grace = grace.name,
        grace_password = grace.password,
        grace_email = grace.email,
        grace_phone = grace.phone,
    )
}

/// The requests of a tenant. `limit.js` draws them.
fn panel(origin: &str, (tenant, key, limit): (&str, &str, u32)) -> String {
    format!(
        r#"<section class="tenant" id="{tenant}" data-header="{KEY_HEADER}" data-key="{key}" aria-labelledby="{tenant}-name">
<h3 id="{tenant}-name">{tenant} <small>{limit} requests a minute</small></h3>
<div class="gauge" role="meter" aria-label="Used by {tenant}" aria-valuemin="0" aria-valuemax="{limit}" aria-valuenow="0"><div></div></div>
<p class="counts"><span><b class="admitted">0</b> admitted</span> <span><b class="refused">0</b> refused</span> <button
 class="one">Send one</button></p>
<svg class="bars" role="img" aria-label="No requests yet"></svg>
<h4>The last answer</h4>
<pre class="headers" tabindex="0">none yet</pre>
<pre tabindex="0">curl -i -H '{KEY_HEADER}: {key}' {origin}/api/hello</pre>
</section>"#
    )
}
