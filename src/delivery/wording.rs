use std::time::Duration;

use super::message::Message;
use crate::util::{
    clock::{UnixTime, ceil_seconds},
    error::ConfigError,
};

/// The wording of messages: a text, and a subject for e-mails.
///
/// `{code}` is replaced by the code, and `{minutes}` by the remaining validity in minutes, rounded
/// up. Other braces are rejected.
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
}

#[derive(Clone, Debug)]
enum Part {
    Text(Box<str>),
    Code,
    Minutes,
}

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
        }
    }

    /// Sets the subject: a single line, with or without the code.
    ///
    /// # Errors
    ///
    /// Returns an error if the template is empty, has several lines, or has unknown placeholders.
    pub fn subject(self, template: &str) -> Result<Self, ConfigError> {
        if template.trim().is_empty() || template.contains(char::is_control) {
            return Err(ConfigError::new("subject", template, "must be a single line and not empty"));
        }
        let subject = parse(template).ok_or_else(|| unknown("subject", template))?;
        Ok(Self { subject, ..self })
    }

    /// Sets the text. It must contain `{code}`.
    ///
    /// # Errors
    ///
    /// Returns an error if the template lacks `{code}` or has unknown placeholders.
    pub fn text(self, template: &str) -> Result<Self, ConfigError> {
        let text = parse(template).ok_or_else(|| unknown("text", template))?;
        if !text.iter().any(|part| matches!(part, Part::Code)) {
            return Err(ConfigError::new("text", template, "must contain {code}"));
        }
        Ok(Self { text, ..self })
    }

    /// Returns the subject of a message that is sent now.
    pub fn subject_of(&self, message: &Message, now: UnixTime) -> String {
        render(&self.subject, message, now)
    }

    /// Returns the text of a message that is sent now.
    pub fn text_of(&self, message: &Message, now: UnixTime) -> String {
        render(&self.text, message, now)
    }
}

impl Default for Wording {
    fn default() -> Self {
        Self::new()
    }
}

fn unknown(setting: &'static str, template: &str) -> ConfigError {
    ConfigError::new(setting, template, "contains a placeholder other than {code} and {minutes}")
}

/// Parses a template. Returns `None` if it has unknown placeholders.
fn parse(template: &str) -> Option<Vec<Part>> {
    let (mut parts, mut rest) = (Vec::new(), template);
    while let Some((text, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}')?;
        parts.push(plain(text)?);
        parts.push(match name {
            "code" => Part::Code,
            "minutes" => Part::Minutes,
            _ => return None,
        });
        rest = after;
    }
    parts.push(plain(rest)?);
    Some(parts)
}

fn plain(text: &str) -> Option<Part> {
    (!text.contains('}')).then(|| Part::Text(text.into()))
}

fn render(parts: &[Part], message: &Message, now: UnixTime) -> String {
    let left = Duration::from_nanos(message.expires_at().as_nanos().saturating_sub(now.as_nanos()));
    let minutes = ceil_seconds(left).div_ceil(60).max(1).to_string();
    let text = parts.iter().map(|part| -> &str {
        match part {
            Part::Text(text) => text,
            Part::Code => message.code(),
            Part::Minutes => &minutes,
        }
    });
    text.collect()
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
