//! Comparison of URLs after syntax-based and scheme-based normalization (RFC 3986 §6.2.2, §6.2.3),
//! without query and fragment.

use std::borrow::Cow;

use crate::http::origin;

/// Returns whether both are valid and the same URL.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    // fast path: identical to the form that we would write
    normal(one).is_some_and(|one| normal(other).is_some_and(|other| one == other))
}

/// Returns the normalized origin and path. Returns `None` for dot segments, which clients resolve
/// before sending, for user names, and for other schemes.
fn normal(url: &str) -> Option<(String, Cow<'_, str>)> {
    let url = url.split(['?', '#']).next()?;
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (scheme, authority) = (scheme.to_ascii_lowercase(), authority.to_ascii_lowercase());
    let default_port = match scheme.as_str() {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    let (host, port) = origin::host_and_port(&authority)?;
    let origin = format!("{scheme}://{host}:{}", port.unwrap_or(default_port));
    let path = normal_path(if path.is_empty() { "/" } else { path })?;
    let dots = path.split('/').any(|segment| matches!(segment, "." | ".."));
    (!dots).then_some((origin, path))
}

/// Writes escapes in upper case, and decodes unnecessary ones.
fn normal_path(path: &str) -> Option<Cow<'_, str>> {
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    if !path.contains('%') {
        return Some(Cow::Borrowed(path));
    }
    let mut pieces = path.split('%');
    let mut normal = pieces.next()?.to_owned();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        // `from_str_radix` would accept a sign
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let byte = u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            normal.push(char::from(byte));
        } else {
            normal.push('%');
            normal.push_str(&digits.to_ascii_uppercase());
        }
        normal.push_str(rest);
    }
    Some(Cow::Owned(normal))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const URL: &str = "https://api.example/a/b~c";

    #[test]
    fn c100_equivalent_urls_match() {
        for same in [
            URL,
            "HTTPS://API.Example/a/b~c",
            "https://api.example:443/a/b~c",
            "https://api.example/a/b~c?x=1",
            "https://api.example/a/b~c?x=/../?y",
            "https://api.example/a/b~c#d",
            "https://api.example/%61/b%7Ec",
            "https://api.example/a/b%7ec?",
        ] {
            assert!(is_same(same, URL) && is_same(URL, same), "{same}");
        }
        assert!(is_same("https://api.example", "https://api.example/"));
        assert!(is_same("https://api.example?x", "https://api.example:443/#"));
        assert!(is_same("http://127.0.0.1:80/", "http://127.0.0.1"));
        assert!(is_same("https://[2001:DB8::1]/%c3%a9", "https://[2001:db8::1]/%C3%A9"));
    }

    #[test]
    fn c100_different_urls_do_not_match() {
        for other in [
            "",
            "/a/b~c",
            "//api.example/a/b~c",
            "api.example/a/b~c",
            "http://api.example/a/b~c",
            "http://api.example:443/a/b~c",
            "ftp://api.example/a/b~c",
            "https://api.example:8443/a/b~c",
            "https://api.example:/a/b~c",
            "https://api.example:0443/a/b~c",
            "https://api.example./a/b~c",
            "https://api.example.evil/a/b~c",
            "https://evil@api.example/a/b~c",
            "https://api.example\\@evil/a/b~c",
            "https://api.example/A/b~c",
            "https://api.example/a/b~c/",
            "https://api.example/a//b~c",
            "https://api.example//a/b~c",
            "https://api.example/a%2Fb~c",
            "https://api.example/a/x/../b~c",
            "https://api.example/a/./b~c",
            "https://api.example/a/%2e/b~c",
            "https://api.example/a/b~c%3Fx",
            "https://api.example/a/b~c%",
            "https://api.example/a/b~c%0",
            "https://api.example/%+61/b~c",
            " https://api.example/a/b~c",
            "https://api.example/a/b~c ",
            "https://api.example/a/b~c\n",
            "https://api.example/a/b~cé",
        ] {
            assert!(!is_same(other, URL) && !is_same(URL, other), "{other}");
        }
        // even if both are written the same
        for none in [
            "",
            "https://api.example/a/../b",
            "https://a@api.example/",
            "https://api.example/%zz",
            "https://api.example/%+6",
        ] {
            assert!(!is_same(none, none), "{none}");
        }
    }

    proptest! {
        #[test]
        fn normalized_urls_are_unchanged(text in "(https|http|HTTP)://[a-zA-Z0-9.:\\[\\]@-]{0,12}[/a.%2eEfF~?#]{0,20}") {
            if let Some((origin, path)) = normal(&text) {
                let again = format!("{origin}{path}");
                prop_assert_eq!(normal(&again), Some((origin, path)));
                prop_assert!(is_same(&again, &text));
                // another parser splits it in the same way
                let uri: http::Uri = again.parse().unwrap();
                prop_assert_eq!(format!("{}://{}", uri.scheme_str().unwrap(), uri.authority().unwrap()) + uri.path(), again);
            }
        }

        #[test]
        fn nothing_panics(one in any::<String>(), other in "(https://a)?[%/a-f0-9é]{0,20}") {
            let _ = (is_same(&one, &other), is_same(&other, &one));
        }
    }
}
