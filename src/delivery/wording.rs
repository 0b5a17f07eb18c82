//! The words of messages.

use std::time::Duration;

use super::{
    message::Message,
    notice::{Notice, utc},
};
use crate::util::clock::{UnixTime, ceil_seconds};

impl Message {
    /// Returns the subject of this message, if it is sent now: a single line.
    pub fn subject(&self, now: UnixTime) -> String {
        self.fill_words(["message.code_subject", "message.notice_subject"], "subject", now)
    }

    /// Returns the text of this message, if it is sent now.
    ///
    /// It is in the [`language`](Self::language) of the user, and short enough for a single SMS if it has a code.
    /// `Pages::texts` of the login service changes the words of each language.
    pub fn text(&self, now: UnixTime) -> String {
        self.fill_words(["message.code_text", "message.notice_text"], "text", now)
    }

    /// Fills in the words of a code, of a notice, or of this part of a link.
    fn fill_words(&self, [of_code, of_notice]: [&str; 2], part: &str, now: UnixTime) -> String {
        if let Some(notice) = self.notice() {
            return self.fill_notice(of_notice, notice);
        }
        let minutes = minutes_left(self, now);
        let (days, minutes) = (minutes.div_ceil(24 * 60).to_string(), minutes.to_string());
        let Some(link) = self.link() else {
            return self.words.fill(self.language(), of_code, &[("code", self.code()), ("minutes", &minutes)]);
        };
        let values = [("link", link.url()), ("minutes", &minutes), ("days", &days)];
        self.words.fill(self.language(), &format!("message.{}_{part}", link.kind().as_str()), &values)
    }

    fn fill_notice(&self, key: &str, notice: &Notice) -> String {
        let (words, language) = (&self.words, self.language());
        let parts = utc(notice.changed_at());
        let parts: Vec<_> = parts.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let time = words.fill(language, "message.time", &parts);
        let change = words.get(language, &format!("message.{}", notice.kind()));
        words.fill(language, key, &[("change", change), ("time", &time)])
    }
}

/// Returns how long a message is valid, in minutes, rounded up and never zero.
fn minutes_left(message: &Message, now: UnixTime) -> u64 {
    let left = Duration::from_nanos(message.expires_at().as_nanos().saturating_sub(now.as_nanos()));
    ceil_seconds(left).div_ceil(60).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        delivery::{
            channel::Channel,
            link::{Link, LinkKind},
            notice::NoticeKind,
        },
        words::Language,
    };

    fn message() -> Message {
        let tenant = "acme".parse().unwrap();
        Message::new(Channel::Sms, tenant, "+15550100", "482913", UnixTime::from_secs(1_000))
    }

    #[test]
    fn the_default_text_fits_in_one_sms() {
        let text = message().text(UnixTime::from_secs(700));
        assert_eq!(
            text,
            "482913 is your code. It is valid for 5 minutes. \
             Never share it with anyone. Enter it only on the sign-in page."
        );
        assert!(text.is_ascii() && text.len() <= 160);
        assert_eq!(message().subject(UnixTime::from_secs(700)), "Your sign-in code");
    }

    #[test]
    fn minutes_are_rounded_up_and_never_zero() {
        for (now, minutes) in [(700, 5), (699, 6), (701, 5), (941, 1), (999, 1), (5_000, 1)] {
            let text = message().text(UnixTime::from_secs(now));
            assert!(
                text.contains(&format!("482913 is your code. It is valid for {minutes} minutes.")),
                "{now}: {text}"
            );
        }
    }

    #[test]
    fn a_notice_tells_what_changed_and_when() {
        let notice = Notice::new(NoticeKind::PasskeyAdded, UnixTime::from_secs(1_000_000_000));
        let until = UnixTime::from_secs(1_000_086_400);
        let message = Message::of_notice(Channel::Sms, "acme".parse().unwrap(), "+15550100", notice, until);
        let now = UnixTime::from_secs(1_000_000_300);
        assert_eq!(message.subject(now), "Your sign-in methods changed");
        let text = message.text(now);
        assert_eq!(
            text,
            "A passkey was added to your account on 2001-09-09 01:46 UTC. If that wasn't you, sign in, check your \
             sign-in methods and change your password."
        );
        assert!(message.code().is_empty());
    }

    #[test]
    fn messages_are_written_in_the_language_of_their_user() {
        let now = UnixTime::from_secs(700);
        let code = message().in_language(Language::German);
        let text = code.text(now);
        assert_eq!(
            text,
            "482913 ist Ihr Code. Er gilt 5 Minuten. Geben Sie ihn nicht weiter und geben Sie ihn nur auf der Anmeldeseite ein."
        );
        // the umlauts of German are in the alphabet of text messages
        assert!(text.chars().all(|it| it.is_ascii() || "äöüÄÖÜß".contains(it)) && text.chars().count() <= 160);
        assert_eq!(code.subject(now), "Ihr Anmeldecode");
        let notice = Notice::new(NoticeKind::TotpRemoved, UnixTime::from_secs(1_000_000_000));
        let until = UnixTime::from_secs(1_000_086_400);
        let notice = Message::of_notice(Channel::Email, "acme".parse().unwrap(), "ada@example.com", notice, until);
        let notice = notice.in_language(Language::German);
        assert_eq!(
            notice.text(now),
            "Die Authenticator-App wurde aus Ihrem Konto entfernt (09.09.2001, 01:46 Uhr UTC). Falls Sie das nicht \
             waren, melden Sie sich an, prüfen Sie Ihre Anmeldemethoden und ändern Sie Ihr Passwort."
        );
    }

    fn words_of(kind: NoticeKind) -> &'static str {
        match kind {
            NoticeKind::PasskeyAdded => "A passkey was added to your account",
            NoticeKind::PasskeyRemoved => "A passkey was removed from your account",
            NoticeKind::TotpAdded => "An authenticator app was set up for your account",
            NoticeKind::TotpRemoved => "The authenticator app was removed from your account",
            NoticeKind::RecoveryCodesRenewed => "New recovery codes were created for your account",
            NoticeKind::LinkAdded => "Your account was linked to an account elsewhere",
            NoticeKind::LinkRemoved => "Your account was unlinked from an account elsewhere",
            NoticeKind::PasswordChanged => "The password of your account was changed",
            NoticeKind::EmailChanged => "An e-mail address of your account was changed",
            NoticeKind::PhoneChanged => "A phone number of your account was changed",
            NoticeKind::AccountDeleted => "Your account was deleted",
            NoticeKind::PasswordReset => "A new password was set for your account",
            NoticeKind::FactorsReset => {
                "Your passkeys, authenticator app, recovery codes and linked accounts were removed from your account"
            }
        }
    }

    #[test]
    fn each_kind_of_notice_has_words_in_each_language() {
        for &kind in NoticeKind::ALL {
            let until = UnixTime::from_secs(1_000);
            let notice = Notice::new(kind, until);
            let notice = Message::of_notice(Channel::Email, "acme".parse().unwrap(), "ada@example.com", notice, until);
            let english = notice.text(until);
            assert!(english.starts_with(&format!("{} on 1970", words_of(kind))), "{english}");
            let german = notice.in_language(Language::German).text(until);
            assert!(german.contains("Ihr") && !german.starts_with(' '), "{german}");
        }
    }

    #[test]
    fn a_message_with_a_link_has_words_in_each_language() {
        for &kind in LinkKind::ALL {
            let link = Link::new(kind, "https://auth.example/x#secret");
            assert!(!format!("{link:?}").contains("secret"));
            let until = UnixTime::from_secs(900);
            let english = Message::of_link(Channel::Email, "acme".parse().unwrap(), "ada@example.com", link, until);
            for message in [english.clone(), english.in_language(Language::German)] {
                let text = message.text(UnixTime::from_secs(0));
                assert!(text.contains("https://auth.example/x#secret") && !text.contains('{'), "{text}");
                assert!(!message.subject(until).is_empty() && message.code().is_empty());
            }
        }
    }
}
