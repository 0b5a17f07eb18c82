use std::fmt;

use super::Tenant;

/// Room for one name on the stack, so that building it costs no allocation.
pub(super) struct Buffer {
    len: usize,
    bytes: [u8; Tenant::MAX_LEN],
}

impl Buffer {
    pub(super) const fn new() -> Self {
        Self { len: 0, bytes: [0; Tenant::MAX_LEN] }
    }

    /// Adds bytes; `None`, and nothing added, where they don't fit.
    pub(super) fn extend(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len.checked_add(bytes.len())?;
        self.bytes.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl fmt::Write for Buffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.extend(text.as_bytes()).ok_or(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let mut buffer = Buffer::new();
        assert_eq!(buffer.extend(&[b'a'; Tenant::MAX_LEN - 1]), Some(()));
        assert_eq!(buffer.extend(b"bc"), None);
        assert_eq!(buffer.extend(b"b"), Some(()));
        assert_eq!(buffer.extend(b"c"), None);
        assert_eq!(buffer.as_bytes().len(), Tenant::MAX_LEN);
        assert!(buffer.as_bytes().ends_with(b"ab"));
    }
}
