//! Short byte strings that need no allocation.

use std::sync::Arc;

/// Bytes that never change. Up to `PLACE` of them are stored in place, and longer ones are shared.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum InlineBytes<const PLACE: usize> {
    InPlace { len: u8, bytes: [u8; PLACE] },
    Shared(Arc<[u8]>),
}

impl<const PLACE: usize> InlineBytes<PLACE> {
    #[inline]
    pub(crate) fn new(parts: &[&[u8]]) -> Self {
        const { assert!(PLACE <= u8::MAX as usize) }
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        if len > PLACE {
            return Self::Shared(match parts {
                [all] => Arc::from(*all),
                _ => parts.concat().into(),
            });
        }
        let mut new = Self::InPlace { len: len as u8, bytes: [0; PLACE] };
        // filled where it is returned, because a copy would cost more
        if let Self::InPlace { bytes, .. } = &mut new {
            let mut rest = bytes.as_mut_slice();
            for part in parts {
                let Some((start, after)) = rest.split_at_mut_checked(part.len()) else { break };
                start.copy_from_slice(part);
                rest = after;
            }
        }
        new
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::InPlace { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Self::Shared(bytes) => bytes,
        }
    }

    /// Returns how many bytes the allocation takes, if there is one.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::InPlace { .. } => 0,
            Self::Shared(bytes) => bytes.len() + 2 * size_of::<usize>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_bytes_are_in_place_and_long_ones_shared() {
        for len in 0..20 {
            let bytes = vec![7; len];
            let (own, joined) =
                (InlineBytes::<10>::new(&[&bytes]), InlineBytes::<10>::new(&[&bytes[..len / 2], &bytes[len / 2..]]));
            assert_eq!((own.as_bytes(), joined.as_bytes()), (&bytes[..], &bytes[..]));
            assert!(own == joined && own != InlineBytes::new(&[&bytes, &[0]]));
            assert_eq!(matches!(own, InlineBytes::InPlace { .. }), len <= 10, "{len}");
        }
    }
}
