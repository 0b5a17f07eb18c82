use std::str::FromStr;

use http::{HeaderMap, header};

use crate::{
    http::accept,
    util::{error::ConfigError, fmt::named_enum},
};

/// The maximum number of language tags that are read from a request parameter.
const MOST_TAGS: usize = 16;

named_enum! {
    /// A language in which users see pages and messages.
    ///
    /// ```
    /// use tollgate::Language;
    ///
    /// let language: Language = "de".parse()?;
    /// assert_eq!(language, Language::German);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Language {
        /// English, which users get whose languages are not supported.
        #[default]
        English = "en",
        /// German.
        German = "de",
    }

    /// Returns the language tag (RFC 5646), such as `de`.
    pub fn as_str;
    pub(crate) const ALL;
}

impl Language {
    /// Returns the language of a tag, such as `de-AT`. Only its first subtag counts.
    fn of_tag(tag: &str) -> Option<Self> {
        let primary = tag.split('-').next().unwrap_or_default();
        Self::ALL.iter().copied().find(|language| language.as_str().eq_ignore_ascii_case(primary))
    }

    /// Returns the first supported language of a parameter `ui_locales` (OpenID Connect Core §3.1.2.1).
    pub(crate) fn of_locales(ui_locales: &str) -> Option<Self> {
        ui_locales.split(' ').filter(|tag| !tag.is_empty()).take(MOST_TAGS).find_map(Self::of_tag)
    }

    /// Returns the supported language that the header `Accept-Language` prefers, or the default.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        let weighted = accept::weighted(headers, header::ACCEPT_LANGUAGE).filter(|(_, quality)| *quality > 0);
        let known = weighted.filter_map(|(tag, quality)| Some((Self::of_tag(tag)?, quality)));
        let best = known.reduce(|best, next| if next.1 > best.1 { next } else { best });
        best.map(|(language, _)| language).unwrap_or_default()
    }
}

impl FromStr for Language {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let known = Self::ALL.iter().copied().find(|language| language.as_str() == text);
        known.ok_or_else(|| ConfigError::new("language", text, "must be en or de"))
    }
}

crate::util::fmt::display!(Language, |own| own.as_str());

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn accepted(line: &str) -> Language {
        Language::accepted(&HeaderMap::from_iter([(header::ACCEPT_LANGUAGE, HeaderValue::from_str(line).unwrap())]))
    }

    #[test]
    fn the_supported_language_of_the_highest_quality_is_accepted() {
        for (line, expected) in [
            ("de", "de"),
            ("de-AT, en;q=0.9", "de"),
            ("DE-ch", "de"),
            ("en-GB,en;q=0.9,de;q=0.8", "en"),
            ("en;q=0.5, de;q=0.7", "de"),
            ("fr-CH, fr;q=0.9, de;q=0.7, *;q=0.5", "de"),
            ("de;q=0, en;q=0.1", "en"),
            ("de;q=0", "en"),
            ("den, deutsch", "en"),
            ("de;q=x, en;q=0.1", "en"),
            ("*", "en"),
            ("", "en"),
        ] {
            assert_eq!(accepted(line).as_str(), expected, "{line}");
        }
        assert_eq!(Language::accepted(&HeaderMap::new()), Language::English);
        // what comes after many other languages is not read
        assert_eq!(accepted(&format!("{}de", "fr,".repeat(31))), Language::German);
        assert_eq!(accepted(&format!("{}de", "fr,".repeat(32))), Language::English);
    }

    #[test]
    fn the_first_supported_locale_counts() {
        assert_eq!(Language::of_locales("fr-CA de-AT en"), Some(Language::German));
        assert_eq!(Language::of_locales(" en  de"), Some(Language::English));
        assert_eq!(Language::of_locales("fr it"), None);
        assert_eq!(Language::of_locales(""), None);
        assert_eq!(Language::of_locales(&format!("{}de", "fr ".repeat(15))), Some(Language::German));
        assert_eq!(Language::of_locales(&format!("{}de", "fr ".repeat(16))), None);
    }

    proptest! {
        #[test]
        fn no_header_is_too_strange(line in "[ -~]{0,40}", first in "(de|en)", quality in "0\\.[0-9]{1,3}") {
            let _ = (accepted(&line), Language::of_locales(&line));
            // a language with the full quality wins over one with less
            prop_assert_eq!(accepted(&format!("en;q={quality}, de;q={quality}, {first}")).as_str(), first);
        }
    }
}
