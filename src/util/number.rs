//! Numbers as header values, without formatting the common ones.

use std::{cell::RefCell, sync::LazyLock};

use http::HeaderValue;

/// The numbers below this stand ready.
const READY: usize = 10_000;

/// How many other numbers each thread keeps.
const RECENT: u64 = 64;

/// Static texts, so that a copy neither allocates nor counts references: a count that all threads share would be the
/// dearest thing in a response. They take 440 kB, once they are wanted.
static SMALL: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| {
    let texts: String = (0..READY).map(|number| format!("{number} ")).collect();
    let texts: &'static str = texts.leak();
    texts.split_ascii_whitespace().map(HeaderValue::from_static).collect()
});

thread_local! {
    /// Each number in the place that its low bits give.
    static KEPT: RefCell<[Option<(u64, HeaderValue)>; RECENT as usize]> =
        const { RefCell::new([const { None }; RECENT as usize]) };
}

/// A number as a header value. A small one, or one that this thread has asked for lately, such as a limit or a time in
/// seconds, is not formatted.
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
    fn every_number_reads_as_itself_each_time() {
        for value in (0..2 * READY as u64).chain([u64::from(u32::MAX), u64::MAX]) {
            assert_eq!(number(value), value.to_string());
            assert_eq!(number(value), value.to_string());
        }
    }
}
