//! Resources: the APIs for which a client may request tokens (RFC 8707).

/// The only parameter that a request may repeat.
pub(crate) const RESOURCE: &str = "resource";

/// The maximum length of the URI of a resource, as of every audience.
const LONGEST: usize = 255;
/// The maximum number of resources of a request. All of them are audiences of one token.
const MOST: usize = 8;

/// The reason for refusing the resources of a request, as a text for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResourceError(pub(crate) &'static str);

/// Returns the URI of a resource in the form in which it is compared, if it is absolute and has no fragment.
///
/// An empty path and `/` are the same path (RFC 3986 §6.2.3), and clients write both. All else is compared byte by byte.
pub(crate) fn normal_resource(uri: &str) -> Option<&str> {
    let (scheme, rest) = uri.split_once(':')?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let allowed = |byte: u8| byte.is_ascii_graphic() && !br##""#<>\^`{|}"##.contains(&byte);
    if uri.len() > LONGEST || !is_scheme || rest.is_empty() || !rest.bytes().all(allowed) {
        return None;
    }
    let authority = rest.strip_prefix("//").and_then(|rest| rest.strip_suffix('/'));
    let is_root = authority.is_some_and(|authority| !authority.is_empty() && !authority.contains(['/', '?']));
    Some(if is_root { uri.strip_suffix('/').unwrap_or(uri) } else { uri })
}

/// Returns the resources that a request names, sorted and without duplicates. All of them must be allowed. Empty values count
/// as missing.
pub(crate) fn select_resources<'v>(
    named: impl Iterator<Item = &'v str>,
    allowed: &[&str],
) -> Result<Vec<String>, ResourceError> {
    let mut selected: Vec<String> = Vec::new();
    for uri in named.filter(|uri| !uri.is_empty()) {
        let normal =
            normal_resource(uri).ok_or(ResourceError("resource must be an absolute URI without a fragment"))?;
        let own = allowed.iter().find(|own| normal_resource(own) == Some(normal));
        let own = own.ok_or(ResourceError("resource is not allowed for this request"))?;
        if let Err(place) = selected.binary_search_by(|other| other.as_str().cmp(own)) {
            if selected.len() == MOST {
                return Err(ResourceError("at most 8 resources can be requested"));
            }
            selected.insert(place, (*own).to_owned());
        }
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn c135_a_resource_is_an_absolute_uri_without_a_fragment() {
        let longest = format!("https://a/{}", "x".repeat(245));
        for good in
            ["https://a", "https://a:1/b/", "https://a?b", "https://a/?b=%20", "urn:example:api", "a+b.c-1:x", &longest]
        {
            assert_eq!(normal_resource(good), Some(good));
        }
        assert_eq!(normal_resource("https://a/"), Some("https://a"));
        for bad in [
            "",
            "a",
            "/a",
            "//a",
            "https:",
            ":a",
            "1a:b",
            "é:a",
            "https://a#",
            "https://a#b",
            "https://a b",
            "https://é",
            "https://a\"",
            "https://a\n",
            &(longest.clone() + "x"),
        ] {
            assert_eq!(normal_resource(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn c135_the_normal_form_is_its_own_and_only_lacks_a_slash(text in "(https://|urn:|//|)[a-c/?:#é ]{0,9}") {
            if let Some(normal) = normal_resource(&text) {
                prop_assert_eq!(normal_resource(normal), Some(normal));
                prop_assert!(text == normal || text.strip_suffix('/') == Some(normal));
                let uri: http::Uri = normal.parse().unwrap_or_default();
                prop_assert!(!normal.contains('#') && (text == normal || uri.path() == "/"));
            }
        }
    }
}
