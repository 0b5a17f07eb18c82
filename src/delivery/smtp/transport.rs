//! The connection to the server.

use std::time::Duration;

use lettre::transport::smtp::{
    Error,
    client::{AsyncSmtpConnection, Certificate, CertificateStore, TlsParameters},
    extension::ClientId,
};
use rustls::pki_types::ServerName;

use crate::{
    delivery::error::{SendError, SendErrorKind},
    support::roots::certificates,
    util::error::ConfigError,
};

/// The timeout for the response to QUIT, which does not matter.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Security {
    Tls,
    StartTls,
    None,
}

pub(super) struct Server {
    host: String,
    pub(super) port: u16,
    security: Security,
    tls: TlsParameters,
    hello: ClientId,
}

impl Server {
    pub(super) fn new(host: &str, port: u16, security: Security) -> Result<Self, ConfigError> {
        if ServerName::try_from(host).is_err() {
            return Err(ConfigError::new("mail server", host, "must be a host name or IP address"));
        }
        let tls = TlsParameters::new(host.to_owned())
            .map_err(|_| ConfigError::new("mail server", host, "TLS failed to initialize"))?;
        Ok(Self { host: host.to_owned(), port, security, tls, hello: ClientId::default() })
    }

    pub(super) fn hello_name(&mut self, domain: &str) -> Result<(), ConfigError> {
        if !matches!(ServerName::try_from(domain), Ok(ServerName::DnsName(_))) {
            return Err(ConfigError::new("hello name", domain, "must be a domain name"));
        }
        self.hello = ClientId::Domain(domain.to_owned());
        Ok(())
    }

    pub(super) fn roots(&mut self, pem: &[u8]) -> Result<(), ConfigError> {
        let wrong =
            |_: Error| ConfigError::new("root certificates", "the given PEM", "contains an invalid certificate");
        let mut tls = TlsParameters::builder(self.host.clone()).certificate_store(CertificateStore::None);
        for certificate in certificates(pem)? {
            tls = tls.add_root_certificate(Certificate::from_der(certificate.to_vec()).map_err(wrong)?);
        }
        self.tls = tls.build().map_err(wrong)?;
        Ok(())
    }

    /// Connects with the configured security.
    pub(super) async fn connect(&self) -> Result<AsyncSmtpConnection, Error> {
        let at = (self.host.as_str(), self.port);
        let tls = (self.security == Security::Tls).then(|| self.tls.clone());
        let mut connection = AsyncSmtpConnection::connect_tokio1(at, None, &self.hello, tls, None).await?;
        if self.security == Security::StartTls {
            connection.starttls(self.tls.clone(), &self.hello).await?;
        }
        Ok(connection)
    }
}

crate::util::fmt::debug_fields!(Server { host, port, security });

/// Classifies an error for retries.
pub(super) fn error(error: Error) -> SendError {
    let kind =
        if error.is_permanent() || error.is_client() { SendErrorKind::Permanent } else { SendErrorKind::Transient };
    SendError::new(kind, error)
}
