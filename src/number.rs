//! Numbers as header values, without formatting the common ones.

use std::cell::RefCell;

use http::HeaderValue;

/// The numbers below this stand ready in one text.
const READY: usize = 10_000;

static TEXT: &str = match std::str::from_utf8(&DIGITS) {
    Ok(text) => text,
    Err(_) => "",
};

/// All numbers below [`READY`], one after the other.
static DIGITS: [u8; offset(READY)] = digits();

/// A number as a header value. Up to 9999 it costs neither an allocation nor a count of references.
pub(crate) fn number(value: u64) -> HeaderValue {
    match usize::try_from(value) {
        Ok(small) if small < READY => match TEXT.get(offset(small)..offset(small + 1)) {
            Some(text) => HeaderValue::from_static(text),
            None => HeaderValue::from(value),
        },
        _ => HeaderValue::from(value),
    }
}

thread_local! {
    /// The latest numbers of [`recent`], each in the place that its low bits give.
    static RECENT: RefCell<[Option<(u64, HeaderValue)>; 64]> = const { RefCell::new([const { None }; 64]) };
}

/// A number that will be wanted again soon on this thread, such as a time in seconds: it is formatted once.
pub(crate) fn recent(value: u64) -> HeaderValue {
    RECENT.with(|recent| {
        // never borrowed: nothing is called while it is
        let Ok(mut recent) = recent.try_borrow_mut() else { return number(value) };
        let Some(place) = usize::try_from(value % 64).ok().and_then(|place| recent.get_mut(place)) else {
            return number(value);
        };
        match place {
            Some((known, text)) if *known == value => text.clone(),
            _ => {
                let text = number(value);
                *place = Some((value, text.clone()));
                text
            }
        }
    })
}

/// Where a number begins in the text.
const fn offset(number: usize) -> usize {
    match number {
        0..=9 => number,
        10..=99 => 10 + (number - 10) * 2,
        100..=999 => 190 + (number - 100) * 3,
        _ => 2890 + (number - 1000) * 4,
    }
}

#[expect(clippy::indexing_slicing, reason = "worked out by the compiler")]
const fn digits() -> [u8; offset(READY)] {
    let mut text = [0; offset(READY)];
    let mut number = 0;
    while number < READY {
        let (mut place, mut rest) = (offset(number + 1), number);
        while place > offset(number) {
            place -= 1;
            text[place] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        number += 1;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_reads_as_itself() {
        for value in (0..READY as u64 + 10).chain([u64::from(u32::MAX), u64::MAX]) {
            assert_eq!(number(value), value.to_string());
            assert_eq!(recent(value), value.to_string());
            assert_eq!(recent(value), value.to_string());
        }
    }
}
