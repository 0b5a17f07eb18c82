//! Parses JSON bodies: objects without duplicate names at any depth.
//!
//! Two parsers that disagree about a duplicate name can be played off against each other, and
//! `serde_json` silently keeps the last one of an unknown field.

use std::{borrow::Cow, collections::HashSet, fmt};

use foldhash::fast::RandomState;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor},
};

/// About as many members as an object has.
const USUAL: usize = 12;

/// Why a text is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonError {
    /// It is not a JSON object in UTF-8, or a member has the wrong type.
    Malformed,
    /// A name appears twice in one object.
    Duplicate,
}

crate::util::fmt::text_error!(JsonError, |own| match own {
    Self::Malformed => "malformed JSON",
    Self::Duplicate => "a name appears twice in an object",
});

/// Parses an object.
pub(crate) fn from_object<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, JsonError> {
    // checked here, because the parser does not check what it skips
    let text = std::str::from_utf8(text).map_err(|_| JsonError::Malformed)?;
    if !text.trim_ascii_start().starts_with('{') {
        return Err(JsonError::Malformed);
    }
    let mut duplicate = false;
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = Distinct { duplicate: &mut duplicate }.deserialize(&mut reader).and_then(|()| reader.end());
    match read {
        Err(_) if duplicate => Err(JsonError::Duplicate),
        Err(_) => Err(JsonError::Malformed),
        Ok(()) => serde_json::from_str(text).map_err(|_| JsonError::Malformed),
    }
}

/// Walks a value and fails at the first duplicate name in an object.
struct Distinct<'f> {
    duplicate: &'f mut bool,
}

impl<'de> DeserializeSeed<'de> for Distinct<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Distinct<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::with_capacity_and_hasher(USUAL, RandomState::default());
        while let Some(Name(name)) = map.next_key()? {
            if !seen.insert(name) {
                *self.duplicate = true;
                return Err(A::Error::custom(JsonError::Duplicate));
            }
            map.next_value_seed(Distinct { duplicate: self.duplicate })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Distinct { duplicate: self.duplicate })?.is_some() {}
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

/// A name, copied only if it has escapes.
#[derive(PartialEq, Eq, Hash, Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn parse_object(text: &str) -> Result<Value, JsonError> {
        from_object(text.as_bytes())
    }

    #[test]
    fn c028_duplicate_names_are_rejected_at_any_depth_in_every_encoding() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"b":2,"a":3}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"x":{"a":1,"a":2}}"#,
            r#"{"x":[1,{"y":[{"a":1,"a":2}]}]}"#,
            r#"{"":1,"":2}"#,
        ] {
            assert_eq!(parse_object(text), Err(JsonError::Duplicate), "{text}");
        }
        // the same name in two objects is not a duplicate
        assert!(parse_object(r#"{"a":{"a":{"b":1}},"b":[{"a":1},{"a":2}],"A":null}"#).is_ok());
    }

    #[test]
    fn only_objects_are_accepted() {
        for text in [
            "",
            " ",
            "[]",
            "1",
            "null",
            "\"a\"",
            "{",
            "{}{}",
            "{} x",
            "{a:1}",
            "{\"a\":1,}",
            "\u{feff}{}",
            r#"{"a":"\ud800"}"#,
        ] {
            assert_eq!(parse_object(text), Err(JsonError::Malformed), "{text}");
        }
        assert_eq!(from_object::<Value>(b"{\"a\":\"\xff\"}"), Err(JsonError::Malformed));
        assert_eq!(parse_object(&("{\"a\":".repeat(100_000))), Err(JsonError::Malformed));
        assert!(parse_object(" \r\n\t{ } \n").is_ok());
    }

    proptest! {
        #[test]
        fn objects_without_duplicates_are_read_completely(members in prop::collection::btree_map(any::<String>(), any::<String>(), 0..20)) {
            let text = serde_json::to_vec(&members).unwrap();
            prop_assert_eq!(from_object::<std::collections::BTreeMap<String, String>>(&text), Ok(members));
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), near in r#"[\{\}\[\]",:a1\\u]{0,40}"#) {
            let _ = from_object::<Value>(&bytes);
            let _ = from_object::<Value>(near.as_bytes());
        }
    }
}
