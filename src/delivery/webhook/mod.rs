//! Codes through an HTTP gateway.

mod answer;
mod request;
mod sign;

use std::{fmt, sync::Arc, time::Duration};

use http::Uri;

use self::sign::WebhookSigner;
use super::{error::SendError, message::Message, sender::OtpSender, wording::Wording};
use crate::{
    http::outgoing::{Outgoing, parse_url},
    util::{
        clock::{Clock, SystemClock},
        error::ConfigError,
    },
};

/// Hands one-time codes to an HTTP gateway (feature `webhook`), which sends
/// them as text messages, through WhatsApp, or however else.
///
/// ```no_run
/// use tollgate::delivery::{Channel, Queue, Webhook};
///
/// # let key = "";
/// let gateway = Webhook::new("https://gateway.acme.example/otp", key)?;
/// let queue = Queue::builder().lane(Channel::Sms, gateway).build();
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
///
/// # What a gateway gets
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
///   "text": "482913 is your code. It is valid for 5 minutes. …",
///   "expires_at": 1763750000
/// }
/// ```
///
/// `text` is the [`Wording`] filled in, `expires_at` is in Unix seconds. `id` is
/// the same at each attempt: a gateway that has sent it already answers 200 and
/// sends nothing.
///
/// # How a gateway verifies it
///
/// By the scheme of [Standard Webhooks](https://www.standardwebhooks.com), for
/// which there are libraries in most languages. It is short to write, too:
///
/// 1. `webhook-timestamp` (Unix seconds) is at most five minutes away from the gateway's clock;
/// 2. `HMAC-SHA256(key, webhook-id + "." + webhook-timestamp + "." + body)`, in standard base64 after `v1,`,
///    equals `webhook-signature`, compared in constant time. The body is the bytes as they came.
///
/// For the key `whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw`, the id `msg_p5jXN8AQM9LWM0D4loKWxJek`, the timestamp
/// `1614265330` and the body `{"test": 2432232314}` that is `v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=`.
///
/// # What its answer means
///
/// The status alone counts, and the body is not read. 2xx: sent. 408, 425, 429
/// and 5xx, no connection, and no answer in time: tried again, not before
/// `retry-after` in seconds has passed. All else is permanent, redirects too: a
/// code is never sent to where an answer points.
#[must_use]
pub struct Webhook {
    url: Uri,
    signer: WebhookSigner,
    client: Outgoing,
    timeout: Duration,
    wording: Wording,
    clock: Arc<dyn Clock>,
}

impl Webhook {
    /// Through the gateway at this URL: `https`, or `http` on the loopback
    /// interface. The key that both share has at least 24 bytes, as they are or
    /// as `whsec_` and base64.
    pub fn new(url: &str, key: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        Ok(Self {
            url: parse_url("webhook URL", url)?,
            signer: WebhookSigner::new(key.as_ref())?,
            client: Outgoing::new()?,
            timeout: Duration::from_secs(5),
            wording: Wording::new(),
            clock: Arc::new(SystemClock::new()),
        })
    }

    /// Trusts the certificate authorities in this PEM in place of the public ones.
    pub fn root_pem(mut self, pem: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        self.client = Outgoing::trusting(pem.as_ref())?;
        Ok(self)
    }

    /// When an exchange is given up, from the look-up of the host to the status:
    /// after 5 seconds by default.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, ConfigError> {
        if timeout.is_zero() {
            return Err(ConfigError::new("webhook timeout", "0 s", "must be more than nothing"));
        }
        self.timeout = timeout;
        Ok(self)
    }

    /// What `text` says.
    pub fn wording(mut self, wording: Wording) -> Self {
        self.wording = wording;
        self
    }

    /// Takes the time from this clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }
}

impl OtpSender for Webhook {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        let now = self.clock.unix(self.clock.now());
        let text = self.wording.text_of(message, now);
        let request = request::write(&self.url, &self.signer, message, &text, now)?;
        match self.client.head(request, self.timeout).await {
            Ok(response) => answer::meaning(response.status(), response.headers()),
            Err(failure) => Err(SendError::transient(failure)),
        }
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // the path may be a secret of its own
        f.debug_struct("Webhook")
            .field("host", &self.url.host())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
