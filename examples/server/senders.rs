//! The senders of one-time codes: a mail server, and signed webhooks for text messages and WhatsApp.

use std::{error::Error, path::Path, path::PathBuf};

use serde::Deserialize;
use tollgate::delivery::AnySender;

#[cfg(any(feature = "smtp", feature = "webhook"))]
use crate::secret_text::read_pem;
use crate::{outbox::Outbox, secret_text::SecretText};

/// The section `[smtp]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(feature = "smtp"), expect(dead_code, reason = "only the feature sends mail"))]
pub(crate) struct WrittenSmtp {
    host: String,
    port: Option<u16>,
    /// `tls`, `starttls` or `insecure_plaintext`.
    security: Option<String>,
    from: String,
    user: Option<String>,
    password: Option<SecretText>,
    hello_name: Option<String>,
    certificate_authority: Option<PathBuf>,
}

/// A section `[sms]` or `[whatsapp]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(feature = "webhook"), expect(dead_code, reason = "only the feature calls webhooks"))]
pub(crate) struct WrittenWebhook {
    url: String,
    key: SecretText,
    certificate_authority: Option<PathBuf>,
}

/// Where messages are sent. Channels without a sender are off.
#[derive(Default)]
pub(crate) struct Senders {
    pub(crate) email: Option<AnySender>,
    pub(crate) sms: Option<AnySender>,
    pub(crate) whatsapp: Option<AnySender>,
}

impl Senders {
    /// Prints the codes of channels without a sender.
    pub(crate) fn print_others(&mut self, outbox: &Outbox) {
        for sender in [&mut self.email, &mut self.sms, &mut self.whatsapp] {
            sender.get_or_insert_with(|| outbox.clone().into());
        }
    }
}

impl WrittenSmtp {
    #[cfg(not(feature = "smtp"))]
    #[expect(clippy::unused_self, reason = "the feature uses it")]
    pub(crate) fn sender(&self, _: &Path) -> Result<AnySender, Box<dyn Error>> {
        Err(crate::help::without_feature("smtp").into())
    }

    #[cfg(feature = "smtp")]
    pub(crate) fn sender(&self, directory: &Path) -> Result<AnySender, Box<dyn Error>> {
        use tollgate::delivery::Smtp;

        let mut smtp = match self.security.as_deref() {
            None | Some("tls") => Smtp::relay(&self.host, &self.from)?,
            Some("starttls") => Smtp::starttls(&self.host, &self.from)?,
            Some("insecure_plaintext") => Smtp::insecure_plaintext(&self.host, &self.from)?,
            Some(other) => {
                return Err(format!("security: {other:?}: must be tls, starttls or insecure_plaintext").into());
            }
        };
        if let Some(port) = self.port {
            smtp = smtp.port(port);
        }
        match (&self.user, &self.password) {
            (Some(user), Some(password)) => {
                let password = password.read(directory).map_err(|error| format!("password: {error}"))?;
                smtp = smtp.credentials(user, &password);
            }
            (None, None) => {}
            _ => return Err("`user` and `password` belong together".into()),
        }
        if let Some(name) = &self.hello_name {
            smtp = smtp.hello_name(name)?;
        }
        if let Some(path) = &self.certificate_authority {
            smtp = smtp.root_pem(read_pem(directory, path)?)?;
        }
        Ok(smtp.into())
    }
}

impl WrittenWebhook {
    #[cfg(not(feature = "webhook"))]
    #[expect(clippy::unused_self, reason = "the feature uses it")]
    pub(crate) fn sender(&self, _: &Path) -> Result<AnySender, Box<dyn Error>> {
        Err(crate::help::without_feature("webhook").into())
    }

    #[cfg(feature = "webhook")]
    pub(crate) fn sender(&self, directory: &Path) -> Result<AnySender, Box<dyn Error>> {
        use tollgate::delivery::Webhook;

        let key = self.key.read(directory).map_err(|error| format!("key: {error}"))?;
        let mut webhook = Webhook::new(&self.url, key)?;
        if let Some(path) = &self.certificate_authority {
            webhook = webhook.root_pem(read_pem(directory, path)?)?;
        }
        Ok(webhook.into())
    }
}
