//! Fast conversion of numbers to header values.

use std::{cell::RefCell, sync::LazyLock};

use http::HeaderValue;

/// Numbers below this are precomputed.
const READY: usize = 10_000;

/// The number of other values that each thread caches.
const RECENT: u64 = 64;

/// Static header values, so that cloning neither allocates nor counts references: a reference count
/// shared by all threads would be the most expensive part of a response. The table takes 440 kB
/// once it is first used.
static SMALL: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| {
    let texts: String = (0..READY).map(|number| format!("{number} ")).collect();
    let texts: &'static str = texts.leak();
    texts.split_ascii_whitespace().map(HeaderValue::from_static).collect()
});

thread_local! {
    /// Cached numbers, indexed by their low bits.
    static KEPT: RefCell<[Option<(u64, HeaderValue)>; RECENT as usize]> =
        const { RefCell::new([const { None }; RECENT as usize]) };
}

/// Returns a number as a header value. Small numbers, and numbers that this thread converted
/// recently, such as a limit or a time in seconds, are not formatted again.
pub(crate) fn number(value: u64) -> HeaderValue {
    match usize::try_from(value).ok().and_then(|place| SMALL.get(place)) {
        Some(ready) => ready.clone(),
        None => kept(value),
    }
}

fn kept(value: u64) -> HeaderValue {
    KEPT.with_borrow_mut(|kept| {
        let place = usize::try_from(value % RECENT).ok().and_then(|place| kept.get_mut(place));
        match place {
            Some(Some((known, text))) if *known == value => text.clone(),
            Some(place) => place.insert((value, HeaderValue::from(value))).1.clone(),
            None => HeaderValue::from(value),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_written_correctly_every_time() {
        for value in (0..2 * READY as u64).chain([u64::from(u32::MAX), u64::MAX]) {
            assert_eq!(number(value), value.to_string());
            assert_eq!(number(value), value.to_string());
        }
    }
}
