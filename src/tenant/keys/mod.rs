//! API keys: in a live table, or looked up elsewhere.

mod api_keys;
mod cached_keys;
mod key_lookup;

pub use self::api_keys::ApiKeys;
pub use self::{
    cached_keys::{CachedKeys, CachedKeysBuilder},
    key_lookup::{KeyLookup, PresentedKey},
};
