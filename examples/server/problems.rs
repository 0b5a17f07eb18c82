//! The problems of the file of `--config`: unknown settings, and bad values.

use std::{error, fmt::Display, ops::Range};

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeTable, Deserializer, Error},
};

use crate::toml_parts::remove;

/// The problems that were found, with their places.
pub(crate) struct Problems<'t> {
    text: &'t str,
    /// With their lines.
    found: Vec<(usize, String)>,
    /// The settings and lists of which an entry could not be read.
    incomplete: Vec<String>,
    /// The sections of which any part could not be read.
    damaged: Vec<String>,
}

impl<'t> Problems<'t> {
    pub(crate) fn of(text: &'t str) -> Self {
        Self { text, found: Vec::new(), incomplete: Vec::new(), damaged: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn line(&self, span: Range<usize>) -> usize {
        self.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1
    }

    /// Reads the text without the parts that cannot be read, and notes each of them.
    pub(crate) fn read_all<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        let mut table = DeTable::parse(self.text)?;
        // names of bad values, with the place of their table: they are not missing
        let mut bad = Vec::new();
        loop {
            let mut error = match T::deserialize(Deserializer::from(table.clone())) {
                Ok(read) => return Ok(read),
                Err(error) => error,
            };
            let root = table.span();
            let Some((span, removed)) =
                error.span().and_then(|span| Some((span.clone(), remove(table.get_mut(), &root, &span)?)))
            else {
                error.set_input(Some(self.text));
                return Err(error);
            };
            let message = error.message();
            if message.starts_with("unknown field") {
                self.note(span, message);
                continue;
            }
            let missing = message.strip_prefix("missing field `").map(|name| name.trim_end_matches('`'));
            if missing.is_none_or(|name| !bad.contains(&(span.clone(), name.to_owned()))) {
                self.note(span, format_args!("{}: {}", removed.path.join(": "), message.trim_end()));
            }
            self.damaged.extend(removed.path.first().cloned());
            if let [whole] = &*removed.path {
                self.incomplete.push(whole.clone());
            }
            bad.extend(removed.path.last().map(|name| (removed.table, name.clone())));
        }
    }

    /// Returns whether this setting, or an entry of this list, could not be read.
    pub(crate) fn is_incomplete(&self, setting: &str) -> bool {
        self.incomplete.iter().any(|name| name == setting)
    }

    /// Returns whether any part of this section could not be read, so that others may seem to be missing.
    pub(crate) fn is_damaged(&self, section: &str) -> bool {
        self.damaged.iter().any(|name| name == section)
    }

    pub(crate) fn note(&mut self, span: Range<usize>, problem: impl Display) {
        self.found.push((self.line(span), problem.to_string()));
    }

    /// Reads a value, or notes its line, its name and what is wrong.
    pub(crate) fn read<W, T, E: Display>(
        &mut self,
        name: &str,
        written: &Spanned<W>,
        read: impl FnOnce(&W) -> Result<T, E>,
    ) -> Option<T> {
        read(written.get_ref()).map_err(|error| self.note(written.span(), format_args!("{name}{error}"))).ok()
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
