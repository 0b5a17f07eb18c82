use std::{fmt, net::IpAddr};

use crate::util::error::ConfigError;

/// A range of addresses, such as `10.0.0.0/8`, `2001:db8::/32` or `192.0.2.1`.
///
/// IPv4 addresses are the same in both notations: `::ffff:10.0.0.1` is in `10.0.0.0/8`, and
/// `::ffff:0:0/96` is all of IPv4. No other IPv6 range contains an IPv4 address, not even
/// `::/0`.
///
/// ```
/// use tollgate::tenant::Cidr;
///
/// let cidr: Cidr = "10.0.0.0/8".parse()?;
/// assert!(cidr.contains("10.255.0.1".parse().unwrap()));
/// assert!("10.0.0.1/8".parse::<Cidr>().is_err());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cidr {
    // IPv4-mapped addresses are stored as IPv4
    first: IpAddr,
    prefix: u8,
}

/// The length of the prefix `::ffff:0:0/96` of an IPv4 address.
const MAPPED: u8 = 96;

impl Cidr {
    /// Parses `address/length`, or a single address.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is malformed, or has bits set after the prefix.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let error = |reason| ConfigError::new("address range", text, reason);
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| error("must begin with an IPv4 or IPv6 address"))?;
        let width = width(address);
        let prefix = match prefix {
            None => width,
            Some(digits) => {
                number(digits).filter(|prefix| *prefix <= width).ok_or(error("has an invalid prefix length"))?
            }
        };
        if bits(address) & host_bits(width - prefix) != 0 {
            return Err(error("has bits set after the prefix"));
        }
        let canonical = address.to_canonical();
        Ok(match prefix.checked_sub(MAPPED) {
            Some(prefix) if canonical != address => Self { first: canonical, prefix },
            _ => Self { first: address, prefix },
        })
    }

    /// Returns whether the address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let host_bits = host_bits(width(self.first) - self.prefix);
        self.first.is_ipv4() == address.is_ipv4() && (bits(self.first) ^ bits(address)) & !host_bits == 0
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Returns a number with the `count` lowest bits set.
fn host_bits(count: u8) -> u128 {
    u128::MAX.checked_shr(u32::from(128 - count)).unwrap_or_default()
}

/// Parses a decimal number without a sign or leading zeros.
fn number(digits: &str) -> Option<u8> {
    let number = digits.parse::<u8>().ok()?;
    (number.to_string() == digits).then_some(number)
}

crate::util::fmt::from_str!(Cidr, ConfigError);

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

crate::util::fmt::debug_text!(Cidr, |own| format_args!("{own}"));

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn contains(cidr: &str, address: &str) -> bool {
        cidr.parse::<Cidr>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn a_range_contains_exactly_its_addresses() {
        for (cidr, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::ffff:11.0.0.1"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.0"),
            ("192.0.2.0/31", "192.0.2.1", "192.0.2.2"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::1", "::1", "::2"),
            ("::/0", "ffff::", "192.0.2.1"),
            ("::/64", "::1", "::ffff:192.0.2.1"),
            ("::ffff:0:0/96", "192.0.2.1", "::1"),
            ("::ffff:0:0/96", "::ffff:192.0.2.1", "::fffe:0:1"),
            ("::ffff:10.0.0.0/104", "10.1.2.3", "11.0.0.0"),
            ("::ffff:10.0.0.1", "10.0.0.1", "10.0.0.2"),
            ("::fffe:0:0/95", "::fffe:0:1", "192.0.2.1"),
        ] {
            assert!(contains(cidr, inside), "{inside} is in {cidr}");
            assert!(!contains(cidr, outside), "{outside} is not in {cidr}");
        }
    }

    #[test]
    fn a_malformed_range_is_a_config_error_that_names_it() {
        for text in [
            "",
            "/",
            "/8",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "10.0.0.0/08",
            "10.0.0.0/8/8",
            "10.0.0/8",
            "10.0.0.1/8",
            "128.0.0.0/0",
            "::/129",
            "2001:db8::1/32",
            "::ffff:10.0.0.1/104",
            "10.0.0.0 /8",
            "[::1]",
            "localhost",
            "10.0.0.0/255.0.0.0",
        ] {
            assert_eq!(text.parse::<Cidr>().unwrap_err().value(), text);
        }
    }

    proptest! {
        #[test]
        fn a_range_is_the_addresses_that_share_its_prefix(network: u128, prefix in 0_u8..=128, other: u128, near: bool, keep in 0_u8..=128) {
            let top = |bits: u128, count: u8| bits.checked_shr(u32::from(128 - count)).unwrap_or_default();
            let first = Ipv6Addr::from_bits(top(network, prefix).checked_shl(u32::from(128 - prefix)).unwrap_or_default());
            let other = if near { network ^ (other.checked_shr(u32::from(keep)).unwrap_or_default()) } else { other };
            prop_assume!(first.to_ipv4_mapped().is_none() && Ipv6Addr::from_bits(other).to_ipv4_mapped().is_none());
            let cidr: Cidr = format!("{first}/{prefix}").parse().unwrap();
            prop_assert_eq!(cidr.contains(Ipv6Addr::from_bits(other).into()), top(network, prefix) == top(other, prefix));
            prop_assert_eq!(cidr.to_string().parse::<Cidr>().unwrap(), cidr);
        }

        #[test]
        fn an_ipv4_range_is_the_same_in_both_notations(network: u32, prefix in 0_u8..=32, other: u32, keep in 0_u8..=32) {
            let mask = u32::MAX.checked_shl(u32::from(32 - prefix)).unwrap_or_default();
            let first = Ipv4Addr::from_bits(network & mask);
            let other = network ^ other.checked_shr(u32::from(keep)).unwrap_or_default();
            let plain: Cidr = format!("{first}/{prefix}").parse().unwrap();
            let mapped: Cidr = format!("{}/{}", first.to_ipv6_mapped(), prefix + 96).parse().unwrap();
            prop_assert_eq!(plain, mapped);
            let address = Ipv4Addr::from_bits(other);
            prop_assert_eq!(plain.contains(address.into()), network & mask == other & mask);
            prop_assert_eq!(plain.contains(address.to_ipv6_mapped().into()), network & mask == other & mask);
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "[0-9a-f.:/]{0,24}") {
            if let Ok(cidr) = text.parse::<Cidr>() {
                prop_assert_eq!(cidr.to_string().parse::<Cidr>(), Ok(cidr));
            }
        }
    }
}
