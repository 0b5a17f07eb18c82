//! Delivery through an HTTP gateway.

mod answer;
mod request;
mod sign;

use std::{sync::Arc, time::Duration};

use http::Uri;

use self::sign::WebhookSigner;
use super::{error::SendError, message::Message, sender::OtpSender};
use crate::{
    support::{outgoing::Outgoing, url::parse_url},
    util::{
        builder::setters,
        clock::{Clock, SystemClock},
        error::ConfigError,
    },
};

/// Sends one-time codes to an HTTP gateway (feature `webhook`), which delivers them by SMS,
/// WhatsApp or other means.
///
/// ```no_run
/// use tollgate::delivery::Webhook;
///
/// # let key = "";
/// let gateway = Webhook::new("https://gateway.acme.example/otp", key)?;
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
///
/// # Request
///
/// A `POST` with a JSON body:
///
/// ```json
/// {
///   "id": "8nVjWnTbEvNLkjMCnVHhYA",
///   "channel": "sms",
///   "tenant": "acme",
///   "to": "+15550100",
///   "code": "482913",
///   "language": "en",
///   "text": "482913 is your code. It is valid for 5 minutes. …",
///   "expires_at": 1763750000
/// }
/// ```
///
/// A notice of a change has `notice`, such as `passkey_added`, in place of `code`. A message with a link has `link`, an
/// object with `kind`, such as `invitation`, and `url`.
///
/// `text` is that of [`Message::text`], and `expires_at` is in Unix seconds. `id` is the same for
/// all attempts: a gateway that has already sent the message should return a 200 and do nothing.
///
/// # Verification
///
/// Requests are signed according to [Standard Webhooks](https://www.standardwebhooks.com), which
/// has libraries for most languages. To verify a request yourself, check that
///
/// 1. `webhook-timestamp` (Unix seconds) is within five minutes of the current time;
/// 2. `webhook-signature` equals `v1,` followed by the standard base64 of `HMAC-SHA256(key,
///    webhook-id + "." + webhook-timestamp + "." + body)`. Use the raw bytes of the body, and
///    compare in constant time.
///
/// Test vector: the key `whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw`, the id
/// `msg_p5jXN8AQM9LWM0D4loKWxJek`, the timestamp `1614265330` and the body `{"test": 2432232314}`
/// give `v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=`.
///
/// # Response
///
/// Only the status matters; the body is not read. 2xx means success. 408, 425, 429, 5xx, connection errors and timeouts
/// are retried, after at least the number of seconds in `retry-after`, up to a minute. Everything else is a permanent
/// failure. Redirects are not followed, so that codes are never sent to other URLs.
#[must_use]
pub struct Webhook {
    url: Uri,
    signer: WebhookSigner,
    client: Outgoing,
    timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl Webhook {
    /// Sends to the gateway at this URL: `https`, or `http` on a loopback address. The shared key
    /// has at least 24 bytes, either raw or as `whsec_` followed by base64.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL or the key is invalid.
    pub fn new(url: &str, key: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        Ok(Self {
            url: parse_url("webhook URL", url)?,
            signer: WebhookSigner::new(key.as_ref())?,
            client: Outgoing::new()?,
            timeout: Duration::from_secs(5),
            clock: Arc::new(SystemClock::new()),
        })
    }

    /// Trusts the certificate authorities in this PEM instead of the public ones.
    ///
    /// # Errors
    ///
    /// Returns an error if the PEM contains no certificate or an invalid one.
    pub fn root_pem(mut self, pem: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        self.client = Outgoing::trusting(pem.as_ref())?;
        Ok(self)
    }

    /// Sets the timeout of a request, from the DNS lookup to the response status. Defaults to 5
    /// seconds.
    ///
    /// # Errors
    ///
    /// Returns an error if `timeout` is zero.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, ConfigError> {
        ConfigError::refuse_if(timeout.is_zero(), "webhook timeout", "0 s", "must be greater than zero")?;
        self.timeout = timeout;
        Ok(self)
    }

    setters! {
        /// Sets the clock.
        pub fn clock(clock: impl Clock) { clock: Arc::new(clock) }
    }
}

impl OtpSender for Webhook {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        let now = self.clock.unix(self.clock.now());
        let request = request::build_webhook_request(&self.url, &self.signer, message, now)?;
        match self.client.fetch_head(request, self.timeout).await {
            Ok(response) => answer::meaning(response.status(), response.headers()),
            Err(failure) => Err(SendError::transient(failure)),
        }
    }
}

// the path may contain a secret
crate::util::fmt::debug_fields!(Webhook, |own| host: own.url.host(), timeout: own.timeout);
