//! Reads canonical CBOR as CTAP2 defines it.
//!
//! Every value has exactly one encoding: shortest integers and lengths, sorted and distinct keys, no tags, no indefinite
//! lengths. Floating-point numbers are refused too, because authenticators do not send them.

/// The nesting that CTAP2 allows.
const MOST_DEPTH: usize = 4;

/// A value that borrows from its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Integer(i128),
    Bytes(&'a [u8]),
    Text(&'a str),
    Array(Vec<Self>),
    /// Keys are integers, bytes or texts.
    Map(Vec<(Self, Self)>),
    Bool(bool),
    Null,
}

/// Reads an input that is exactly one value.
pub(super) fn read_all(mut input: &[u8]) -> Option<Value<'_>> {
    read_cbor_value(&mut input).filter(|_| input.is_empty())
}

/// Reads the value at the front of the input, and advances the input past it.
pub(super) fn read_cbor_value<'a>(input: &mut &'a [u8]) -> Option<Value<'a>> {
    read_at(input, 0)
}

fn read_at<'a>(input: &mut &'a [u8], depth: usize) -> Option<Value<'a>> {
    let (major, argument) = head(input)?;
    Some(match major {
        0 => Value::Integer(argument.into()),
        1 => Value::Integer(-1 - i128::from(argument)),
        2 => Value::Bytes(take_input_bytes(input, argument)?),
        3 => Value::Text(std::str::from_utf8(take_input_bytes(input, argument)?).ok()?),
        4 | 5 if depth == MOST_DEPTH => return None,
        // no space is reserved, because the length is not trustworthy; each element takes a byte of input at least
        4 => Value::Array((0..argument).map(|_| read_at(input, depth + 1)).collect::<Option<_>>()?),
        5 => Value::Map(entries(input, argument, depth + 1)?),
        7 => match argument {
            20 => Value::Bool(false),
            21 => Value::Bool(true),
            22 => Value::Null,
            _ => return None,
        },
        _ => return None,
    })
}

fn entries<'a>(input: &mut &'a [u8], len: u64, depth: usize) -> Option<Vec<(Value<'a>, Value<'a>)>> {
    let mut entries = Vec::new();
    let mut last = None;
    for _ in 0..len {
        let before = *input;
        let key = read_at(input, depth)?;
        if !matches!(key, Value::Integer(_) | Value::Bytes(_) | Value::Text(_)) {
            return None;
        }
        let encoded = before.get(..before.len() - input.len())?;
        // by major type, then by length, then by bytes; equal keys are not in order either
        let rank = Some((encoded.first()? >> 5, encoded.len(), encoded));
        if rank <= last {
            return None;
        }
        last = rank;
        entries.push((key, read_at(input, depth)?));
    }
    Some(entries)
}

/// Reads the major type and the argument, which must have its shortest form.
fn head(input: &mut &[u8]) -> Option<(u8, u64)> {
    let first = *take_input_bytes(input, 1)?.first()?;
    let (major, info) = (first >> 5, first & 0x1f);
    let (len, least) = match info {
        0..24 => return Some((major, info.into())),
        24 => (1, 24),
        25 => (2, 1 << 8),
        26 => (4, 1 << 16),
        27 => (8, 1 << 32),
        _ => return None,
    };
    let argument = take_input_bytes(input, len)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    (argument >= least).then_some((major, argument))
}

fn take_input_bytes<'a>(input: &mut &'a [u8], len: u64) -> Option<&'a [u8]> {
    let (taken, rest) = input.split_at_checked(usize::try_from(len).ok()?)?;
    *input = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    /// A second implementation of the encoding, to compare with.
    fn encode(value: &Value<'_>) -> Vec<u8> {
        let head = |major: u8, n: u64| {
            let first = |info: u8| vec![major << 5 | info];
            match n {
                0..24 => first(n as u8),
                24..=0xff => [first(24), vec![n as u8]].concat(),
                0x100..=0xffff => [first(25), (n as u16).to_be_bytes().to_vec()].concat(),
                0x1_0000..=0xffff_ffff => [first(26), (n as u32).to_be_bytes().to_vec()].concat(),
                _ => [first(27), n.to_be_bytes().to_vec()].concat(),
            }
        };
        match value {
            Value::Integer(n @ 0..) => head(0, *n as u64),
            Value::Integer(n) => head(1, (-1 - *n) as u64),
            Value::Bytes(bytes) => [head(2, bytes.len() as u64), bytes.to_vec()].concat(),
            Value::Text(text) => [head(3, text.len() as u64), text.as_bytes().to_vec()].concat(),
            Value::Array(all) => [head(4, all.len() as u64), all.iter().flat_map(encode).collect()].concat(),
            Value::Map(all) => {
                let mut all: Vec<_> = all.iter().map(|(key, value)| (encode(key), encode(value))).collect();
                all.sort_by_key(|(key, _)| (key[0] >> 5, key.len(), key.clone()));
                all.dedup_by_key(|(key, _)| key.clone());
                [head(5, all.len() as u64), all.concat_pairs()].concat()
            }
            Value::Bool(is) => vec![if *is { 0xf5 } else { 0xf4 }],
            Value::Null => vec![0xf6],
        }
    }

    trait ConcatPairs {
        fn concat_pairs(&self) -> Vec<u8>;
    }

    impl ConcatPairs for Vec<(Vec<u8>, Vec<u8>)> {
        fn concat_pairs(&self) -> Vec<u8> {
            self.iter().flat_map(|(key, value)| [key.as_slice(), value].concat()).collect()
        }
    }

    #[test]
    fn values_of_rfc_8949_appendix_a_are_read() {
        use Value::{Array, Bool, Bytes, Integer, Map, Null, Text};
        for (hex, value) in [
            ("00", Integer(0)),
            ("17", Integer(23)),
            ("1818", Integer(24)),
            ("1903e8", Integer(1000)),
            ("1a000f4240", Integer(1_000_000)),
            ("1bffffffffffffffff", Integer(u64::MAX.into())),
            ("3bffffffffffffffff", Integer(-1 - i128::from(u64::MAX))),
            ("20", Integer(-1)),
            ("3903e7", Integer(-1000)),
            ("f4", Bool(false)),
            ("f5", Bool(true)),
            ("f6", Null),
            ("40", Bytes(b"")),
            ("4401020304", Bytes(&[1, 2, 3, 4])),
            ("60", Text("")),
            ("62c3bc", Text("ü")),
            ("80", Array(vec![])),
            (
                "8301820203820405",
                Array(vec![Integer(1), Array(vec![Integer(2), Integer(3)]), Array(vec![Integer(4), Integer(5)])]),
            ),
            ("a201020304", Map(vec![(Integer(1), Integer(2)), (Integer(3), Integer(4))])),
            (
                "a26161016162820203",
                Map(vec![(Text("a"), Integer(1)), (Text("b"), Array(vec![Integer(2), Integer(3)]))]),
            ),
        ] {
            assert_eq!(read_all(&bytes(hex)), Some(value), "{hex}");
        }
    }

    #[test]
    fn c078_other_encodings_are_refused() {
        for (hex, why) in [
            ("", "empty"),
            ("1817", "an integer that is not the shortest"),
            ("1900ff", "an integer that is not the shortest"),
            ("1a0000ffff", "an integer that is not the shortest"),
            ("1b00000000ffffffff", "an integer that is not the shortest"),
            ("580100", "a length that is not the shortest"),
            ("5f4100ff", "indefinite bytes"),
            ("7f6161ff", "indefinite text"),
            ("9f00ff", "an indefinite array"),
            ("bf0000ff", "an indefinite map"),
            ("c000", "a tag"),
            ("f7", "undefined"),
            ("f814", "a simple value that is not the shortest"),
            ("f90000", "a float"),
            ("fa00000000", "a float"),
            ("fb0000000000000000", "a float"),
            ("ff", "a break"),
            ("1c", "a reserved length"),
            ("0000", "trailing bytes"),
            ("4401", "truncated bytes"),
            ("8201", "a truncated array"),
            ("a101", "a truncated map"),
            ("61ff", "text that is not UTF-8"),
            ("a201000100", "a key twice"),
            ("a203000100", "keys in another order"),
            ("a2616200616100", "keys in another order"),
            ("a262616100616200", "a longer key first"),
            ("a220000100", "a negative key before a positive one"),
            ("a1f400", "a key that is a boolean"),
            ("a18000", "a key that is an array"),
            ("818181818100", "nested too deeply"),
            ("a100a100a100a100a10000", "nested too deeply"),
            ("9bffffffffffffffff", "an endless array"),
            ("bbffffffffffffffff", "an endless map"),
            ("5bffffffffffffffff", "endless bytes"),
        ] {
            assert_eq!(read_all(&bytes(hex)), None, "{hex}: {why}");
        }
        for four_levels in ["8181818100", "a100a100a100a10000"] {
            assert!(read_all(&bytes(four_levels)).is_some(), "{four_levels}");
        }
    }

    fn leaf() -> impl Strategy<Value = Value<'static>> {
        let boundaries = prop::sample::select(vec![0_i128, 23, 24, 255, 256, 65535, 65536, 1 << 32, (1 << 32) - 1]);
        prop_oneof![
            any::<u64>().prop_map(|n| Value::Integer(n.into())),
            any::<u64>().prop_map(|n| Value::Integer(-1 - i128::from(n))),
            boundaries.prop_flat_map(|n| prop_oneof![Just(Value::Integer(n)), Just(Value::Integer(-1 - n))]),
            prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| Value::Bytes(bytes.leak())),
            ".{0,40}".prop_map(|text| Value::Text(text.leak())),
        ]
    }

    fn arbitrary_value() -> impl Strategy<Value = Value<'static>> {
        let simple = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::Bool)];
        prop_oneof![leaf(), simple].prop_recursive(4, 30, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                prop::collection::vec((leaf(), inner), 0..6).prop_map(Value::Map),
            ]
        })
    }

    proptest! {
        #[test]
        fn c078_every_value_has_exactly_one_encoding(value in arbitrary_value()) {
            let encoded = encode(&value);
            let read = read_all(&encoded).unwrap();
            prop_assert_eq!(encode(&read), encoded.clone());
            for len in 0..encoded.len() {
                prop_assert_eq!(read_all(&encoded[..len]), None);
            }
        }

        #[test]
        fn c078_what_is_accepted_is_canonical(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(read) = read_all(&bytes) {
                prop_assert_eq!(encode(&read), bytes);
            }
        }
    }
}
