use std::iter::Rev;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{GetAll, ValueIter},
};

/// Past these bounds the walk ends, as if the header began there.
pub(super) const MAX_HOPS: usize = 32;
pub(super) const MAX_BYTES: usize = 8 * 1024;

/// The elements of a list header, from the right: the last of the last line
/// comes first. Nothing is copied, and nothing left of what was asked for is
/// looked at, so what stands there can't matter.
pub(super) struct Hops<'a> {
    lines: Rev<ValueIter<'a, HeaderValue>>,
    line: Option<&'a [u8]>,
    last_comma: fn(&[u8]) -> Option<usize>,
    elements: usize,
    bytes: usize,
}

impl<'a> Hops<'a> {
    /// The elements of this header; `last_comma` finds the last comma of a line that separates two.
    pub(super) fn new(headers: &'a HeaderMap, name: &HeaderName, last_comma: fn(&[u8]) -> Option<usize>) -> Self {
        let lines = GetAll::iter(&headers.get_all(name)).rev();
        Self { lines, line: None, last_comma, elements: MAX_HOPS, bytes: MAX_BYTES }
    }
}

impl<'a> Iterator for Hops<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.elements = self.elements.checked_sub(1)?;
        let line = match self.line.take() {
            Some(line) => line,
            None => self.lines.next()?.as_bytes(),
        };
        let (unseen, seen) = line.split_at_checked(line.len().saturating_sub(self.bytes))?;
        let element = match (self.last_comma)(seen) {
            Some(comma) => {
                self.line = line.get(..unseen.len() + comma);
                seen.get(comma + 1..)?
            }
            None if unseen.is_empty() => seen,
            None => return None,
        };
        self.bytes = self.bytes.saturating_sub(element.len() + 1);
        Some(element)
    }
}
