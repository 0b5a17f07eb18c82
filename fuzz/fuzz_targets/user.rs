//! Parsing any name, address, phone number or stored hash must not panic. Parsed values must
//! round-trip, and hashes that would exhaust the machine must be rejected.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::{Identifier, password::PasswordHash, user::{EmailAddress, PhoneNumber}};

fuzz_target!(|typed: &str| {
    if let Ok(name) = Identifier::parse(typed) {
        assert!((1..=Identifier::MAX_LEN).contains(&name.as_str().len()));
        assert!(!name.as_str().chars().any(char::is_control));
        assert_eq!(Identifier::parse(name.as_str()).as_ref(), Ok(&name));
    }
    if let Ok(address) = EmailAddress::parse(typed) {
        let text = address.as_str();
        assert!(text.len() <= EmailAddress::MAX_LEN && text.matches('@').count() == 1);
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase()));
        assert_eq!(EmailAddress::parse(text).as_ref(), Ok(&address));
        assert_eq!(Identifier::parse(typed).map(|name| name.as_str() == text), Ok(true));
    }
    if let Ok(number) = PhoneNumber::parse(typed) {
        let digits = number.as_str().strip_prefix('+').unwrap_or_default();
        assert!((8..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit()));
        assert_eq!(PhoneNumber::parse(number.as_str()).as_ref(), Ok(&number));
        assert_eq!(Identifier::parse(typed).map(|name| name.as_str() == number.as_str()), Ok(true));
    }
    if let Ok(hash) = PasswordHash::parse(typed) {
        assert_eq!(hash.as_str(), typed);
        let parameters = typed.split('$').find_map(|field| field.strip_prefix("m=")).unwrap_or_default();
        let memory = parameters.split(',').next().and_then(|memory| memory.parse::<u32>().ok());
        assert!(memory.is_some_and(|memory| (8..=262_144).contains(&memory)));
    }
});
