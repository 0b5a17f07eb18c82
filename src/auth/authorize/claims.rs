//! The parameter `claims` of OpenID Connect Core §5.5, as far as it is served: which claims a client wants by name, and
//! what it says of `acr` and `sub`.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    auth::{authorize::request::Wrong, http::problem::Code},
    user,
    util::json::{self, JsonError},
};

/// The longest text that is read.
const LONGEST: usize = 4096;
/// How many claims can be requested that do not come from the account. The rest is ignored.
const MOST_OTHERS: usize = 32;
/// Every claim that comes from the account, and the scope that stands for it (OpenID Connect Core §5.4).
pub(crate) const OF_SCOPES: &[(&str, &[&str])] = &[
    ("profile", &["name", "preferred_username"]),
    ("email", &["email", "email_verified"]),
    ("phone", &["phone_number", "phone_number_verified"]),
];

pub(crate) fn all() -> impl Iterator<Item = &'static str> {
    OF_SCOPES.iter().flat_map(|(_, names)| names.iter().copied())
}

/// What a client wants to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    /// By name, in the `id_token`.
    pub(crate) id_token: Vec<String>,
    /// By name, at userinfo.
    pub(crate) userinfo: Vec<String>,
    /// One of these levels must be reached; empty where that is left open.
    pub(crate) acr: Vec<String>,
    /// One of these it must be; anybody where there are none.
    pub(crate) subjects: Vec<String>,
}

#[derive(Deserialize)]
struct Written {
    id_token: Option<Map<String, Value>>,
    userinfo: Option<Map<String, Value>>,
}

/// How one claim is wanted.
#[derive(Default, Deserialize)]
struct Member {
    #[serde(default)]
    essential: bool,
    value: Option<Value>,
    values: Option<Vec<Value>>,
}

impl Claims {
    pub(crate) fn parse(text: &str) -> Result<Self, Wrong> {
        if text.len() > LONGEST {
            return Err(wrong("claims is longer than 4 KiB"));
        }
        let Written { id_token, userinfo } = json::from_object(text.as_bytes()).map_err(|error| match error {
            JsonError::Malformed => malformed(),
            JsonError::Duplicate => wrong("claims has a name twice"),
        })?;
        let (id_token, userinfo) = (id_token.unwrap_or_default(), userinfo.unwrap_or_default());
        let mut claims = Self { id_token: named(&id_token)?, userinfo: named(&userinfo)?, ..Self::default() };
        let acr = member(id_token.get("acr"))?;
        if acr.essential {
            claims.acr = acr.texts()?;
        }
        claims.subjects = member(id_token.get("sub"))?.texts()?;
        Ok(claims)
    }
}

/// The names of claims about the user, each of which is `null` or says how it is wanted. First those of the account, then
/// others, about which the [`Users`](crate::Users) decide.
fn named(wanted: &Map<String, Value>) -> Result<Vec<String>, Wrong> {
    for how in wanted.values() {
        member(Some(how))?;
    }
    let known = all().filter(|name| wanted.contains_key(*name)).map(str::to_owned);
    let is_other = |name: &&String| {
        let is_name = (1..=user::Claims::MAX_NAME).contains(&name.len()) && name.bytes().all(|it| it.is_ascii_graphic());
        is_name && !user::Claims::is_reserved(name)
    };
    let others = wanted.keys().filter(is_other).take(MOST_OTHERS).cloned();
    Ok(known.chain(others).collect())
}

fn member(written: Option<&Value>) -> Result<Member, Wrong> {
    match written {
        None | Some(Value::Null) => Ok(Member::default()),
        Some(how @ Value::Object(_)) => Member::deserialize(how).map_err(|_| malformed()),
        Some(_) => Err(malformed()),
    }
}

impl Member {
    /// The texts that it may have.
    fn texts(self) -> Result<Vec<String>, Wrong> {
        let all = self.value.into_iter().chain(self.values.into_iter().flatten());
        all.map(|value| if let Value::String(text) = value { Ok(text) } else { Err(malformed()) }).collect()
    }
}

const fn wrong(detail: &'static str) -> Wrong {
    Wrong { code: Code::InvalidRequest, detail }
}

const fn malformed() -> Wrong {
    wrong("claims is malformed")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_collected_unless_they_are_reserved_or_too_many() {
        let text = r#"{"id_token":{"email":null,"auth_time":{"essential":true},"x":null,"name":{"value":"Ada"}},
            "userinfo":{"phone_number":{"values":["+1"]},"https://example.com/y":{"z":[1]}},"other":7}"#;
        let claims = Claims::parse(text).unwrap();
        assert_eq!(claims.id_token, ["name", "email", "x"]);
        assert_eq!(claims.userinfo, ["phone_number", "https://example.com/y"]);
        assert_eq!((claims.acr.len(), claims.subjects.len()), (0, 0));
        let many: Vec<_> = (100..200).map(|n| format!(r#""c{n}":null"#)).collect();
        let claims = Claims::parse(&format!(r#"{{"userinfo":{{"sub":null,"a b":null,{}}}}}"#, many.join(","))).unwrap();
        assert_eq!((claims.userinfo.len(), &*claims.userinfo[0]), (MOST_OTHERS, "c100"));
        for empty in ["{}", r#"{"id_token":null}"#, r#"{"userinfo":{}}"#] {
            assert_eq!(Claims::parse(empty), Ok(Claims::default()), "{empty}");
        }
    }

    #[test]
    fn c025_an_essential_acr_is_a_demand_and_a_voluntary_one_is_none() {
        let acr = |how: &str| Claims::parse(&format!(r#"{{"id_token":{{"acr":{how}}}}}"#)).map(|claims| claims.acr);
        assert_eq!(acr(r#"{"essential":true,"value":"a"}"#).unwrap(), ["a"]);
        assert_eq!(acr(r#"{"essential":true,"values":["a","b"]}"#).unwrap(), ["a", "b"]);
        for open in ["null", r#"{"essential":true}"#, r#"{"values":["a"]}"#, r#"{"essential":false,"value":"a"}"#] {
            assert_eq!(acr(open), Ok(Vec::new()), "{open}");
        }
        for bad in ["1", "[]", r#""a""#, r#"{"essential":1}"#, r#"{"essential":true,"value":1}"#, r#"{"values":1}"#] {
            assert_eq!(acr(bad), Err(malformed()), "{bad}");
        }
        let subjects = |how: &str| Claims::parse(&format!(r#"{{"id_token":{{"sub":{how}}}}}"#)).unwrap().subjects;
        assert_eq!(subjects(r#"{"value":"u-ada"}"#), ["u-ada"]);
        assert_eq!(subjects(r#"{"values":["u-ada","u-grace"]}"#), ["u-ada", "u-grace"]);
    }

    #[test]
    fn what_is_no_wish_is_refused_within_bounds() {
        for bad in
            ["", "[]", "null", "{", "{} {}", r#"{"id_token":[]}"#, r#"{"userinfo":"x"}"#, r#"{"id_token":{"x":1}}"#]
        {
            assert_eq!(Claims::parse(bad), Err(malformed()), "{bad}");
        }
        for twice in [r#"{"id_token":{},"id_token":{}}"#, r#"{"id_token":{"x":{"a":1,"\u0061":1}}}"#] {
            assert_eq!(Claims::parse(twice), Err(wrong("claims has a name twice")), "{twice}");
        }
        let padded = |len: usize| format!("{}{}", "{}", " ".repeat(len - 2));
        assert!(Claims::parse(&padded(LONGEST)).is_ok());
        assert_eq!(Claims::parse(&padded(LONGEST + 1)), Err(wrong("claims is longer than 4 KiB")));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in r#"[\{\}\[\]",:acrsubvluen_tokid1 ]{0,80}|\PC{0,40}"#) {
            let _ = Claims::parse(&text);
        }
    }
}
