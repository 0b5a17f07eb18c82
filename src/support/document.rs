//! Reads configuration documents in JSON or TOML, with a size limit and errors that name the place.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::util::error::ConfigError;

/// The maximum length of a document in bytes.
const LONGEST: usize = 1 << 20;

/// Parses a JSON object. `setting` names its content in errors.
pub(crate) fn from_json<T: DeserializeOwned>(setting: &'static str, text: &str) -> Result<T, ConfigError> {
    is_bounded(setting, text)?;
    serde_json::from_str(text).map(|Object(read)| read).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        let message = error.to_string();
        let reason = message.rsplit_once(" at line ").map_or(message.as_str(), |(reason, _)| reason);
        ConfigError::new(setting, place, reason.to_owned())
    })
}

/// Parses a TOML document. `setting` names its content in errors.
#[cfg(feature = "toml")]
pub(crate) fn from_toml<T: DeserializeOwned>(setting: &'static str, text: &str) -> Result<T, ConfigError> {
    is_bounded(setting, text)?;
    toml::from_str(text).map(|Object(read)| read).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        ConfigError::new(setting, format!("line {line}"), error.message().replace('\n', ", "))
    })
}

fn is_bounded(setting: &'static str, text: &str) -> Result<(), ConfigError> {
    match text.len() {
        ..=LONGEST => Ok(()),
        len => Err(ConfigError::new(setting, format!("{len} bytes"), "must be at most 1 MiB")),
    }
}

/// A struct that must be written as an object. Derived `Deserialize` implementations also accept a
/// list.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// Values with names chosen by the operator. Rejects duplicate names.
pub(crate) struct Named<T>(pub(crate) Vec<(String, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NamedVisitor(PhantomData))
    }
}

struct NamedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for NamedVisitor<T> {
    type Value = Named<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut seen = std::collections::BTreeSet::new();
        let mut members = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if !seen.insert(name.clone()) {
                return Err(A::Error::custom(format_args!("duplicate name `{name}`")));
            }
            members.push((name, map.next_value()?));
        }
        Ok(Named(members))
    }
}
