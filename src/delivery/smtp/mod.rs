//! Delivery by e-mail.

mod letter;
mod transport;

use std::{sync::Arc, time::Duration};

use lettre::{
    message::Mailbox,
    transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS},
};
use tokio::time::timeout;

use self::transport::{Security, Server};
use super::{error::SendError, message::Message, sender::OtpSender};
use crate::util::{
    builder::setters,
    clock::{Clock, SystemClock},
    error::ConfigError,
};

/// Sends one-time codes by e-mail through a mail server (feature `smtp`).
///
/// ```no_run
/// use tollgate::delivery::Smtp;
///
/// # let password = "";
/// let smtp = Smtp::relay("smtp.acme.example", "Acme <no-reply@acme.example>")?.credentials("no-reply", password);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
///
/// Each e-mail uses a new connection, so that a broken one can't affect the next. The server
/// certificate is verified against the compiled-in public certificate authorities, or against [your
/// own](Self::root_pem). TLS uses the process-wide rustls provider if there is one, otherwise
/// aws-lc-rs. No provider is installed.
///
/// Permanent errors are 5xx responses (including a rejected password), invalid addresses, and
/// servers without STARTTLS or a common authentication method. All other errors are temporary: 4xx
/// responses, failed connections, untrusted certificates and timeouts.
///
/// The `Message-ID` is derived from the message id, so it is the same for all attempts.
#[must_use]
pub struct Smtp {
    server: Server,
    from: Mailbox,
    credentials: Option<Credentials>,
    timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl Smtp {
    /// Sends through this host on port 465, with TLS from the start. `from` is
    /// `no-reply@acme.example` or `Acme <no-reply@acme.example>`.
    ///
    /// # Errors
    ///
    /// Returns an error if the host or the sender address is invalid.
    pub fn relay(host: &str, from: &str) -> Result<Self, ConfigError> {
        Self::new(host, 465, Security::Tls, from)
    }

    /// Like [`relay`](Self::relay), but with STARTTLS on port 587. Without STARTTLS, nothing is
    /// sent.
    ///
    /// # Security
    ///
    /// Prefer `relay` if the server offers it. An attacker on the network path can answer for the server before TLS
    /// begins, so that messages count as sent but never arrive. The attacker learns neither the messages nor the
    /// password.
    ///
    /// # Errors
    ///
    /// Returns an error if the host or the sender address is invalid.
    pub fn starttls(host: &str, from: &str) -> Result<Self, ConfigError> {
        Self::new(host, 587, Security::StartTls, from)
    }

    /// Like [`relay`](Self::relay), but without encryption on port 25. Anyone on the network can
    /// read the codes and the password, so use it only for a mail server on the same machine, and
    /// for tests.
    ///
    /// # Errors
    ///
    /// Returns an error if the host or the sender address is invalid.
    pub fn insecure_plaintext(host: &str, from: &str) -> Result<Self, ConfigError> {
        Self::new(host, 25, Security::None, from)
    }

    fn new(host: &str, port: u16, security: Security, from: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            server: Server::new(host, port, security)?,
            from: letter::mailbox(from)
                .ok_or_else(|| ConfigError::new("mail sender", from, "must be an e-mail address"))?,
            credentials: None,
            timeout: Duration::from_secs(10),
            clock: Arc::new(SystemClock::new()),
        })
    }

    setters! {
        /// Sets a non-standard port.
        pub fn port(port: u16) { server.port: port }

        /// Authenticates with `AUTH PLAIN`, or with `LOGIN` if the server does not support it.
        pub fn credentials(user: &str, password: &str) {
            credentials: Some(Credentials::new(user.to_owned(), password.to_owned()))
        }
    }

    /// Sets the name in the `EHLO` command. Defaults to `[127.0.0.1]`, which some servers reject.
    ///
    /// # Errors
    ///
    /// Returns an error unless `domain` is a domain name.
    pub fn hello_name(mut self, domain: &str) -> Result<Self, ConfigError> {
        self.server.hello_name(domain)?;
        Ok(self)
    }

    /// Trusts the certificate authorities in this PEM instead of the public ones.
    ///
    /// # Errors
    ///
    /// Returns an error if the PEM contains no certificate or an invalid one.
    pub fn root_pem(mut self, pem: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        self.server.roots(pem.as_ref())?;
        Ok(self)
    }

    /// Sets the timeout for sending an e-mail, from the DNS lookup to the last response. Defaults
    /// to 10 seconds.
    ///
    /// # Errors
    ///
    /// Returns an error if `timeout` is zero.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, ConfigError> {
        ConfigError::refuse_if(timeout.is_zero(), "mail timeout", "0 s", "must be greater than zero")?;
        self.timeout = timeout;
        Ok(self)
    }

    setters! {
        /// Sets the clock.
        pub fn clock(clock: impl Clock) { clock: Arc::new(clock) }
    }
}

impl OtpSender for Smtp {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        let now = self.clock.unix(self.clock.now());
        let (envelope, bytes) = letter::build_letter(&self.from, message, now)?;
        let exchange = async {
            let mut connection = self.server.connect().await?;
            if let Some(credentials) = &self.credentials {
                connection.auth(DEFAULT_MECHANISMS, credentials).await?;
            }
            connection.send(&envelope, &bytes).await?;
            Ok(connection)
        };
        // the library's own timeout covers only the connection setup
        let mut connection = match timeout(self.timeout, exchange).await {
            Ok(sent) => sent.map_err(transport::error)?,
            Err(elapsed) => return Err(SendError::transient(elapsed)),
        };
        // the message is sent: an error while closing must not cause a second one
        let _farewell = timeout(transport::FAREWELL, connection.quit()).await;
        Ok(())
    }
}

crate::util::fmt::debug_fields!(Smtp { server, timeout });
