//! The start page of the demo.

use crate::demo::TWO_STEPS;

/// The start page. Its links contain the host, so that all cookies belong to one host.
pub(crate) fn page_of_logins(origin: &str) -> String {
    format!(
        r#"<h1>tollgate demo</h1>
<p>Log in as <strong>ada</strong> (password <code>correct horse battery staple</code>, ada@example.com, +15555550100)
or <strong>grace</strong> (<code>compilers are polite</code>, grace@example.com, +15555550101).
<h2>Logins</h2>
<ul>
<li><a href="{origin}/demo/login/demo-web">Log in</a>: one step, by password or a one-time code
<li><a href="{origin}/demo/login/demo-mfa">Log in with two steps</a>: if you already signed in with one step, you are
asked only for the second
<li><a href="{origin}/demo/login/demo-web?acr_values={TWO_STEPS}">Step up</a>: the first client again, but
its request asks for two steps
<li><a href="{origin}/demo/login/demo-native">Log in like a native app</a>
</ul>
<p>Afterwards the application shows its tokens and calls APIs with them.
<h2>Passkeys and authenticator apps</h2>
<ol>
<li>Open <a href="{origin}/account/security">your security page</a> and sign in. The page asks for a second step before it
changes anything: choose the code by e-mail, which is shown among the <a href="{origin}/demo/outbox">one-time codes</a>.
<li>Add a passkey, or set up an authenticator app and recovery codes.
<li>Log in again with one of the links above. With a passkey you need neither name nor password: choose it in the
field for the name, or press the button.
</ol>
<p><a href="{origin}/demo/outbox">One-time codes</a> · <a href="{origin}/account">Account</a> ·
<a href="{origin}/events/">Event log</a> · <a href="{origin}/.well-known/openid-configuration">Configuration</a>"#
    )
}
