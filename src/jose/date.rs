//! Times in signed documents (NumericDate, RFC 7519 §2): Unix seconds, which some issuers write as
//! fractions.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Number;

/// Larger integers are not exactly representable as floats.
const MOST: f64 = 9_007_199_254_740_992.0;

/// Rounds down. For times that should not be extended, such as an expiry.
pub(crate) fn floor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    seconds(&Number::deserialize(deserializer)?, f64::floor)
}

/// Rounds up. For times at which something starts.
pub(crate) fn ceil<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    seconds(&Number::deserialize(deserializer)?, f64::ceil)
}

/// Like [`floor`] but for an optional member.
pub(crate) fn floor_if_any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Option::<Number>::deserialize(deserializer)?.map(|number| seconds(&number, f64::floor)).transpose()
}

/// Like [`ceil`] but for an optional member.
pub(crate) fn ceil_if_any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Option::<Number>::deserialize(deserializer)?.map(|number| seconds(&number, f64::ceil)).transpose()
}

fn seconds<E: Error>(number: &Number, round: fn(f64) -> f64) -> Result<u64, E> {
    let whole = || {
        let seconds = number.as_f64().map(round).filter(|seconds| (0.0..=MOST).contains(seconds))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the value is integral and in range"
        )]
        Some(seconds as u64)
    };
    number.as_u64().or_else(whole).ok_or_else(|| E::custom("not a valid time"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    struct Times {
        #[serde(deserialize_with = "floor")]
        ends: u64,
        #[serde(deserialize_with = "ceil")]
        begins: u64,
        #[serde(default, deserialize_with = "floor_if_any")]
        ended: Option<u64>,
        #[serde(default, deserialize_with = "ceil_if_any")]
        began: Option<u64>,
    }

    fn parse_times(time: &str) -> Option<(u64, u64)> {
        let times = |more: &str| {
            let text = format!(r#"{{"ends":{time},"begins":{time}{more}}}"#);
            crate::util::json::from_object::<Times>(text.as_bytes()).ok()
        };
        let Times { ends, begins, .. } = times("")?;
        for (more, ended, began) in [
            (String::new(), None, None),
            (r#","ended":null,"began":null"#.to_owned(), None, None),
            (format!(r#","ended":{time},"began":{time}"#), Some(ends), Some(begins)),
        ] {
            assert_eq!(times(&more), Some(Times { ends, begins, ended, began }), "{time}");
        }
        Some((ends, begins))
    }

    #[test]
    fn a_time_is_a_non_negative_number() {
        for (time, expected) in [
            ("0", (0, 0)),
            ("-0.0", (0, 0)),
            ("1795313938", (1_795_313_938, 1_795_313_938)),
            ("1795313938.0", (1_795_313_938, 1_795_313_938)),
            ("1.795313938e9", (1_795_313_938, 1_795_313_938)),
            ("1795313938.25", (1_795_313_938, 1_795_313_939)),
            ("1795313938.999999", (1_795_313_938, 1_795_313_939)),
            ("9007199254740992.0", (1 << 53, 1 << 53)),
            ("18446744073709551615", (u64::MAX, u64::MAX)),
        ] {
            assert_eq!(parse_times(time), Some(expected), "{time}");
        }
        for bad in [
            "-1",
            "-0.5",
            "-1.5",
            "9007199254740994.0",
            "1e300",
            "1e999",
            "18446744073709551616",
            "\"1\"",
            "true",
            "[1]",
        ] {
            assert_eq!(parse_times(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn rounded_times_enclose_the_exact_time(whole in 0..1_u64 << 33, thousandths in 0..1000_u32) {
            let (ends, begins) = parse_times(&format!("{whole}.{thousandths:03}")).unwrap();
            prop_assert_eq!((ends, begins), (whole, whole + u64::from(thousandths > 0)));
        }
    }
}
