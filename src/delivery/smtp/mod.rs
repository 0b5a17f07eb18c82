//! E-mail.

mod letter;
mod transport;

use std::{fmt, sync::Arc, time::Duration};

use lettre::{
    message::Mailbox,
    transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS},
};
use tokio::time::timeout;

use self::transport::{Security, Server};
use super::{error::SendError, message::Message, sender::OtpSender, wording::Wording};
use crate::util::{
    clock::{Clock, SystemClock},
    error::ConfigError,
};

/// Sends one-time codes as e-mail through a mail server (feature `smtp`).
///
/// ```no_run
/// use tollgate::delivery::{Channel, Queue, Smtp};
///
/// # let password = "";
/// let smtp = Smtp::relay("smtp.acme.example", "Acme <no-reply@acme.example>")?.credentials("no-reply", password);
/// let queue = Queue::builder().lane(Channel::Email, smtp).build();
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
///
/// Each letter has a connection of its own, so that one that was cut off can't
/// mix up the next. The certificate of the server must be good for its name; it
/// is checked against the public authorities that are compiled in, or against
/// [your own](Self::root_pem). TLS is rustls with aws-lc-rs unless the program
/// has installed another provider; none need be, and none is installed.
///
/// What the server refuses for good (a 5xx answer, also to the password), an
/// address that is none, and a server without STARTTLS or a common way to log in
/// are permanent errors. All else is transient: 4xx answers, connections that
/// fail or break, certificates that are not trusted, and no answer in time.
///
/// A letter has its `Message-ID` from the message, the same at each attempt.
#[must_use]
pub struct Smtp {
    server: Server,
    from: Mailbox,
    credentials: Option<Credentials>,
    timeout: Duration,
    wording: Wording,
    clock: Arc<dyn Clock>,
}

impl Smtp {
    /// Through this host with TLS from the first byte, on port 465. `from` is
    /// `no-reply@acme.example` or `Acme <no-reply@acme.example>`.
    pub fn relay(host: &str, from: &str) -> Result<Self, ConfigError> {
        Self::new(host, 465, Security::Tls, from)
    }

    /// As [`relay`](Self::relay), with STARTTLS on port 587. Without it nothing is sent.
    pub fn starttls(host: &str, from: &str) -> Result<Self, ConfigError> {
        Self::new(host, 587, Security::StartTls, from)
    }

    /// As [`relay`](Self::relay), with no encryption at all, on port 25: whoever
    /// is on the way reads each code and the password. For a mail server on this
    /// machine, and for tests.
    pub fn insecure_plaintext(host: &str, from: &str) -> Result<Self, ConfigError> {
        Self::new(host, 25, Security::None, from)
    }

    fn new(host: &str, port: u16, security: Security, from: &str) -> Result<Self, ConfigError> {
        Ok(Self {
            server: Server::new(host, port, security)?,
            from: letter::mailbox(from)
                .ok_or_else(|| ConfigError::new("sender of mail", from, "must be the address of a mailbox"))?,
            credentials: None,
            timeout: Duration::from_secs(10),
            wording: Wording::new(),
            clock: Arc::new(SystemClock::new()),
        })
    }

    /// The port, where it is not the usual one.
    pub fn port(mut self, port: u16) -> Self {
        self.server.port = port;
        self
    }

    /// Logs in with `AUTH PLAIN`, or `LOGIN` where the server knows no other.
    pub fn credentials(mut self, user: &str, password: &str) -> Self {
        self.credentials = Some(Credentials::new(user.to_owned(), password.to_owned()));
        self
    }

    /// How this program names itself to the server (`EHLO`): `[127.0.0.1]` by
    /// default, which some servers don't like.
    pub fn hello_name(mut self, domain: &str) -> Result<Self, ConfigError> {
        self.server.hello_name(domain)?;
        Ok(self)
    }

    /// Trusts the certificate authorities in this PEM in place of the public ones.
    pub fn root_pem(mut self, pem: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        self.server.roots(pem.as_ref())?;
        Ok(self)
    }

    /// When a letter is given up, from the look-up of the host to the last
    /// answer: after 10 seconds by default.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, ConfigError> {
        if timeout.is_zero() {
            return Err(ConfigError::new("mail timeout", "0 s", "must be more than nothing"));
        }
        self.timeout = timeout;
        Ok(self)
    }

    /// What a letter says.
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

impl OtpSender for Smtp {
    async fn send(&self, message: &Message) -> Result<(), SendError> {
        let now = self.clock.unix(self.clock.now());
        let (envelope, bytes) = letter::write(&self.from, &self.wording, message, now)?;
        let exchange = async {
            let mut connection = self.server.connect().await?;
            if let Some(credentials) = &self.credentials {
                connection.auth(DEFAULT_MECHANISMS, credentials).await?;
            }
            connection.send(&envelope, &bytes).await?;
            Ok(connection)
        };
        // the timeout of the library itself covers only the connect
        let mut connection = match timeout(self.timeout, exchange).await {
            Ok(sent) => sent.map_err(transport::error)?,
            Err(elapsed) => return Err(SendError::transient(elapsed)),
        };
        // it is sent; how the farewell goes changes nothing, and a second letter would be worse
        let _farewell = timeout(transport::FAREWELL, connection.quit()).await;
        Ok(())
    }
}

impl fmt::Debug for Smtp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Smtp").field("server", &self.server).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
