//! Fast conversion of numbers to header values.

use std::cell::RefCell;

use http::HeaderValue;

/// Numbers below this are written at compile time.
const READY: usize = 10_000;

/// The number of other values that each thread caches.
const RECENT: u64 = 64;

/// The digits of all numbers below [`READY`], four for each. Header values that point to them neither allocate nor count
/// references: a reference count shared by all threads would be the most expensive part of a response.
static TEXT: &str = match str::from_utf8(&DIGITS) {
    Ok(text) => text,
    Err(_) => "",
};

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
static DIGITS: [u8; 4 * READY] = {
    let mut digits = [0; 4 * READY];
    let mut place = 0;
    while place < digits.len() {
        let number = place / 4;
        let digit = match place % 4 {
            0 => number / 1_000,
            1 => number / 100 % 10,
            2 => number / 10 % 10,
            _ => number % 10,
        };
        digits[place] = b'0' + digit as u8;
        place += 1;
    }
    digits
};

thread_local! {
    /// Cached numbers, indexed by their low bits.
    static KEPT: RefCell<[Option<(u64, HeaderValue)>; RECENT as usize]> =
        const { RefCell::new([const { None }; RECENT as usize]) };
}

/// Returns a number as a header value. Small numbers, and numbers that this thread converted
/// recently, such as a limit or a time in seconds, are not formatted again.
pub(crate) fn number(value: u64) -> HeaderValue {
    match ready(value) {
        Some(digits) => HeaderValue::from_static(digits),
        None => kept(value),
    }
}

/// Returns the digits of a small number.
fn ready(value: u64) -> Option<&'static str> {
    let zeros = match value {
        0..10 => 3,
        10..100 => 2,
        100..1_000 => 1,
        _ => 0,
    };
    let place = usize::try_from(value).ok()?.checked_mul(4)?;
    TEXT.get(place + zeros..place.checked_add(4)?)
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
