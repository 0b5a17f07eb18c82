//! The decoder of `application/x-www-form-urlencoded` text in queries and bodies.
//!
//! It is strict wherever lenient decoders disagree, so that the service behind a layer reads
//! exactly what the layer checked: broken percent sequences and invalid UTF-8 are errors. Only text
//! that needs decoding is copied.

use std::{borrow::Cow, fmt::Write as _};

use super::scan::is_unreserved;

/// The maximum number of pairs. More are an error.
pub(crate) const MAX_PAIRS: usize = 256;

/// Names and values in the order in which they were sent.
#[derive(Debug)]
pub(crate) struct Form<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Form<'a> {
    /// Parses all pairs. A piece without `=` is a name with an empty value. Empty pieces, as in
    /// `a=1&&b=2`, are skipped.
    pub(crate) fn parse(text: &'a [u8]) -> Result<Self, FormError> {
        let mut pairs = Vec::new();
        for piece in text.split(|byte| *byte == b'&').filter(|piece| !piece.is_empty()) {
            if pairs.len() == MAX_PAIRS {
                return Err(FormError::TooMany);
            }
            let mut halves = piece.splitn(2, |byte| *byte == b'=');
            let name = decode_form_value(halves.next().unwrap_or_default())?;
            let value = decode_form_value(halves.next().unwrap_or_default())?;
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// Copies the form, so that it no longer borrows the text.
    pub(crate) fn into_owned(self) -> Form<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Form(self.0.into_iter().map(|(name, value)| (owned(name), owned(value))).collect())
    }

    /// Returns all names and values.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// Returns all values of this name, including empty ones.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(other, _)| other == name).map(|(_, value)| value.as_ref())
    }

    /// Returns the value of this name, or `None` if it does not appear. Fails if it appears more
    /// than once.
    pub(crate) fn only(&self, name: &str) -> Result<Option<&str>, FormError> {
        let mut values = self.values(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(FormError::Twice),
        }
    }

    /// Returns the first value of this name. An empty value counts as missing (RFC 6749 §3.1).
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.values(name).next().filter(|value| !value.is_empty())
    }

    /// Returns whether any name appears more than once, which RFC 6749 §3.1 forbids.
    pub(crate) fn has_duplicates(&self) -> bool {
        self.has_duplicates_except(None)
    }

    /// Returns whether any name except this one appears more than once.
    pub(crate) fn has_duplicates_except(&self, repeatable: Option<&str>) -> bool {
        let names = self.0.iter().map(|(name, _)| name.as_ref());
        let mut names: Vec<&str> = names.filter(|name| Some(*name) != repeatable).collect();
        names.sort_unstable();
        names.windows(2).any(|pair| matches!(pair, [a, b] if a == b))
    }
}

/// Why a text is not a valid form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormError {
    /// A `%` without two hexadecimal digits.
    Percent,
    /// The decoded text is not UTF-8.
    NotUtf8,
    /// There are more than [`MAX_PAIRS`] pairs.
    TooMany,
    /// A parameter that may appear once appears more than once.
    Twice,
}

impl FormError {
    pub(crate) const fn detail(self) -> &'static str {
        match self {
            Self::Percent => "invalid percent-encoding",
            Self::NotUtf8 => "a name or value is not valid UTF-8",
            Self::TooMany => "too many parameters",
            Self::Twice => "a parameter appears more than once",
        }
    }
}

crate::util::fmt::text_error!(FormError, |own| own.detail());

/// Encodes a name or a value for [`Form::parse`]. The unreserved characters of RFC 3986 stay as
/// they are, so that readers that compare names without decoding find `error_description`.
pub(crate) fn encode_form_value(value: &str) -> String {
    let mut coded = String::with_capacity(value.len());
    for byte in value.bytes() {
        match is_unreserved(byte) {
            true => coded.push(char::from(byte)),
            // writing to a string can't fail
            false => _ = write!(coded, "%{byte:02X}"),
        }
    }
    coded
}

/// Encodes pairs for [`Form::parse`].
pub(crate) fn encode_pairs<'p>(pairs: impl Iterator<Item = (&'p str, &'p str)>) -> String {
    pairs
        .map(|(name, value)| format!("{}={}", encode_form_value(name), encode_form_value(value)))
        .collect::<Vec<_>>()
        .join("&")
}

/// Decodes percent sequences, and `+` as a space.
pub(crate) fn decode_form_value(text: &[u8]) -> Result<Cow<'_, str>, FormError> {
    decode_with(text, true)
}

/// Decodes percent sequences only, as in a path, where `+` is a plus.
pub(crate) fn decode_path(text: &str) -> Result<Cow<'_, str>, FormError> {
    decode_with(text.as_bytes(), false)
}

fn decode_with(text: &[u8], plus_is_space: bool) -> Result<Cow<'_, str>, FormError> {
    let coded = |byte: &u8| *byte == b'%' || (plus_is_space && *byte == b'+');
    if !text.iter().any(coded) {
        return std::str::from_utf8(text).map(Cow::Borrowed).map_err(|_| FormError::NotUtf8);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                decoded.push(hex(*high)? << 4 | hex(*low)?);
                tail
            }
            (b'%', _) => return Err(FormError::Percent),
            (b'+', tail) if plus_is_space => {
                decoded.push(b' ');
                tail
            }
            (byte, tail) => {
                decoded.push(*byte);
                tail
            }
        };
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| FormError::NotUtf8)
}

pub(crate) fn hex(digit: u8) -> Result<u8, FormError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(FormError::Percent),
    }
}

#[cfg(test)]
mod tests {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
    use proptest::prelude::*;

    use super::*;

    fn pairs(text: &str) -> Result<Vec<(String, String)>, FormError> {
        let form = Form::parse(text.as_bytes())?;
        Ok(form.0.into_iter().map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    #[test]
    fn pairs_are_decoded_in_order() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            pairs("b=1&a=x+y%2B%c3%A9&&=&c&d=e=f&a=%00").unwrap(),
            [pair("b", "1"), pair("a", "x y+é"), pair("", ""), pair("c", ""), pair("d", "e=f"), pair("a", "\0")]
        );
        assert_eq!(pairs("").unwrap(), []);
        assert_eq!(pairs("é=ü").unwrap(), [pair("é", "ü")]);
        // a semicolon is not a separator
        assert_eq!(pairs("a=1;b=2").unwrap(), [pair("a", "1;b=2")]);
    }

    #[test]
    fn ambiguous_input_is_an_error() {
        for text in ["a=%", "a=%4", "a=%zz", "%=1", "a=%4%31", "a=%+1"] {
            assert_eq!(pairs(text), Err(FormError::Percent), "{text}");
        }
        for text in ["a=%ff", "%c3=1", "a=%c0%80", "a=%ed%a0%80"] {
            assert_eq!(pairs(text), Err(FormError::NotUtf8), "{text}");
        }
        assert_eq!(Form::parse(b"a=\xff").unwrap_err(), FormError::NotUtf8);
    }

    #[test]
    fn the_number_of_pairs_is_limited() {
        let most: Vec<String> = (0..MAX_PAIRS).map(|n| format!("{n}=")).collect();
        assert_eq!(pairs(&most.join("&")).unwrap().len(), MAX_PAIRS);
        assert_eq!(pairs(&(most.join("&") + "&x")), Err(FormError::TooMany));
    }

    #[test]
    fn c010_duplicate_names_are_found_in_every_encoding() {
        let has_duplicates = |text: &'static str| Form::parse(text.as_bytes()).unwrap().has_duplicates();
        assert!(has_duplicates("a=1&b=2&a=1"));
        assert!(has_duplicates("a=1&%61=2"));
        assert!(has_duplicates("a&a"));
        assert!(!has_duplicates("a=1&A=1&b=1"));
        assert!(!has_duplicates(""));
    }

    #[test]
    fn c011_an_empty_value_counts_as_missing() {
        let form = Form::parse(b"a=&b&c=1").unwrap();
        assert_eq!((form.value("a"), form.value("b"), form.value("c"), form.value("d")), (None, None, Some("1"), None));
    }

    #[test]
    fn plain_text_is_not_copied() {
        let form = Form::parse(b"plain=text&coded=%41").unwrap();
        assert!(matches!(form.0[0], (Cow::Borrowed(_), Cow::Borrowed(_))));
        assert!(matches!(form.0[1], (Cow::Borrowed(_), Cow::Owned(_))));
    }

    #[test]
    fn a_plus_in_a_path_is_kept() {
        assert_eq!(decode_path("/a+b%20%63").unwrap(), "/a+b c");
    }

    /// Everything except the unreserved characters of RFC 3986.
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

    proptest! {
        #[test]
        fn encoding_round_trips(expected in prop::collection::vec((any::<String>(), any::<String>()), 0..20), plus: bool) {
            let encode = |text: &str| {
                let coded = encode_form_value(text);
                assert_eq!(coded, utf8_percent_encode(text, RESERVED).to_string());
                if plus { coded.replace("%20", "+") } else { coded }
            };
            let text: Vec<_> =
                expected.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
            prop_assert_eq!(pairs(&text.join("&")).unwrap(), expected);
        }

        #[test]
        fn arbitrary_forms_do_not_panic_and_yield_only_their_own_text(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(form) = Form::parse(&bytes) {
                let decoded: usize = form.0.iter().map(|(name, value)| name.len() + value.len()).sum();
                prop_assert!(decoded <= bytes.len());
            }
        }

        #[test]
        fn almost_valid_forms_do_not_panic(text in "[a&=%+4f\u{e9}]{0,40}") {
            let _ = Form::parse(text.as_bytes());
        }
    }
}
