use std::time::Duration;

use super::{
    message::Message,
    notice::{Notice, NoticeKind, written},
};
use crate::util::{
    clock::{UnixTime, ceil_seconds},
    error::ConfigError,
};

/// The wording of messages: a text, and a subject for e-mails.
///
/// In messages with a code, `{code}` is replaced by the code, and `{minutes}` by the remaining validity in minutes, rounded
/// up. In notices, `{change}` is replaced by [what changed](NoticeKind::words), and `{time}` by when. Other braces are
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
#[derive(Clone, Debug)]
pub struct Wording {
    subject: Vec<Part>,
    text: Vec<Part>,
    notice_subject: Vec<Part>,
    notice_text: Vec<Part>,
    changes: Vec<(NoticeKind, Box<str>)>,
}

#[derive(Clone, Debug)]
enum Part {
    Text(Box<str>),
    Code,
    Minutes,
    Change,
    Time,
}

/// The placeholders of messages with a code.
const OF_CODES: [(&str, Part); 2] = [("code", Part::Code), ("minutes", Part::Minutes)];
/// The placeholders of notices.
const OF_NOTICES: [(&str, Part); 2] = [("change", Part::Change), ("time", Part::Time)];

impl Wording {
    /// Creates the default wording: English, and short enough for a single SMS.
    pub fn new() -> Self {
        let text = |text: &str| Part::Text(text.into());
        Self {
            subject: vec![text("Your sign-in code")],
            text: vec![
                Part::Code,
                text(" is your code. It is valid for "),
                Part::Minutes,
                text(" minutes. Never share it with anyone. Enter it only on the sign-in page."),
            ],
            notice_subject: vec![text("Your sign-in methods changed")],
            notice_text: vec![
                Part::Change,
                text(" on "),
                Part::Time,
                text(". If that wasn't you, sign in, check your sign-in methods and change your password."),
            ],
            changes: Vec::new(),
        }
    }

    /// Sets the subject: a single line, with or without the code.
    ///
    /// # Errors
    ///
    /// Returns an error if the template is empty, has several lines, or has unknown placeholders.
    pub fn subject(self, template: &str) -> Result<Self, ConfigError> {
        Ok(Self { subject: single_line(template, &OF_CODES)?, ..self })
    }

    /// Sets the text. It must contain `{code}`.
    ///
    /// # Errors
    ///
    /// Returns an error if the template lacks `{code}` or has unknown placeholders.
    pub fn text(self, template: &str) -> Result<Self, ConfigError> {
        let text = parse(template, &OF_CODES)?;
        if !text.iter().any(|part| matches!(part, Part::Code)) {
            return Err(ConfigError::new("text", template, "must contain {code}"));
        }
        Ok(Self { text, ..self })
    }

    /// Sets the subject of notices: a single line, with or without `{change}` and `{time}`.
    ///
    /// # Errors
    ///
    /// Returns an error if the template is empty, has several lines, or has unknown placeholders.
    pub fn notice_subject(self, template: &str) -> Result<Self, ConfigError> {
        Ok(Self { notice_subject: single_line(template, &OF_NOTICES)?, ..self })
    }

    /// Sets the text of notices. It must contain `{change}`.
    ///
    /// # Errors
    ///
    /// Returns an error if the template lacks `{change}` or has unknown placeholders.
    pub fn notice_text(self, template: &str) -> Result<Self, ConfigError> {
        let notice_text = parse(template, &OF_NOTICES)?;
        if !notice_text.iter().any(|part| matches!(part, Part::Change)) {
            return Err(ConfigError::new("text", template, "must contain {change}"));
        }
        Ok(Self { notice_text, ..self })
    }

    /// Sets the words for a change, in place of [`NoticeKind::words`].
    pub fn change(mut self, kind: NoticeKind, words: &str) -> Self {
        self.changes.retain(|(other, _)| *other != kind);
        self.changes.push((kind, words.into()));
        self
    }

    /// Returns the subject of a message that is sent now.
    pub fn subject_of(&self, message: &Message, now: UnixTime) -> String {
        self.render(if message.notice().is_some() { &self.notice_subject } else { &self.subject }, message, now)
    }

    /// Returns the text of a message that is sent now.
    pub fn text_of(&self, message: &Message, now: UnixTime) -> String {
        self.render(if message.notice().is_some() { &self.notice_text } else { &self.text }, message, now)
    }

    fn render(&self, parts: &[Part], message: &Message, now: UnixTime) -> String {
        let left = Duration::from_nanos(message.expires_at().as_nanos().saturating_sub(now.as_nanos()));
        let minutes = ceil_seconds(left).div_ceil(60).max(1).to_string();
        let time = message.notice().map(|notice| written(notice.changed_at())).unwrap_or_default();
        let change = message.notice().map(|notice| self.words(notice)).unwrap_or_default();
        let text = parts.iter().map(|part| -> &str {
            match part {
                Part::Text(text) => text,
                Part::Code => message.code(),
                Part::Minutes => &minutes,
                Part::Change => change,
                Part::Time => &time,
            }
        });
        text.collect()
    }

    fn words(&self, notice: &Notice) -> &str {
        let own = self.changes.iter().find(|(kind, _)| *kind == notice.kind());
        own.map_or(notice.kind().words(), |(_, words)| words)
    }
}

impl Default for Wording {
    fn default() -> Self {
        Self::new()
    }
}

/// Parses a template of one line.
fn single_line(template: &str, names: &[(&str, Part)]) -> Result<Vec<Part>, ConfigError> {
    if template.trim().is_empty() || template.contains(char::is_control) {
        return Err(ConfigError::new("subject", template, "must be a single line and not empty"));
    }
    parse(template, names)
}

/// Parses a template with these placeholders.
fn parse(template: &str, names: &[(&str, Part)]) -> Result<Vec<Part>, ConfigError> {
    let unknown = || ConfigError::new("wording", template, "contains an unknown placeholder");
    let (mut parts, mut rest) = (Vec::new(), template);
    while let Some((text, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').ok_or_else(unknown)?;
        parts.push(plain(text).ok_or_else(unknown)?);
        let part = names.iter().find(|(known, _)| *known == name).map(|(_, part)| part.clone());
        parts.push(part.ok_or_else(unknown)?);
        rest = after;
    }
    parts.push(plain(rest).ok_or_else(unknown)?);
    Ok(parts)
}

fn plain(text: &str) -> Option<Part> {
    (!text.contains('}')).then(|| Part::Text(text.into()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::channel::Channel;

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
