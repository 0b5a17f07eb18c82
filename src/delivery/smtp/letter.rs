//! Composes e-mails.

use std::time::SystemTime;

use lettre::{
    Address, Message as Letter,
    address::Envelope,
    message::{
        Mailbox,
        header::{ContentType, HeaderName, HeaderValue},
    },
};

use crate::{
    delivery::{error::SendError, message::Message},
    util::clock::UnixTime,
};

/// Parses a mailbox from the configuration, with or without a display name.
pub(super) fn mailbox(text: &str) -> Option<Mailbox> {
    text.parse().ok().filter(|_| !text.contains(char::is_control))
}

/// Returns the envelope and the content of an e-mail.
pub(super) fn build_letter(from: &Mailbox, message: &Message, now: UnixTime) -> Result<(Envelope, Vec<u8>), SendError> {
    let to = address(message.to()).ok_or_else(|| SendError::permanent("invalid e-mail address"))?;
    let automatic = HeaderValue::new(HeaderName::new_from_ascii_str("Auto-Submitted"), String::from("auto-generated"));
    let language = HeaderName::new_from_ascii_str("Content-Language");
    let language = HeaderValue::new(language, message.language().to_string());
    let letter = Letter::builder()
        .from(from.clone())
        .to(Mailbox::new(None, to))
        .subject(message.subject(now))
        .date(SystemTime::from(now))
        .message_id(Some(format!("<{}@{}>", message.id(), from.email.domain())))
        .raw_header(automatic)
        .raw_header(language)
        .header(ContentType::TEXT_PLAIN)
        .body(message.text(now))
        .map_err(SendError::permanent)?;
    Ok((letter.envelope().clone(), letter.formatted()))
}

/// Parses a plain address, without name, list or line break.
fn address(text: &str) -> Option<Address> {
    text.parse().ok().filter(|_| !text.contains(char::is_control))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::{
        channel::Channel,
        error::SendErrorKind,
        notice::{Notice, NoticeKind},
    };

    fn build_test_letter(to: &str) -> Result<(Envelope, Vec<u8>), SendError> {
        let message =
            Message::new(Channel::Email, "acme".parse().unwrap(), to, "482913", UnixTime::from_secs(1_000_000_300));
        let from = mailbox("Acme <no-reply@acme.example>").unwrap();
        build_letter(&from, &message, UnixTime::from_secs(1_000_000_000))
    }

    #[test]
    fn an_email_is_complete_and_marked_as_automatic() {
        let (envelope, bytes) = build_test_letter("ada@example.com").unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(envelope.to().iter().map(ToString::to_string).collect::<Vec<_>>(), ["ada@example.com"]);
        assert_eq!(envelope.from().unwrap().to_string(), "no-reply@acme.example");
        for line in [
            "From: Acme <no-reply@acme.example>",
            "To: ada@example.com",
            "Subject: Your sign-in code",
            "Date: Sun, 09 Sep 2001 01:46:40 +0000",
            "Auto-Submitted: auto-generated",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.contains("\r\n\r\n482913 is your code. It is valid for 5 minutes."), "{text}");
        let id = text.lines().find(|line| line.starts_with("Message-ID: <")).unwrap();
        assert!(id.ends_with("@acme.example>"), "{id}");
    }

    #[test]
    fn a_notice_has_its_own_subject_and_text() {
        let (at, until) = (UnixTime::from_secs(1_000_000_000), UnixTime::from_secs(1_000_086_400));
        let notice = Notice::new(NoticeKind::TotpRemoved, at);
        let message = Message::of_notice(Channel::Email, "acme".parse().unwrap(), "ada@example.com", notice, until);
        let from = mailbox("Acme <no-reply@acme.example>").unwrap();
        let text = String::from_utf8(build_letter(&from, &message, at).unwrap().1).unwrap();
        assert!(text.contains("\r\nSubject: Your sign-in methods changed\r\n"), "{text}");
        assert!(text.contains("\r\n\r\nThe authenticator app was removed from your account"), "{text}");
    }

    #[test]
    fn invalid_addresses_fail_permanently() {
        for bad in [
            "",
            "ada",
            "@example.com",
            "ada@",
            "a@b.c, d@e.f",
            "Ada <ada@example.com>",
            "ada@example.com\r\nBcc: eve@example.com",
            "ada@example.com\n",
            "ada\r\nRCPT TO:<eve@example.com>@example.com",
            "\"a\r\nb\"@example.com",
        ] {
            assert_eq!(build_test_letter(bad).unwrap_err().kind(), SendErrorKind::Permanent, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn an_address_can_add_neither_a_header_nor_a_recipient(to in "[ -~\r\n]{0,12}@?[a-z.\r\n:<>,]{0,12}") {
            if let Ok((envelope, bytes)) = build_test_letter(&to) {
                prop_assert_eq!(envelope.to().len(), 1);
                prop_assert!(!envelope.to()[0].to_string().contains(['\r', '\n']));
                let text = String::from_utf8(bytes).unwrap();
                let head = text.split("\r\n\r\n").next().unwrap();
                let names = head.lines().filter(|line| !line.starts_with(' ')).count();
                let usual = String::from_utf8(build_test_letter("ada@example.com").unwrap().1).unwrap();
                prop_assert_eq!(names, usual.split("\r\n\r\n").next().unwrap().lines().count(), "{}", head);
            }
        }
    }
}
