//! A message of the demo, and the page of all of them, which `outbox.js` keeps up to date.

use serde_json::{Value, json};

use crate::html::escape;

/// A message that was sent.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) id: String,
    pub(crate) channel: &'static str,
    pub(crate) to: String,
    /// Empty for a message without a code.
    pub(crate) code: String,
    pub(crate) text: String,
    /// When it was sent, in Unix milliseconds.
    pub(crate) at: u64,
}

impl Sent {
    pub(crate) fn to_json(&self) -> Value {
        json!({ "channel": self.channel, "to": self.to, "code": self.code, "at": self.at })
    }

    /// Returns the entry of the page. `outbox.js` copies the code and shows the time.
    fn to_html(&self) -> String {
        let Self { id, channel, at, .. } = self;
        let kind = match *channel {
            "sms" => "Text message",
            "whatsapp" => "WhatsApp",
            _ => "E-mail",
        };
        let (to, code) = (escape(&self.to), escape(&self.code));
        let words = self.text.split(' ').map(|word| match escape(word) {
            link if word.starts_with("http") => format!("<a href=\"{link}\">{link}</a>"),
            word => word,
        });
        let text = words.collect::<Vec<_>>().join(" ");
        let button = match code.split_at_checked(3) {
            Some((first, rest)) if !code.is_empty() => format!(
                "<button class=\"code\" data-code=\"{code}\"><b>{first} {rest}</b> <span>Copy</span></button>\n"
            ),
            _ => String::new(),
        };
        format!(
            "<li id=\"{id}\">\n<p class=\"note\">{kind} to <strong>{to}</strong> <time data-at=\"{at}\"></time></p>\n{button}<p>{text}</p>\n</li>\n"
        )
    }
}

/// Returns the page of these messages.
pub(crate) fn list_messages<'a>(newest_first: impl Iterator<Item = &'a Sent>) -> String {
    let list: String = newest_first.map(Sent::to_html).collect();
    format!(
        r#"<h1>Messages</h1>
<p class="lead">What the demo would send to phones and mailboxes, newest first. Keep this page open next to your login: it shows a new
message at once, and copies its code with one click.
<p id="copied" class="note" role="status"></p>
<ol id="messages" class="messages">
{list}</ol>
<p id="none" class="card">No messages yet. <a href="/demo/login/demo-web" target="_blank">Log in</a> as ada@example.com and choose a
code, and it arrives here.</p>
<p class="note">Programs get the codes as JSON: <code>curl -s <span id="here">/demo/outbox</span></code>
<script src="/demo/outbox.js" type="module"></script>"#
    )
}
