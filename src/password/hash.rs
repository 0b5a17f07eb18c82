use argon2::{Algorithm, Version};
use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};

use super::recipe::{Cost, Recipe};

/// Space for 64 bytes in base64, which decodes whole groups of three.
const DECODED: usize = 66;

/// An argon2 hash of a password, as a PHC string.
///
/// [`parse`](Self::parse) accepts argon2id, argon2i and argon2d in version 19 or 16, with a salt of 8 to 64 bytes, an
/// output of 16 to 64 bytes, and at most 256 MiB, 16 iterations and 8 lanes. Hashes beyond these bounds are refused
/// before any work is done. [`Passwords`](super::Passwords) creates argon2id hashes in version 19, with a random salt
/// of 16 bytes and an output of 32 bytes.
///
/// `Debug` shows nothing, and hashes can't be compared, because a leaked hash lets an attacker guess the password.
///
/// ```
/// use tollgate::password::PasswordHash;
///
/// let text = "$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0";
/// let hash = PasswordHash::parse(text)?;
/// assert_eq!(hash.as_str(), text);
/// assert!(PasswordHash::parse("$argon2id$v=19$m=4294967295,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$gy5S").is_err());
/// # Ok::<(), tollgate::password::PasswordHashError>(())
/// ```
#[derive(Clone)]
pub struct PasswordHash {
    text: Box<str>,
    pub(super) recipe: Recipe,
    /// The number of bytes of the salt.
    salt: usize,
    /// The number of bytes of the output.
    output: usize,
}

impl PasswordHash {
    /// The maximum length of the text, in bytes.
    pub const MAX_LEN: usize = 256;

    /// Reads a stored hash, made by this crate or by another program.
    ///
    /// Each hash has exactly one text: the parameters are in the order `m`, `t`, `p`, numbers have no leading zeros,
    /// and base64 has no padding. `v` may be missing only in version 16, because older programs left it out.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not an argon2 hash within the bounds above.
    pub fn parse(text: impl AsRef<str>) -> Result<Self, PasswordHashError> {
        let text = text.as_ref();
        if text.len() > Self::MAX_LEN {
            return Err(PasswordHashError("the hash of the password is too long"));
        }
        let mut fields = text.split('$');
        let mut field = || fields.next().ok_or(PasswordHashError("the hash of the password is not a PHC string"));
        if !field()?.is_empty() {
            return Err(PasswordHashError("the hash of the password is not a PHC string"));
        }
        let algorithm = algorithm(field()?).ok_or(PasswordHashError("only argon2 hashes can be checked"))?;
        let mut next = field()?;
        let version = match next.strip_prefix("v=") {
            None => Version::V0x10,
            Some(version) => {
                next = field()?;
                let unknown = PasswordHashError("this version of argon2 is not supported");
                number(version).and_then(|version| Version::try_from(version).ok()).ok_or(unknown)?
            }
        };
        let cost = cost(next).ok_or(PasswordHashError("the parameters of the hash are not valid argon2 parameters"))?;
        if !cost.is_usable() {
            return Err(PasswordHashError("the parameters of the hash are out of bounds"));
        }
        // most accounts are read for something else than their password, so the bytes are decoded again when they are needed
        let length = |text: &str| STANDARD_NO_PAD.decode_slice(text, &mut [0; DECODED]).ok();
        let salt = length(field()?).filter(|salt| (8..=64).contains(salt));
        let output = length(field()?).filter(|output| (16..=64).contains(output));
        let (Some(salt), Some(output), None) = (salt, output, fields.next()) else {
            return Err(PasswordHashError("the hash needs a salt of 8 to 64 bytes and an output of 16 to 64"));
        };
        Ok(Self { text: text.into(), recipe: Recipe { algorithm, version, cost }, salt, output })
    }

    /// Writes a computed hash as text. The version of the recipe must be 19.
    pub(super) fn new(recipe: Recipe, salt: &[u8], output: &[u8]) -> Self {
        let Cost { memory_kib, iterations, parallelism } = recipe.cost;
        let (name, version) = (recipe.algorithm.as_str(), u32::from(recipe.version));
        let (salt_text, output_text) = (STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(output));
        let parameters = format!("m={memory_kib},t={iterations},p={parallelism}");
        let text = format!("${name}$v={version}${parameters}${salt_text}${output_text}");
        Self { text: text.into(), recipe, salt: salt.len(), output: output.len() }
    }

    /// Returns the hash as text, for storing it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the salt and the output.
    pub(super) fn bytes(&self) -> (Vec<u8>, Vec<u8>) {
        let mut fields = self.text.rsplit('$');
        // the defaults are never used, because the text was decoded before; argon2 refuses an empty salt
        let mut bytes = || fields.next().and_then(|text| STANDARD_NO_PAD.decode(text).ok()).unwrap_or_default();
        let output = bytes();
        (bytes(), output)
    }

    /// Returns whether a new hash at this cost would be stronger.
    pub(super) fn is_outdated(&self, cost: Cost) -> bool {
        let current = Recipe::new(cost);
        let other_kind = self.recipe.algorithm != current.algorithm || self.recipe.version != current.version;
        other_kind || self.recipe.cost.is_below(cost) || self.salt < 16 || self.output < 32
    }
}

fn algorithm(name: &str) -> Option<Algorithm> {
    [Algorithm::Argon2id, Algorithm::Argon2i, Algorithm::Argon2d].into_iter().find(|known| known.as_str() == name)
}

fn cost(text: &str) -> Option<Cost> {
    let mut parameters = text.split(',');
    let mut parameter = |name| number(parameters.next()?.strip_prefix(name)?);
    let cost = Cost { memory_kib: parameter("m=")?, iterations: parameter("t=")?, parallelism: parameter("p=")? };
    parameters.next().is_none().then_some(cost)
}

/// Reads a number without leading zeros.
fn number(text: &str) -> Option<u32> {
    let canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    text.parse().ok().filter(|_| canonical)
}

crate::util::fmt::opaque_debug!(PasswordHash);

crate::util::text::serde_text!(PasswordHash);

/// Why a text is not a usable [`PasswordHash`]. The error contains no part of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordHashError(&'static str);

crate::util::fmt::text_error!(PasswordHashError, |own| own.0);

/// The stored password of an account.
#[derive(Clone, Debug)]
pub(crate) enum StoredPassword {
    Argon2(PasswordHash),
    /// A hash that only the application can check.
    Foreign(ForeignHash),
}

/// The text of a hash that is not argon2. `Debug` shows nothing.
#[derive(Clone)]
pub(crate) struct ForeignHash(pub(crate) Box<str>);

crate::util::fmt::opaque_debug!(ForeignHash);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SALT: &str = "MDEyMzQ1Njc4OWFiY2RlZg";
    const OUTPUT: &str = "gy5SuVm5Z7Vw7keB9se9p87QGcomaseB/S2U1OhTsM0";

    fn with(kind: &str, parameters: &str) -> String {
        format!("${kind}${parameters}${SALT}${OUTPUT}")
    }

    #[test]
    fn excessive_parameters_are_refused() {
        for within in ["m=262144,t=16,p=8", "m=8,t=1,p=1", "m=64,t=1,p=8"] {
            assert!(PasswordHash::parse(with("argon2id$v=19", within)).is_ok(), "{within}");
        }
        for beyond in [
            "m=262145,t=1,p=1",
            "m=4294967295,t=1,p=1",
            "m=19456,t=17,p=1",
            "m=19456,t=4294967295,p=1",
            "m=19456,t=2,p=9",
            "m=19456,t=2,p=16777215",
            "m=7,t=1,p=1",
            "m=63,t=1,p=8",
            "m=19456,t=0,p=1",
            "m=19456,t=2,p=0",
        ] {
            let error = PasswordHash::parse(with("argon2id$v=19", beyond)).unwrap_err();
            assert_eq!(error.to_string(), "the parameters of the hash are out of bounds", "{beyond}");
        }
    }

    #[test]
    fn each_hash_has_one_text() {
        let good = "m=19456,t=2,p=1";
        for kind in ["argon2id$v=19", "argon2i$v=19", "argon2d$v=19", "argon2id$v=16", "argon2i"] {
            assert!(PasswordHash::parse(with(kind, good)).is_ok(), "{kind}");
        }
        for kind in ["argon2", "argon2ID$v=19", "argon2id$v=18", "argon2id$v=019", "argon2id$v=", "2b$10", "", "scrypt"]
        {
            assert!(PasswordHash::parse(with(kind, good)).is_err(), "{kind}");
        }
        for parameters in [
            "m=19456,t=2",
            "t=2,m=19456,p=1",
            "m=19456,t=2,p=1,data=AAAA",
            "m=+19456,t=2,p=1",
            "m=019456,t=2,p=1",
            "m=19456,t=2,p=",
            "m=99999999999,t=2,p=1",
            "m=19456, t=2,p=1",
            "",
        ] {
            assert!(PasswordHash::parse(with("argon2id$v=19", parameters)).is_err(), "{parameters}");
        }
        let whole = with("argon2id$v=19", good);
        let others = [
            format!("{whole}$"),
            format!("{whole}="),
            format!(" {whole}"),
            format!("{whole}\n"),
            whole.replace(SALT, "MDEyMzQ1Ng"),
            whole.replace(SALT, "MDEyMzQ1Njc4OWFiY2RlZh"),
            whole.replace(SALT, &"A".repeat(90)),
            whole.replace(OUTPUT, "gy5SuVm5Z7Vw7keB9se9"),
            whole.replace(OUTPUT, &"A".repeat(90)),
            whole.replace(OUTPUT, ""),
            format!("{whole}{}", "A".repeat(PasswordHash::MAX_LEN)),
        ];
        for other in others {
            assert!(PasswordHash::parse(&other).is_err(), "{other}");
        }
    }

    #[test]
    fn c052_neither_a_hash_nor_an_error_of_one_shows_anything() {
        let hash = PasswordHash::parse(with("argon2id$v=19", "m=19456,t=2,p=1")).unwrap();
        assert_eq!(format!("{hash:?}"), "PasswordHash(..)");
        let text = serde_json::to_string(&hash).unwrap();
        assert_eq!(serde_json::from_str::<PasswordHash>(&text).unwrap().as_str(), hash.as_str());
        let error = serde_json::from_str::<PasswordHash>("\"$argon2id$hunter2\"").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    proptest! {
        #[test]
        fn a_parsed_hash_writes_the_same_text(
            text in prop_oneof![
                any::<String>(),
                "\\$argon2(id|i|d)(\\$v=(16|19|20))?\\$m=[0-9]{1,6},t=[0-9]{1,2},p=[0-9]\\$[A-Za-z0-9+/]{10,90}\\$[A-Za-z0-9+/]{20,90}",
                "\\$argon2id\\$v=19\\$m=[0-9]{4,5},t=[1-9],p=[1-8]\\$[A-Za-z0-9+/]{21}[AQgw]\\$[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]",
            ],
        ) {
            let Ok(hash) = PasswordHash::parse(&text) else { return Ok(()) };
            prop_assert_eq!(hash.as_str(), &text);
            prop_assert!(hash.recipe.cost.is_usable());
            if hash.recipe.version == Version::V0x13 {
                let (salt, output) = hash.bytes();
                let again = PasswordHash::new(hash.recipe, &salt, &output);
                prop_assert_eq!(again.as_str(), &text);
            }
        }
    }
}
