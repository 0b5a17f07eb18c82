//! The parameter `claims` (OpenID Connect Core §5.5): which claims a client requests by name, and what it requires of
//! `acr` and `sub`.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    auth::http::problem::Problem,
    util::json::{self, JsonError},
};

/// The maximum length of the parameter.
const LONGEST: usize = 4096;
/// The maximum number of claims that the service itself does not know.
const MOST_CUSTOM: usize = 32;
/// The maximum length of the name of such a claim.
const LONGEST_NAME: usize = 64;
/// The claims that the service fills in itself, by the scope that includes them (OpenID Connect Core §5.4).
pub(crate) const OF_SCOPES: &[(&str, &[&str])] = &[
    ("profile", &["name", "preferred_username"]),
    ("email", &["email", "email_verified"]),
    ("phone", &["phone_number", "phone_number_verified"]),
];

/// Returns the names of the claims that the service fills in itself.
pub(crate) fn known() -> impl Iterator<Item = &'static str> {
    OF_SCOPES.iter().flat_map(|(_, names)| names.iter().copied())
}

/// The content of the parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimsParameter {
    /// Claims requested by name in the id_token.
    pub(crate) id_token: Vec<String>,
    /// Claims requested by name at `/userinfo`.
    pub(crate) userinfo: Vec<String>,
    /// Requested levels, best first.
    pub(crate) acr: Vec<String>,
    /// Whether one of the levels must be reached.
    pub(crate) is_acr_essential: bool,
    /// The accepted users. Empty means any user.
    pub(crate) subjects: Vec<String>,
}

#[derive(Deserialize)]
struct Document {
    id_token: Option<Map<String, Value>>,
    userinfo: Option<Map<String, Value>>,
}

/// How one claim is requested.
#[derive(Default, Deserialize)]
struct ClaimRequest {
    #[serde(default)]
    essential: bool,
    value: Option<Value>,
    values: Option<Vec<Value>>,
}

const MALFORMED: &str = "claims is malformed";

impl ClaimsParameter {
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        if text.len() > LONGEST {
            return Err(Problem::invalid("claims is longer than 4 KiB"));
        }
        let Document { id_token, userinfo } = json::from_object(text.as_bytes()).map_err(|error| {
            Problem::invalid(match error {
                JsonError::Malformed => MALFORMED,
                JsonError::Duplicate => "claims contains a name twice",
            })
        })?;
        let (id_token, userinfo) = (id_token.unwrap_or_default(), userinfo.unwrap_or_default());
        let acr = claim(id_token.get("acr"))?;
        Ok(Self {
            id_token: names(&id_token)?,
            userinfo: names(&userinfo)?,
            is_acr_essential: acr.essential,
            acr: acr.texts()?,
            subjects: claim(id_token.get("sub"))?.texts()?,
        })
    }
}

/// Returns the requested names, those that the service knows first. The protocol's own claims are left out.
fn names(requested: &Map<String, Value>) -> Result<Vec<String>, Problem> {
    for how in requested.values() {
        claim(Some(how))?;
    }
    let is_custom = |name: &&String| {
        let is_plain = (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
        is_plain && !known().any(|known| known == *name) && !crate::user::Claims::is_reserved(name)
    };
    let custom = requested.keys().filter(is_custom).take(MOST_CUSTOM).cloned();
    Ok(known().filter(|name| requested.contains_key(*name)).map(str::to_owned).chain(custom).collect())
}

fn claim(how: Option<&Value>) -> Result<ClaimRequest, Problem> {
    match how {
        None | Some(Value::Null) => Ok(ClaimRequest::default()),
        Some(how @ Value::Object(_)) => ClaimRequest::deserialize(how).map_err(|_| Problem::invalid(MALFORMED)),
        Some(_) => Err(Problem::invalid(MALFORMED)),
    }
}

impl ClaimRequest {
    /// Returns the accepted values.
    fn texts(self) -> Result<Vec<String>, Problem> {
        let all = self.value.into_iter().chain(self.values.into_iter().flatten());
        all.map(|value| match value {
            Value::String(text) => Ok(text),
            _ => Err(Problem::invalid(MALFORMED)),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the detail of an error alone, which can be compared.
    fn parse(text: &str) -> Result<ClaimsParameter, &'static str> {
        ClaimsParameter::parse(text).map_err(|error| error.detail)
    }

    #[test]
    fn names_are_collected_unless_they_are_reserved_malformed_or_too_many() {
        let text = r#"{"id_token":{"email":null,"auth_time":{"essential":true},"x":null,"name":{"value":"Ada"}},
            "userinfo":{"phone_number":{"values":["+1"]},"https://example.com/y":{"z":[1]}},"other":7}"#;
        let claims = parse(text).unwrap();
        assert_eq!(claims.id_token, ["name", "email", "x"]);
        assert_eq!(claims.userinfo, ["phone_number", "https://example.com/y"]);
        assert_eq!((claims.acr.len(), claims.subjects.len()), (0, 0));
        let many: Vec<_> = (100..200).map(|n| format!(r#""c{n}":null"#)).collect();
        let claims = parse(&format!(r#"{{"userinfo":{{"sub":null,"a b":null,{}}}}}"#, many.join(","))).unwrap();
        assert_eq!((claims.userinfo.len(), &*claims.userinfo[0]), (MOST_CUSTOM, "c100"));
        for empty in ["{}", r#"{"id_token":null}"#, r#"{"userinfo":{}}"#] {
            assert_eq!(parse(empty), Ok(ClaimsParameter::default()), "{empty}");
        }
    }

    #[test]
    fn c025_only_an_essential_acr_is_required() {
        let acr = |how: &str| {
            parse(&format!(r#"{{"id_token":{{"acr":{how}}}}}"#)).map(|it| (it.acr.join(" "), it.is_acr_essential))
        };
        for (how, levels, is_essential) in [
            (r#"{"essential":true,"value":"a"}"#, "a", true),
            (r#"{"essential":true,"values":["a","b"]}"#, "a b", true),
            ("null", "", false),
            (r#"{"values":["a"]}"#, "a", false),
            (r#"{"essential":false,"value":"a"}"#, "a", false),
        ] {
            assert_eq!(acr(how), Ok((levels.to_owned(), is_essential)), "{how}");
        }
        for bad in ["1", "[]", r#""a""#, r#"{"essential":1}"#, r#"{"essential":true,"value":1}"#, r#"{"values":1}"#] {
            assert_eq!(acr(bad), Err(MALFORMED), "{bad}");
        }
        let subjects = |how: &str| parse(&format!(r#"{{"id_token":{{"sub":{how}}}}}"#)).unwrap().subjects;
        assert_eq!(subjects(r#"{"value":"u-ada"}"#), ["u-ada"]);
        assert_eq!(subjects(r#"{"values":["u-ada","u-grace"]}"#), ["u-ada", "u-grace"]);
    }

    #[test]
    fn invalid_and_oversized_claims_parameters_are_refused() {
        for bad in
            ["", "[]", "null", "{", "{} {}", r#"{"id_token":[]}"#, r#"{"userinfo":"x"}"#, r#"{"id_token":{"x":1}}"#]
        {
            assert_eq!(parse(bad), Err(MALFORMED), "{bad}");
        }
        for twice in [r#"{"id_token":{},"id_token":{}}"#, r#"{"id_token":{"x":{"a":1,"\u0061":1}}}"#] {
            assert_eq!(parse(twice), Err("claims contains a name twice"), "{twice}");
        }
        let padded = |len: usize| format!("{}{}", "{}", " ".repeat(len - 2));
        assert!(parse(&padded(LONGEST)).is_ok());
        assert_eq!(parse(&padded(LONGEST + 1)), Err("claims is longer than 4 KiB"));
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in r#"[\{\}\[\]",:acrsubvluen_tokid1 ]{0,80}|\PC{0,40}"#) {
            let _ = parse(&text);
        }
    }
}
