//! One-time codes by e-mail through a real mail server.

#![cfg(feature = "smtp")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may panic")]

mod support;

use std::{error::Error, time::Duration};

use serde_json::Value;
use support::certificate::Certificate;
use support::python::PythonServer;
use support::redis_server::ReservedPort;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    time::timeout,
};
use tollgate::{
    Language,
    clock::{Clock, SystemClock},
    delivery::{Channel, Message, Notice, NoticeKind, OtpSender, SendErrorKind, Smtp},
};

const FROM: &str = "Acme <no-reply@acme.example>";

/// Starts a mail server. Returns `None` if there is no Python with aiosmtpd.
async fn mail(arguments: &[&str]) -> Option<PythonServer> {
    PythonServer::start("mail.py", "aiosmtpd", arguments).await
}

async fn mail_with_tls(kind: &str, certificate: &Certificate, user: bool) -> Option<PythonServer> {
    let (chain, key) = (certificate.chain.to_str().unwrap(), certificate.key.to_str().unwrap());
    let tls = ["--tls", kind, "--chain", chain, "--key", key];
    let login = ["--user", "acme", "--password", "a good one"];
    mail(&[&tls[..], if user { &login } else { &[] }].concat()).await
}

fn plain(server: &PythonServer) -> Smtp {
    Smtp::insecure_plaintext("localhost", FROM).unwrap().port(server.port)
}

fn message(to: &str) -> Message {
    let clock = SystemClock::new();
    let until = clock.unix(clock.now()) + Duration::from_secs(300);
    Message::new(Channel::Email, "acme".parse().unwrap(), to, "482913", until)
}

async fn kind(smtp: &Smtp, to: &str) -> Option<SendErrorKind> {
    smtp.send(&message(to)).await.err().map(|error| error.kind())
}

#[tokio::test]
async fn codes_arrive() {
    let Some(mut server) = mail(&[]).await else { return };
    let smtp = plain(&server).hello_name("app.acme.example").unwrap();
    let clock = SystemClock::new();
    let until = clock.unix(clock.now()) + Duration::from_secs(300);
    let code = "Grüße!\n.\n482913";
    let message = Message::new(Channel::Email, "acme".parse().unwrap(), "ada@example.com", code, until);
    smtp.send(&message).await.unwrap();
    let letter = server.next().await;
    assert_eq!(letter["sender"], "no-reply@acme.example");
    assert_eq!(letter["to"], serde_json::json!(["ada@example.com"]));
    let text = letter["text"].as_str().unwrap();
    assert!(text.contains(&format!("Message-ID: <{}@acme.example>", message.id())), "{text}");
    assert!(text.contains("Subject: Your sign-in code") && text.is_ascii(), "{text}");
    // a line with a single dot does not end the message
    assert!(
        text.contains("\r\n\r\nGr=C3=BC=C3=9Fe!\r\n.\r\n482913 is your code. It is valid for 5 minutes."),
        "{text}"
    );
    let notice = Notice::new(NoticeKind::TotpRemoved, until);
    let notice = Message::of_notice(Channel::Email, "acme".parse().unwrap(), "ada@example.com", notice, until);
    smtp.send(&notice.in_language(Language::German)).await.unwrap();
    let letter = server.next().await;
    let text = letter["text"].as_str().unwrap();
    assert!(text.contains("Subject: Ihre Anmeldemethoden wurden =?utf-8?b?") && text.is_ascii(), "{text}");
}

#[tokio::test]
async fn with_starttls_codes_arrive_encrypted_and_authenticated_on_separate_connections() {
    let Some(certificate) = Certificate::new("starttls") else { return };
    let Some(mut server) = mail_with_tls("starttls", &certificate, true).await else { return };
    let smtp = Smtp::starttls("localhost", FROM).unwrap().port(server.port).credentials("acme", "a good one");
    let smtp = smtp.root_pem(&certificate.authority).unwrap();
    for sent in 1..=2 {
        smtp.send(&message("ada@example.com")).await.unwrap();
        let letter = server.next().await;
        assert_eq!((&letter["tls"], &letter["user"]), (&Value::Bool(true), &Value::from("acme")));
        assert_eq!(letter["connections"], sent);
    }
    assert!(rustls::crypto::CryptoProvider::get_default().is_none(), "a process-wide crypto provider was installed");
}

#[tokio::test]
async fn codes_arrive_with_implicit_tls() {
    let Some(certificate) = Certificate::new("implicit") else { return };
    let Some(mut server) = mail_with_tls("implicit", &certificate, false).await else { return };
    let smtp = Smtp::relay("localhost", FROM).unwrap().port(server.port);
    let smtp = smtp.root_pem(&certificate.authority).unwrap();
    smtp.send(&message("ada@example.com")).await.unwrap();
    assert_eq!(server.next().await["tls"], true);
}

#[tokio::test]
async fn servers_with_untrusted_certificates_get_no_code() {
    let (Some(certificate), Some(other)) = (Certificate::new("known"), Certificate::new("unknown")) else { return };
    let Some(server) = mail_with_tls("starttls", &certificate, false).await else { return };
    // not trusted: public authorities, a private authority that did not sign it, another name
    let public = Smtp::starttls("localhost", FROM).unwrap();
    let private = Smtp::starttls("localhost", FROM).unwrap().root_pem(&other.authority).unwrap();
    let by_address = Smtp::starttls("127.0.0.1", FROM).unwrap().root_pem(&certificate.authority).unwrap();
    for smtp in [public, private, by_address] {
        let error = smtp.port(server.port).send(&message("ada@example.com")).await.unwrap_err();
        let mut causes = std::iter::successors(error.source(), |cause| Error::source(*cause)).map(ToString::to_string);
        assert!(causes.any(|cause| cause.contains("certificate")), "{error:?}");
        assert!(error.is_transient());
    }
}

#[tokio::test]
async fn a_server_without_starttls_gets_neither_the_password_nor_a_code() {
    let Some(server) = mail(&[]).await else { return };
    let smtp = Smtp::starttls("localhost", FROM).unwrap().port(server.port).credentials("acme", "a good one");
    assert_eq!(kind(&smtp, "ada@example.com").await, Some(SendErrorKind::Permanent));
}

#[tokio::test]
async fn a_refused_password_is_permanent() {
    let Some(certificate) = Certificate::new("password") else { return };
    let Some(server) = mail_with_tls("starttls", &certificate, true).await else { return };
    let smtp = Smtp::starttls("localhost", FROM).unwrap().port(server.port).credentials("acme", "a bad one");
    let smtp = smtp.root_pem(&certificate.authority).unwrap();
    assert_eq!(kind(&smtp, "ada@example.com").await, Some(SendErrorKind::Permanent));
}

#[tokio::test]
async fn a_5xx_is_permanent_and_a_4xx_temporary() {
    let Some(server) = mail(&[]).await else { return };
    let smtp = plain(&server);
    assert_eq!(kind(&smtp, "refused@example.com").await, Some(SendErrorKind::Permanent));
    assert_eq!(kind(&smtp, "later@example.com").await, Some(SendErrorKind::Transient));
    assert_eq!(kind(&smtp, "later@example.com").await, None);
}

#[tokio::test]
async fn silent_and_hanging_servers_time_out() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let smtp = Smtp::insecure_plaintext("127.0.0.1", FROM).unwrap().port(silent.local_addr().unwrap().port());
    let smtp = smtp.timeout(Duration::from_millis(200)).unwrap();
    let given_up = timeout(Duration::from_secs(60), kind(&smtp, "ada@example.com")).await;
    assert_eq!(given_up.unwrap(), Some(SendErrorKind::Transient));

    let Some(mut server) = mail(&[]).await else { return };
    let smtp = plain(&server).timeout(Duration::from_millis(500)).unwrap();
    let given_up = timeout(Duration::from_secs(60), kind(&smtp, "hangs@example.com")).await;
    assert_eq!(given_up.unwrap(), Some(SendErrorKind::Transient));
    // the aborted attempt has no effect on the next
    let smtp = plain(&server);
    smtp.send(&message("ada@example.com")).await.unwrap();
    assert_eq!(server.next().await["to"], serde_json::json!(["ada@example.com"]));
}

#[tokio::test]
async fn an_accepted_message_is_sent_even_if_closing_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        stream.get_mut().write_all(b"220 hello\r\n").await.unwrap();
        let (mut in_letter, mut line) = (false, String::new());
        while stream.read_line(&mut line).await.unwrap() > 0 {
            let answer: &[u8] = match line.trim_end() {
                "." => b"250 taken\r\n",
                "DATA" => b"354 go on\r\n",
                // no response to QUIT
                "QUIT" => return,
                _ if in_letter => b"",
                _ => b"250 fine\r\n",
            };
            in_letter = (in_letter || line.trim_end() == "DATA") && line.trim_end() != ".";
            stream.get_mut().write_all(answer).await.unwrap();
            line.clear();
        }
    });
    let smtp = Smtp::insecure_plaintext("127.0.0.1", FROM).unwrap().port(port);
    smtp.send(&message("ada@example.com")).await.unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn a_refused_connection_is_temporary() {
    let nobody = ReservedPort::new();
    let smtp = Smtp::insecure_plaintext("127.0.0.1", FROM).unwrap().port(nobody.number);
    assert_eq!(kind(&smtp, "ada@example.com").await, Some(SendErrorKind::Transient));
    assert_eq!(kind(&smtp, "not an address").await, Some(SendErrorKind::Permanent));
}

#[test]
fn invalid_settings_are_rejected() {
    for host in ["", "two words", "host:25", "smtp://host", "a\r\nb"] {
        assert!(Smtp::relay(host, FROM).is_err(), "{host:?}");
    }
    for from in ["", "acme", "a@b\r\nBcc: c@d.e", "Acme\n <a@b.c>"] {
        assert!(Smtp::relay("localhost", from).is_err(), "{from:?}");
    }
    let smtp = || Smtp::relay("localhost", "a@b.c").unwrap();
    assert!(smtp().timeout(Duration::ZERO).is_err());
    assert!(smtp().hello_name("a\r\nb").is_err() && smtp().hello_name("").is_err());
    for pem in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "not PEM"] {
        assert!(smtp().root_pem(pem).is_err(), "{pem}");
    }
}

#[test]
fn debug_hides_the_password() {
    let shown = format!("{:?}", Smtp::relay("localhost", FROM).unwrap().credentials("acme", "a good one"));
    assert!(shown.contains("localhost") && !shown.contains("a good one"), "{shown}");
}
