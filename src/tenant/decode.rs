use percent_encoding::percent_decode_str;

use super::{Tenant, TenantError, buffer::Buffer};

/// The tenant that a piece of a path names: percent-decoded, `+` is itself.
pub(super) fn path_name(raw: &str) -> Result<Tenant, TenantError> {
    if !raw.contains('%') {
        return Tenant::parse(raw);
    }
    if !has_whole_escapes(raw) {
        // decoders disagree about these, so they would about the tenant
        return Err(TenantError::invalid("the name of the tenant has a broken percent escape"));
    }
    let mut name = Buffer::new();
    for byte in percent_decode_str(raw) {
        name.extend(&[byte]).ok_or(TenantError::invalid("the name of the tenant has more than 128 bytes"))?;
    }
    Tenant::parse(name.as_bytes())
}

/// The tenant that a value of a form or query names: percent-decoded, `+` is a space.
pub(super) fn form_name(raw: &str) -> Result<Tenant, TenantError> {
    if raw.contains('+') {
        return Err(TenantError::invalid("the name of the tenant has a space"));
    }
    path_name(raw)
}

/// Whether a piece of a form or query, once decoded, is this text.
pub(super) fn form_is(raw: &str, text: &str) -> bool {
    if !raw.contains(['%', '+']) {
        return raw == text;
    }
    let spaces = raw.split('+').enumerate();
    spaces
        .flat_map(|(nth, piece)| (nth > 0).then_some(b' ').into_iter().chain(percent_decode_str(piece)))
        .eq(text.bytes())
}

fn has_whole_escapes(raw: &str) -> bool {
    raw.split('%')
        .skip(1)
        .all(|after| matches!(after.as_bytes(), [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn broken_escapes_name_nobody() {
        for raw in ["a%", "a%2", "%2x", "%%41", "%zz", "a%2b%"] {
            assert!(path_name(raw).is_err(), "{raw}");
        }
    }

    #[test]
    fn plus_is_a_space_in_a_form_and_itself_in_a_path() {
        assert_eq!(path_name("a+b").unwrap().as_str(), "a+b");
        assert_eq!(form_name("a%2Bb").unwrap().as_str(), "a+b");
        assert!(form_name("a+b").is_err());
        assert!(form_is("a+b", "a b"));
        assert!(form_is("a%2bb%20", "a+b "));
        assert!(!form_is("a+b", "a+b"));
    }

    #[test]
    fn a_decoded_name_may_have_128_bytes_and_no_more() {
        assert!(path_name(&"%41".repeat(128)).is_ok());
        assert!(path_name(&"%41".repeat(129)).is_err());
    }

    #[test]
    fn what_is_decoded_obeys_the_rules_of_a_name() {
        for raw in ["%7Eanonymous", "ip%3A192.0.2.1", "%69p:192.0.2.1", "a%00", "a%0d%0ab", "%22"] {
            assert!(path_name(raw).is_err(), "{raw}");
        }
    }

    proptest! {
        #[test]
        fn any_mix_of_plain_and_escaped_bytes_names_the_same_tenant(
            name in "[a-zA-Z0-9._-]{1,128}",
            escaped in prop::collection::vec(any::<bool>(), 128),
        ) {
            let raw: String = name
                .bytes()
                .zip(escaped)
                .map(|(byte, escaped)| if escaped { format!("%{byte:02x}") } else { char::from(byte).to_string() })
                .collect();
            prop_assert_eq!(path_name(&raw).unwrap().to_string(), name.clone());
            prop_assert_eq!(form_name(&raw).unwrap().to_string(), name.clone());
            prop_assert!(form_is(&raw, &name));
        }
    }
}
