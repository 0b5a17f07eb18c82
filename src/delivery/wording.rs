use std::time::Duration;

use super::{
    message::Message,
    notice::{Notice, NoticeKind, utc},
};
use crate::{
    util::{
        clock::{UnixTime, ceil_seconds},
        error::ConfigError,
    },
    words,
};

/// The wording of messages: a text, and a subject for e-mails.
///
/// By default, messages are written in the [`language`](Message::language) of their user, and short enough for a single SMS if
/// they have a code. `Pages::texts` of the login service changes the words of each language. A template that is set here is
/// used for all languages instead.
///
/// In messages with a code, `{code}` is replaced by the code, and `{minutes}` by the remaining validity in minutes, rounded
/// up. In notices, `{change}` is replaced by what changed, and `{time}` by when. Other braces are
/// rejected.
///
/// ```
/// use tollgate::delivery::Wording;
///
/// let wording = Wording::new()
///     .subject("Ihr Code für Acme")?
///     .text("{code} ist Ihr Code. Er gilt {minutes} Minuten. Geben Sie ihn niemandem.")?;
/// assert!(wording.clone().text("Your code is on its way.").is_err());
/// assert!(wording.text("{code} for {name}").is_err());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Wording {
    subject: Option<Box<str>>,
    text: Option<Box<str>>,
    notice_subject: Option<Box<str>>,
    notice_text: Option<Box<str>>,
    changes: Vec<(NoticeKind, Box<str>)>,
}

/// The placeholders of messages with a code.
const OF_CODES: [&str; 2] = ["code", "minutes"];
/// The placeholders of notices.
const OF_NOTICES: [&str; 2] = ["change", "time"];

impl Wording {
    /// Creates the default wording.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the subject: a single line, with or without the code.
    ///
    /// # Errors
    ///
    /// Returns an error if the template is empty, has several lines, or has unknown placeholders.
    pub fn subject(self, template: &str) -> Result<Self, ConfigError> {
        check_line(template, OF_CODES)?;
        Ok(Self { subject: Some(template.into()), ..self })
    }

    /// Sets the text. It must contain `{code}`.
    ///
    /// # Errors
    ///
    /// Returns an error if the template lacks `{code}` or has unknown placeholders.
    pub fn text(self, template: &str) -> Result<Self, ConfigError> {
        check(template, OF_CODES)?;
        ConfigError::refuse_if(!template.contains("{code}"), "text", template, "must contain {code}")?;
        Ok(Self { text: Some(template.into()), ..self })
    }

    /// Sets the subject of notices: a single line, with or without `{change}` and `{time}`.
    ///
    /// # Errors
    ///
    /// Returns an error if the template is empty, has several lines, or has unknown placeholders.
    pub fn notice_subject(self, template: &str) -> Result<Self, ConfigError> {
        check_line(template, OF_NOTICES)?;
        Ok(Self { notice_subject: Some(template.into()), ..self })
    }

    /// Sets the text of notices. It must contain `{change}`.
    ///
    /// # Errors
    ///
    /// Returns an error if the template lacks `{change}` or has unknown placeholders.
    pub fn notice_text(self, template: &str) -> Result<Self, ConfigError> {
        check(template, OF_NOTICES)?;
        ConfigError::refuse_if(!template.contains("{change}"), "text", template, "must contain {change}")?;
        Ok(Self { notice_text: Some(template.into()), ..self })
    }

    /// Sets the words for a change, in all languages.
    pub fn change(mut self, kind: NoticeKind, words: &str) -> Self {
        self.changes.retain(|(other, _)| *other != kind);
        self.changes.push((kind, words.into()));
        self
    }

    /// Returns the subject of a message that is sent now.
    pub fn subject_of(&self, message: &Message, now: UnixTime) -> String {
        match message.notice() {
            Some(notice) => self.notice(&self.notice_subject, "message.notice_subject", (message, notice)),
            None if message.link().is_some() => link("subject", message, now),
            None => code(&self.subject, "message.code_subject", message, now),
        }
    }

    /// Returns the text of a message that is sent now.
    pub fn text_of(&self, message: &Message, now: UnixTime) -> String {
        match message.notice() {
            Some(notice) => self.notice(&self.notice_text, "message.notice_text", (message, notice)),
            None if message.link().is_some() => link("text", message, now),
            None => code(&self.text, "message.code_text", message, now),
        }
    }

    fn notice(&self, own: &Option<Box<str>>, key: &str, (message, notice): (&Message, &Notice)) -> String {
        let (words, language) = (&message.words, message.language());
        let change = match self.changes.iter().find(|(kind, _)| *kind == notice.kind()) {
            Some((_, own)) => own,
            None => words.get(language, &format!("message.{}", notice.kind())),
        };
        let parts = utc(notice.changed_at());
        let parts: Vec<_> = parts.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let time = words.fill(language, "message.time", &parts);
        filled(own, key, message, &[("change", change), ("time", &time)])
    }
}

/// Returns the words of a message with a link. There are no templates for these: `Pages::texts` changes them.
fn link(part: &str, message: &Message, now: UnixTime) -> String {
    let (kind, url) = message.link().map_or(("", ""), |link| (link.kind().as_str(), link.url()));
    let minutes = minutes_left(message, now);
    let days = minutes.div_ceil(24 * 60).to_string();
    let values = [("link", url), ("minutes", &minutes.to_string()), ("days", &days)];
    message.words.fill(message.language(), &format!("message.{kind}_{part}"), &values)
}

/// Returns how long a message is valid, in minutes, rounded up and never zero.
fn minutes_left(message: &Message, now: UnixTime) -> u64 {
    let left = Duration::from_nanos(message.expires_at().as_nanos().saturating_sub(now.as_nanos()));
    ceil_seconds(left).div_ceil(60).max(1)
}

fn code(own: &Option<Box<str>>, key: &str, message: &Message, now: UnixTime) -> String {
    let minutes = minutes_left(message, now).to_string();
    filled(own, key, message, &[("code", message.code()), ("minutes", &minutes)])
}

/// Fills in a template of the operator, or the words of this key in the language of the message.
fn filled(own: &Option<Box<str>>, key: &str, message: &Message, values: &[(&str, &str)]) -> String {
    match own {
        Some(template) => words::fill_values(template, values),
        None => message.words.fill(message.language(), key, values),
    }
}

/// Checks a template of one line.
fn check_line(template: &str, names: [&str; 2]) -> Result<(), ConfigError> {
    if template.trim().is_empty() || template.contains(char::is_control) {
        return Err(ConfigError::new("subject", template, "must be a single line and not empty"));
    }
    check(template, names)
}

/// Checks that a template has only these placeholders.
fn check(template: &str, names: [&str; 2]) -> Result<(), ConfigError> {
    let rest = names.iter().fold(template.to_owned(), |rest, name| rest.replace(&format!("{{{name}}}"), " "));
    match rest.contains(['{', '}']) {
        true => Err(ConfigError::new("wording", template, "contains an unknown placeholder")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        delivery::{
            channel::Channel,
            link::{Link, LinkKind},
        },
        words::Language,
    };

    fn message() -> Message {
        let tenant = "acme".parse().unwrap();
        Message::new(Channel::Sms, tenant, "+15550100", "482913", UnixTime::from_secs(1_000))
    }

    #[test]
    fn the_default_text_fits_in_one_sms() {
        let (wording, message) = (Wording::default(), message());
        let text = wording.text_of(&message, UnixTime::from_secs(700));
        assert_eq!(
            text,
            "482913 is your code. It is valid for 5 minutes. \
             Never share it with anyone. Enter it only on the sign-in page."
        );
        assert!(text.is_ascii() && text.len() <= 160);
        assert_eq!(wording.subject_of(&message, UnixTime::from_secs(700)), "Your sign-in code");
    }

    #[test]
    fn minutes_are_rounded_up_and_never_zero() {
        let wording = Wording::new().text("{code} {minutes}").unwrap();
        for (now, minutes) in [(700, "5"), (699, "6"), (701, "5"), (941, "1"), (999, "1"), (5_000, "1")] {
            assert_eq!(wording.text_of(&message(), UnixTime::from_secs(now)), format!("482913 {minutes}"), "{now}");
        }
    }

    #[test]
    fn invalid_templates_are_rejected() {
        for bad in ["no code", "{code} {name}", "{code", "code}", "{code} }", "{{code}}", "{ code }", "{}", ""] {
            assert!(Wording::new().text(bad).is_err(), "{bad}");
        }
        for bad in ["", " ", "two\r\nlines", "{name}", "}"] {
            assert!(Wording::new().subject(bad).is_err(), "{bad:?}");
        }
        assert!(Wording::new().subject("{code} is your code").is_ok());
    }

    #[test]
    fn a_notice_tells_what_changed_and_when() {
        let notice = Notice::new(NoticeKind::PasskeyAdded, UnixTime::from_secs(1_000_000_000));
        let until = UnixTime::from_secs(1_000_086_400);
        let message = Message::of_notice(Channel::Sms, "acme".parse().unwrap(), "+15550100", notice, until);
        let (now, wording) = (UnixTime::from_secs(1_000_000_300), Wording::new());
        assert_eq!(wording.subject_of(&message, now), "Your sign-in methods changed");
        let text = wording.text_of(&message, now);
        assert_eq!(
            text,
            "A passkey was added to your account on 2001-09-09 01:46 UTC. If that wasn't you, sign in, check your \
             sign-in methods and change your password."
        );
        let own = wording.change(NoticeKind::PasskeyAdded, "Neuer Passkey").change(NoticeKind::LinkAdded, "x");
        let own = own.notice_subject("{change}").unwrap().notice_text("{change}: {time}").unwrap();
        assert_eq!(own.subject_of(&message, now), "Neuer Passkey");
        assert_eq!(own.text_of(&message, now), "Neuer Passkey: 2001-09-09 01:46 UTC");
        for bad in ["", "no change", "{change} {code}", "{change"] {
            assert!(Wording::new().notice_text(bad).is_err(), "{bad}");
        }
        assert!(Wording::new().notice_subject("a\nb").is_err() && Wording::new().text("{code} {change}").is_err());
        assert!(message.code().is_empty());
    }

    #[test]
    fn messages_are_written_in_the_language_of_their_user() {
        let now = UnixTime::from_secs(700);
        let (wording, code) = (Wording::new(), message().in_language(Language::German));
        let text = wording.text_of(&code, now);
        assert_eq!(
            text,
            "482913 ist Ihr Code. Er gilt 5 Minuten. Geben Sie ihn nicht weiter und geben Sie ihn nur auf der Anmeldeseite ein."
        );
        // the umlauts of German are in the alphabet of text messages
        assert!(text.chars().all(|it| it.is_ascii() || "äöüÄÖÜß".contains(it)) && text.chars().count() <= 160);
        assert_eq!(wording.subject_of(&code, now), "Ihr Anmeldecode");
        let notice = Notice::new(NoticeKind::TotpRemoved, UnixTime::from_secs(1_000_000_000));
        let until = UnixTime::from_secs(1_000_086_400);
        let notice = Message::of_notice(Channel::Email, "acme".parse().unwrap(), "ada@example.com", notice, until);
        let notice = notice.in_language(Language::German);
        assert_eq!(
            wording.text_of(&notice, now),
            "Die Authenticator-App wurde aus Ihrem Konto entfernt (09.09.2001, 01:46 Uhr UTC). Falls Sie das nicht \
             waren, melden Sie sich an, prüfen Sie Ihre Anmeldemethoden und ändern Sie Ihr Passwort."
        );
        // a template is for all languages
        assert_eq!(wording.text("{code}!").unwrap().text_of(&code, now), "482913!");
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
            let english = Wording::new().text_of(&notice, until);
            assert!(english.starts_with(&format!("{} on 1970", words_of(kind))), "{english}");
            let german = Wording::new().text_of(&notice.in_language(Language::German), until);
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
                let text = Wording::new().text_of(&message, UnixTime::from_secs(0));
                assert!(text.contains("https://auth.example/x#secret") && !text.contains('{'), "{text}");
                assert!(!Wording::new().subject_of(&message, until).is_empty() && message.code().is_empty());
            }
        }
    }

    proptest! {
        #[test]
        fn only_placeholders_are_replaced(template in "([a-z{} ]|\\{code\\}|\\{minutes\\}){0,12}") {
            if let Ok(wording) = Wording::new().text(&template) {
                let expected = template.replace("{code}", "482913").replace("{minutes}", "5");
                prop_assert_eq!(wording.text_of(&message(), UnixTime::from_secs(700)), expected);
            }
        }
    }
}
