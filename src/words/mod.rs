//! The words of pages and messages, in each language.
//!
//! `en.txt` and `de.txt` have all of them: pages, scripts and senders contain keys only. `tests/words.rs` finds words that are
//! missing or unused.

mod language;

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

pub use self::language::Language;
use crate::util::error::ConfigError;

/// The longest text that can replace a built-in one.
const LONGEST_TEXT: usize = 2000;

static BUILT_IN: LazyLock<Words> = LazyLock::new(|| Words {
    english: Arc::new(Texts::parse_file(include_str!("en.txt"))),
    german: Arc::new(Texts::parse_file(include_str!("de.txt"))),
});

/// The words of all languages, by their keys. Clones share them.
#[derive(Clone)]
pub(crate) struct Words {
    english: Arc<Texts>,
    german: Arc<Texts>,
}

#[derive(Clone)]
struct Texts(BTreeMap<&'static str, Box<str>>);

impl Texts {
    /// Reads a file of keys and words.
    fn parse_file(file: &'static str) -> Self {
        let pairs = file.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
        Self(pairs.map(|(key, words)| (key, words.into())).collect())
    }
}

impl Words {
    /// Returns the words that come with this crate.
    pub(crate) fn built_in() -> Self {
        BUILT_IN.clone()
    }

    /// Replaces words of a language.
    ///
    /// # Errors
    ///
    /// Returns an error if a key is unknown, or if a text is empty, too long, or has other placeholders than the built-in one.
    pub(crate) fn replace<'t>(
        &mut self,
        language: Language,
        texts: impl IntoIterator<Item = (&'t str, &'t str)>,
    ) -> Result<(), ConfigError> {
        let all = match language {
            Language::English => &mut self.english,
            Language::German => &mut self.german,
        };
        let Texts(all) = Arc::make_mut(all);
        for (key, text) in texts {
            let error = |reason| ConfigError::new("text", format!("{key} ({language})"), reason);
            let words = all.get_mut(key).ok_or_else(|| error("is no key of a text"))?;
            if text.trim().is_empty() || text.len() > LONGEST_TEXT || text.contains(char::is_control) {
                return Err(error("must be a single line of at most 2000 bytes, and not empty"));
            }
            if placeholders(text) != placeholders(words) {
                return Err(error("must have the same placeholders as the built-in text"));
            }
            *words = text.into();
        }
        Ok(())
    }

    /// Returns the words of a key, or an empty text if there is no such key.
    pub(crate) fn get(&self, language: Language, key: &str) -> &str {
        self.texts_in(language).get(key).map_or("", |words| words)
    }

    /// Returns the words of a key with these values in place of their names.
    pub(crate) fn fill(&self, language: Language, key: &str, values: &[(&str, &str)]) -> String {
        fill_values(self.get(language, key), values)
    }

    /// Returns the words whose keys start with one of these prefixes.
    pub(crate) fn starting_with(&self, language: Language, prefixes: &[&str]) -> BTreeMap<&str, &str> {
        let is_of = |key: &str| prefixes.iter().any(|prefix| key.starts_with(prefix));
        self.texts_in(language).iter().filter(|(key, _)| is_of(key)).map(|(key, words)| (*key, &**words)).collect()
    }

    fn texts_in(&self, language: Language) -> &BTreeMap<&'static str, Box<str>> {
        match language {
            Language::English => &self.english.0,
            Language::German => &self.german.0,
        }
    }
}

crate::util::fmt::opaque_debug!(Words);

/// Replaces the names of these values.
pub(crate) fn fill_values(text: &str, values: &[(&str, &str)]) -> String {
    fill(text, |name| values.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
}

/// Replaces each name in braces for which there is a value. Values are not searched for names.
pub(crate) fn fill(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let (mut filled, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        match after.split_once('}').and_then(|(name, after)| Some((value(name)?, after))) {
            Some((value, after)) => {
                filled.push_str(&value);
                rest = after;
            }
            None => {
                filled.push('{');
                rest = after;
            }
        }
    }
    filled.push_str(rest);
    filled
}

/// Returns the names in braces, sorted, each once.
fn placeholders(text: &str) -> Vec<&str> {
    let mut names: Vec<_> = text.split('{').skip(1).map(|rest| rest.split('}').next().unwrap_or_default()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_language_has_the_same_keys_and_placeholders() {
        let words = Words::built_in();
        let (english, german) = (words.texts_in(Language::English), words.texts_in(Language::German));
        assert!(english.len() > 200);
        assert_eq!(english.keys().collect::<Vec<_>>(), german.keys().collect::<Vec<_>>());
        for (key, text) in english {
            assert_eq!(placeholders(text), placeholders(&german[key]), "{key}");
            assert!(!text.is_empty() && !german[key].is_empty(), "{key}");
        }
        for (language, file) in [(english, include_str!("en.txt")), (german, include_str!("de.txt"))] {
            let written = file.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
            assert_eq!(written.count(), language.len(), "a key appears twice, or a line is no pair");
        }
    }

    #[test]
    fn names_are_filled_in_and_values_are_not_searched() {
        let value = |name: &str| match name {
            "a" => Some("{b}".to_owned()),
            "b" => Some("B".to_owned()),
            _ => None,
        };
        assert_eq!(fill("{a} {b}{c} { b } {{a}} {", value), "{b} B{c} { b } {{b}} {");
        assert_eq!(fill("", value), "");
    }

    #[test]
    fn words_are_replaced_in_one_language() {
        let mut words = Words::built_in();
        words.replace(Language::German, [("login.title", "Willkommen"), ("login.to_client", "zu {client}")]).unwrap();
        assert_eq!(words.get(Language::German, "login.title"), "Willkommen");
        assert_eq!(words.fill(Language::German, "login.to_client", &[("client", "Acme")]), "zu Acme");
        assert_eq!(words.get(Language::English, "login.title"), "Sign in");
        assert_eq!(Words::built_in().get(Language::German, "login.title"), "Anmelden");
    }

    #[test]
    fn texts_that_cannot_work_are_refused() {
        let long = "x".repeat(LONGEST_TEXT + 1);
        for (key, text) in [
            ("login.titel", "Anmelden"),
            ("login.title", " "),
            ("login.title", "a\nb"),
            ("login.title", &long),
            ("login.title", "{client}"),
            ("login.to_client", "zur Anwendung"),
            ("message.code_text", "{code} {minutes} {name}"),
        ] {
            let refused = Words::built_in().replace(Language::German, [(key, text)]);
            assert!(refused.is_err(), "{key} = {text}");
        }
    }
}
