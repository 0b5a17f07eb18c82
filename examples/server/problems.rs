//! The problems of the file of `--config`: unknown settings, and bad values.

use std::{error, fmt::Display, ops::Range};

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeTable, DeValue, Deserializer, Error},
};

/// The problems that were found, with their places.
pub(crate) struct Problems<'t> {
    text: &'t str,
    /// With their lines.
    found: Vec<(usize, String)>,
}

impl<'t> Problems<'t> {
    pub(crate) fn of(text: &'t str) -> Self {
        Self { text, found: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn line(&self, span: Range<usize>) -> usize {
        self.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1
    }

    /// Reads the text without its unknown settings, and notes each of them.
    pub(crate) fn read_known<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        let mut table = DeTable::parse(self.text)?;
        loop {
            let mut error = match T::deserialize(Deserializer::from(table.clone())) {
                Ok(read) => return Ok(read),
                Err(error) => error,
            };
            let span = error.span().filter(|_| error.message().starts_with("unknown field"));
            let Some(span) = span.filter(|span| remove_key(table.get_mut(), span)) else {
                error.set_input(Some(self.text));
                return Err(error);
            };
            self.found.push((self.line(span), error.message().to_owned()));
        }
    }

    /// Reads a value, or notes its line, its name and what is wrong.
    pub(crate) fn read<W, T, E: Display>(
        &mut self,
        name: &str,
        written: &Spanned<W>,
        read: impl FnOnce(&W) -> Result<T, E>,
    ) -> Option<T> {
        read(written.get_ref())
            .map_err(|error| self.found.push((self.line(written.span()), format!("{name}{error}"))))
            .ok()
    }

    /// Returns the text with one more problem, which has no line.
    pub(crate) fn text_with(self, last: &dyn Display) -> Box<dyn error::Error> {
        [self.text(), last.to_string()].join("\n").trim_start().into()
    }

    pub(crate) fn text(mut self) -> String {
        self.found.sort();
        let lines = self.found.iter().map(|(line, problem)| format!("line {line}: {problem}"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Removes the setting whose key is here. Returns whether there is one.
fn remove_key(table: &mut DeTable<'_>, span: &Range<usize>) -> bool {
    let key = table.keys().find(|key| key.span() == *span).cloned();
    key.is_some_and(|key| table.remove(&key).is_some())
        || table.iter_mut().any(|(_, value)| remove_key_within(value.get_mut(), span))
}

fn remove_key_within(value: &mut DeValue<'_>, span: &Range<usize>) -> bool {
    match value {
        DeValue::Table(table) => remove_key(table, span),
        DeValue::Array(values) => values.iter_mut().any(|value| remove_key_within(value.get_mut(), span)),
        _ => false,
    }
}
