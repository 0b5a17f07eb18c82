use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// A place where claims appear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ClaimTarget {
    /// The `id_token`, which the client reads.
    IdToken,
    /// The access token, which APIs read.
    AccessToken,
    /// The answer of `/userinfo`.
    UserInfo,
}

/// The claims that a client asks for: an argument of [`Users::claims`](super::Users::claims).
#[derive(Clone, Debug)]
pub struct ClaimsRequest {
    client_id: String,
    scopes: BTreeSet<String>,
    has_all_scopes: bool,
    names: BTreeSet<(ClaimTarget, String)>,
}

impl ClaimsRequest {
    /// Creates a request of a client, without scopes or names. The login service does this itself; use it to test your
    /// own [`Users`](super::Users).
    pub fn new(client_id: impl Into<String>) -> Self {
        Self { client_id: client_id.into(), scopes: BTreeSet::new(), has_all_scopes: false, names: BTreeSet::new() }
    }

    /// Creates the request of the site itself, for [`Session::claim`](crate::Session::claim): it has every scope.
    pub(crate) fn of_this_site(client_id: impl Into<String>) -> Self {
        Self { has_all_scopes: true, ..Self::new(client_id) }
    }

    /// Adds granted scopes.
    pub fn with_scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.scopes.extend(scopes.into_iter().map(Into::into));
        self
    }

    /// Adds names from the parameter `claims`.
    pub fn with_names<S: Into<String>>(mut self, target: ClaimTarget, names: impl IntoIterator<Item = S>) -> Self {
        self.names.extend(names.into_iter().map(|name| (target, name.into())));
        self
    }

    /// Returns the id of the client.
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Returns whether this scope was granted. Always true for [`Session::claim`](crate::Session::claim), because those
    /// claims stay on the site.
    pub fn has_scope(&self, scope: &str) -> bool {
        self.has_all_scopes || self.scopes.contains(scope)
    }

    /// Returns the names that the client lists in the parameter `claims` for `target`. Clients can only list names for
    /// the `id_token` and `/userinfo`.
    pub fn names(&self, target: ClaimTarget) -> impl Iterator<Item = &str> {
        self.names.iter().filter(move |(wanted, _)| *wanted == target).map(|(_, name)| name.as_str())
    }
}

/// Extra claims about a user, such as roles, a locale or a picture. At most 4 KiB in all.
///
/// A claim appears in the `id_token`, in the access token and at `/userinfo`, unless it is inserted for some of them
/// only.
///
/// ```
/// use tollgate::user::{ClaimTarget, Claims, ClaimsRequest};
///
/// # fn main() -> Result<(), tollgate::user::ClaimError> {
/// let request = ClaimsRequest::new("web").with_scopes(["openid", "roles"]);
/// let mut claims = Claims::new();
/// if request.has_scope("roles") {
///     claims.insert("roles", ["editor", "admin"])?;
/// }
/// claims.insert_for([ClaimTarget::UserInfo], "picture", "https://example.com/ada.png")?;
///
/// let roles: Option<Vec<String>> = claims.get(ClaimTarget::AccessToken, "roles");
/// assert_eq!(roles.as_deref(), Some(&["editor".to_owned(), "admin".to_owned()][..]));
/// assert_eq!(claims.get::<String>(ClaimTarget::AccessToken, "picture"), None);
/// assert!(claims.insert("sub", "u-1").is_err());
/// # Ok(()) }
/// ```
///
/// # Reserved names
///
/// The names that tokens use themselves can't be set, such as `iss`, `sub`, `aud`, `exp`, `acr`, `sid`, `tenant`,
/// `scope` and `cnf`. The same holds for the claims that come from the [`Account`](super::Account): `name`,
/// `preferred_username`, `email`, `email_verified`, `phone_number` and `phone_number_verified`.
///
/// `Debug` shows the names only.
#[derive(Clone, Default)]
pub struct Claims(BTreeMap<String, Claim>);

#[derive(Clone)]
struct Claim {
    value: Value,
    targets: BTreeSet<ClaimTarget>,
    /// The size of the member in JSON, with its comma.
    bytes: usize,
}

const RESERVED: &[&str] = &[
    "_claim_names",
    "_claim_sources",
    "acr",
    "act",
    "active",
    "amr",
    "at_hash",
    "aud",
    "auth_time",
    "azp",
    "c_hash",
    "client_id",
    "cnf",
    "email",
    "email_verified",
    "exp",
    "gen",
    "gty",
    "iat",
    "idtyp",
    "iss",
    "jti",
    "may_act",
    "name",
    "nbf",
    "nonce",
    "phone_number",
    "phone_number_verified",
    "preferred_username",
    "s_hash",
    "scope",
    "sid",
    "sub",
    "sub_jwk",
    "tenant",
    "token_type",
    "typ",
    "username",
];

impl Claims {
    /// The maximum size of all claims as a JSON object, in bytes.
    pub const MAX_BYTES: usize = 4096;
    /// The maximum length of a name, in bytes.
    pub const MAX_NAME: usize = 256;

    /// Creates an empty set of claims.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a claim for the `id_token`, the access token and `/userinfo`. A value that serializes to `null` removes it.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is reserved or malformed, if the value can't be written as JSON, or if the claims
    /// become too large. The claims then stay unchanged.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Serialize) -> Result<(), ClaimError> {
        self.insert_for([ClaimTarget::IdToken, ClaimTarget::AccessToken, ClaimTarget::UserInfo], name, value)
    }

    /// Sets a claim for some places only.
    ///
    /// # Errors
    ///
    /// Fails like [`insert`](Self::insert).
    pub fn insert_for(
        &mut self,
        targets: impl IntoIterator<Item = ClaimTarget>,
        name: impl Into<String>,
        value: impl Serialize,
    ) -> Result<(), ClaimError> {
        let name = name.into();
        if Self::is_reserved(&name) {
            return Err(ClaimError::Reserved);
        }
        if !(1..=Self::MAX_NAME).contains(&name.len()) || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ClaimError::Name);
        }
        let value = serde_json::to_value(value).map_err(|_| ClaimError::Value)?;
        if value.is_null() {
            self.0.remove(&name);
            return Ok(());
        }
        let written = |value: &Value| serde_json::to_vec(value).map_err(|_| ClaimError::Value);
        let bytes = written(&Value::from(name.as_str()))?.len() + written(&value)?.len() + ":,".len();
        let others = self.0.iter().filter(|(other, _)| **other != name).map(|(_, claim)| claim.bytes);
        // the braces take two bytes, and one comma is not written
        if others.sum::<usize>().saturating_add(bytes) > Self::MAX_BYTES - 1 {
            return Err(ClaimError::TooLarge);
        }
        self.0.insert(name, Claim { value, targets: targets.into_iter().collect(), bytes });
        Ok(())
    }

    /// Returns a claim as it appears at `target`. Returns `None` if it does not appear there, or is of another type.
    pub fn get<T: DeserializeOwned>(&self, target: ClaimTarget, name: &str) -> Option<T> {
        let (_, value) = self.iter(target).find(|(own, _)| *own == name)?;
        serde_json::from_value(value.clone()).ok()
    }

    /// Returns whether the login service sets this claim itself.
    pub(crate) fn is_reserved(name: &str) -> bool {
        RESERVED.contains(&name)
    }

    /// Returns the claims that appear anywhere.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &Value)> {
        let appears = self.0.iter().filter(|(_, claim)| !claim.targets.is_empty());
        appears.map(|(name, claim)| (name.as_str(), &claim.value))
    }

    /// Returns the claims that appear at `target`.
    pub(crate) fn iter(&self, target: ClaimTarget) -> impl Iterator<Item = (&str, &Value)> {
        let appears = self.0.iter().filter(move |(_, claim)| claim.targets.contains(&target));
        appears.map(|(name, claim)| (name.as_str(), &claim.value))
    }
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The reason why a claim can't be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// The login service sets this claim itself.
    Reserved,
    /// The name is not 1 to 256 visible ASCII characters.
    Name,
    /// The value can't be written as JSON.
    Value,
    /// The claims would take more than 4 KiB.
    TooLarge,
}

crate::util::fmt::text_error!(ClaimError, |own| match own {
    Self::Reserved => "the login service sets this claim itself",
    Self::Name => "the name of a claim must have 1 to 256 visible ASCII characters",
    Self::Value => "the value of the claim can't be written as JSON",
    Self::TooLarge => "the claims take more than 4096 bytes",
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, json};

    use super::*;

    const EVERYWHERE: [ClaimTarget; 3] = [ClaimTarget::IdToken, ClaimTarget::AccessToken, ClaimTarget::UserInfo];

    fn document(claims: &Claims, target: ClaimTarget) -> Map<String, Value> {
        claims.iter(target).map(|(name, value)| (name.to_owned(), value.clone())).collect()
    }

    #[test]
    fn a_claim_appears_where_it_is_inserted_for() {
        let mut claims = Claims::new();
        claims.insert("roles", ["admin"]).unwrap();
        claims.insert_for([ClaimTarget::UserInfo], "picture", "https://example.com/1").unwrap();
        claims.insert_for([], "hidden", 1).unwrap();
        let roles = json!({ "roles": ["admin"] }).as_object().unwrap().clone();
        assert_eq!(document(&claims, ClaimTarget::IdToken), roles);
        assert_eq!(document(&claims, ClaimTarget::AccessToken), roles);
        assert_eq!(document(&claims, ClaimTarget::UserInfo).len(), 2);
        assert_eq!(claims.get::<u8>(ClaimTarget::UserInfo, "roles"), None);
        claims.insert("roles", None::<u8>).unwrap();
        assert!(document(&claims, ClaimTarget::IdToken).is_empty());
        assert_eq!(format!("{claims:?}"), r#"{"hidden", "picture"}"#);
    }

    #[test]
    fn reserved_and_malformed_names_are_refused() {
        let mut claims = Claims::new();
        let tokens = "iss sub aud exp nbf iat jti nonce acr amr auth_time azp at_hash c_hash sid tenant client_id scope \
                      cnf act typ gen name preferred_username email email_verified phone_number phone_number_verified";
        for name in tokens.split_whitespace() {
            assert_eq!(claims.insert(name, 1), Err(ClaimError::Reserved), "{name}");
        }
        for name in ["", "a b", "a\n", "é", &"x".repeat(257)] {
            assert_eq!(claims.insert(name, 1), Err(ClaimError::Name), "{name:?}");
        }
        for name in ["roles", "https://example.com/roles", "SUB", &"x".repeat(256)] {
            assert_eq!(claims.insert(name, 1), Ok(()), "{name}");
        }
        let no_json = std::collections::HashMap::from([([1, 2], 3)]);
        assert_eq!(claims.insert("map", no_json), Err(ClaimError::Value));
    }

    #[test]
    fn a_request_knows_its_scopes_and_names() {
        let request = ClaimsRequest::new("web")
            .with_scopes(["openid", "roles"])
            .with_names(ClaimTarget::IdToken, ["b", "a"])
            .with_names(ClaimTarget::UserInfo, ["c"]);
        assert!(request.has_scope("roles") && !request.has_scope("role"));
        assert_eq!(request.client_id(), "web");
        assert_eq!(request.names(ClaimTarget::IdToken).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(request.names(ClaimTarget::UserInfo).collect::<Vec<_>>(), ["c"]);
        assert_eq!(request.names(ClaimTarget::AccessToken).count(), 0);
    }

    #[test]
    fn claims_of_4_kib_are_accepted_and_one_byte_more_is_not() {
        let mut claims = Claims::new();
        let overhead = r#"{"a":"","b":1}"#.len();
        claims.insert("b", 1).unwrap();
        claims.insert("a", "x".repeat(Claims::MAX_BYTES - overhead)).unwrap();
        assert_eq!(serde_json::to_vec(&document(&claims, ClaimTarget::IdToken)).unwrap().len(), Claims::MAX_BYTES);
        assert_eq!(claims.insert("b", 10), Err(ClaimError::TooLarge));
        assert_eq!(claims.insert_for([], "c", 1), Err(ClaimError::TooLarge));
        // a smaller value in its place is fine, and what was refused changed nothing
        assert_eq!(claims.insert("b", 2), Ok(()));
        assert_eq!(claims.get(ClaimTarget::IdToken, "b"), Some(2));
    }

    proptest! {
        #[test]
        fn the_size_is_that_of_the_json(members in prop::collection::vec(("[!-~]{1,300}", any::<String>()), 0..60)) {
            let mut claims = Claims::new();
            for (name, value) in members {
                let _ = claims.insert(name, value);
                let written = serde_json::to_vec(&document(&claims, EVERYWHERE[0])).unwrap().len();
                let counted: usize = claims.0.values().map(|claim| claim.bytes).sum();
                prop_assert!(written <= Claims::MAX_BYTES);
                prop_assert!(claims.0.is_empty() || written == counted + 1);
            }
        }
    }
}
