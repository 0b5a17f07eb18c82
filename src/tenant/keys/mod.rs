//! API keys: in a live table, or looked up elsewhere.

mod api_keys;
#[cfg(feature = "plans")]
mod cached_keys;
#[cfg(feature = "plans")]
mod key_lookup;

pub use self::api_keys::ApiKeys;
#[cfg(feature = "plans")]
pub use self::{
    cached_keys::{CachedKeys, CachedKeysBuilder},
    key_lookup::{KeyLookup, PresentedKey},
};
