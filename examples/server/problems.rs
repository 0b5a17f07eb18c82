//! The problems of the values in the file of `--config`.

use std::{fmt::Display, ops::Range};

use toml::Spanned;

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

    pub(crate) fn text(mut self) -> String {
        self.found.sort();
        let lines = self.found.iter().map(|(line, problem)| format!("line {line}: {problem}"));
        lines.collect::<Vec<_>>().join("\n")
    }
}
