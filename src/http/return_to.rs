//! Checks of addresses: of those to return to after a sign-in or a sign-out, and of pages that settings name.

use http::Uri;

use crate::util::{error::ConfigError, form::hex};

/// The maximum number of bytes of a path that is returned to.
const MAX_LEN: usize = 2048;

/// How often percent sequences are decoded to see what is behind them. Text that is encoded more often is refused.
const MAX_ROUNDS: usize = 5;

/// Returns the text if it is a path of this site, with or without a query and a fragment, of at most 2,048 visible
/// ASCII characters: an address to return to after a sign-in.
///
/// Anyone can write a link with such a text in it, so nothing passes that a browser, a proxy or a router could take for
/// another site: the path begins with one `/`, and no part of it is `//` or a backslash, not even percent-encoded
/// several times. Control characters are refused everywhere, encoded ones too.
///
/// ```
/// use tollgate::session::local_path;
///
/// assert_eq!(local_path("/orders?page=2"), Some("/orders?page=2"));
/// assert_eq!(local_path("//evil.example"), None);
/// ```
pub fn local_path(text: &str) -> Option<&str> {
    if text.len() > MAX_LEN || !text.starts_with('/') {
        return None;
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return None;
    }
    let end_of_path = text.find(['?', '#']).unwrap_or(text.len());
    let mut path = text.get(..end_of_path)?.as_bytes().to_vec();
    let mut all = text.as_bytes().to_vec();
    for _ in 0..MAX_ROUNDS {
        let is_elsewhere = path.windows(2).any(|pair| pair == b"//") || path.contains(&b'\\');
        if is_elsewhere || all.iter().any(u8::is_ascii_control) {
            return None;
        }
        let decoded = decode_percent(&all);
        if decoded == all {
            return Some(text);
        }
        (path, all) = (decode_percent(&path), decoded);
    }
    None
}

/// Checks the address of a page in a setting: a path of this site, or an `https` URL.
pub(crate) fn check_page_url(setting: &'static str, url: &str) -> Result<(), ConfigError> {
    let error = |reason| ConfigError::new(setting, url, reason);
    let is_https = url.starts_with("https://") && url.parse::<Uri>().is_ok();
    if local_path(url).is_none() && !is_https {
        return Err(error("must be a path of this site, or begin with https://"));
    }
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains(['#', '\\']) {
        return Err(error("must be visible ASCII without a fragment"));
    }
    Ok(())
}

/// Returns the path of a [`local_path`] as browsers and servers may understand it: without dot segments, decoded, and
/// without the query, the fragment and a slash at the end. Browsers remove dot segments before servers decode the path,
/// and some servers only after it.
pub(crate) fn resolved_paths(local: &str) -> [String; 2] {
    let path = local.split(['?', '#']).next().unwrap_or_default();
    let is = |segment: &str, dots| String::from_utf8_lossy(&decode_percent(segment.as_bytes())) == dots;
    let as_browser = without_dots(path, |segment| (is(segment, "."), is(segment, "..")));
    [path, &as_browser].map(|path| {
        let mut path = path.as_bytes().to_vec();
        for _ in 0..MAX_ROUNDS {
            path = decode_percent(&path);
        }
        without_dots(&String::from_utf8_lossy(&path), |segment| (segment == ".", segment == ".."))
    })
}

fn without_dots(path: &str, is_here_or_up: impl Fn(&str) -> (bool, bool)) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        match is_here_or_up(segment) {
            (true, _) => {}
            (_, true) => drop(segments.pop()),
            _ => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

/// Decodes each percent sequence once. Leaves broken sequences as they are.
fn decode_percent(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let byte = match rest {
            [b'%', high, low, ..] => hex(*high).ok().zip(hex(*low).ok()).map(|(high, low)| high * 16 + low),
            _ => None,
        };
        rest = match byte {
            Some(_) => rest.get(3..).unwrap_or_default(),
            None => tail,
        };
        decoded.push(byte.unwrap_or(*first));
    }
    decoded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn c122_only_paths_of_this_site_are_returned_to() {
        for good in [
            "/",
            "/a",
            "/a/b.html?c=d&e=%2F%2Fx&u=https://other.example//a#part",
            "/@ada",
            "/a@b:c",
            "/caf%C3%A9",
            "/a/../b",
            "/100%25",
            "/%",
            "/?//",
        ] {
            assert_eq!(local_path(good), Some(good));
        }
        let long = format!("/{}", "a".repeat(MAX_LEN));
        assert!(local_path(&long[..MAX_LEN]).is_some());
        for bad in [
            "",
            "a",
            "?a",
            "#a",
            "//evil.example",
            "///evil.example",
            "/\\evil.example",
            "\\/evil.example",
            "/a\\b",
            "/a//b",
            "/.//evil.example",
            "/%2Fevil.example",
            "/%2f/evil.example",
            "/%5Cevil.example",
            "/%5cevil.example",
            "/%252Fevil.example",
            "/%25255Cevil.example",
            "/%2525252525252Fevil.example",
            "%2Fevil.example",
            "%2F%2Fevil.example",
            "https://evil.example",
            "https:/evil.example",
            "https://user@site.example/",
            "user:password@evil.example",
            "@evil.example",
            "javascript:alert(1)",
            "JavaScript:alert(1)",
            "data:text/html,x",
            "mailto:a@evil.example",
            " /a",
            "/a b",
            "\t/a",
            "/\t/evil.example",
            "/\n/evil.example",
            "/a\r\nset-cookie:x",
            "/%09/evil.example",
            "/%0d%0aset-cookie:x",
            "/a?b=%0D%0A",
            "/a?b=%250A",
            "/a%00",
            "/a%7F",
            "/\u{7f}",
            "/\u{85}",
            "/é",
            "/\u{2215}evil.example",
            &long,
        ] {
            assert_eq!(local_path(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn c122_a_path_is_compared_as_servers_understand_it() {
        for text in [
            "/sign-in",
            "/sign-in/",
            "/sign-in?a=/b",
            "/sign-in#a",
            "/./sign-in",
            "/a/../sign-in",
            "/a/b/../../../sign-in",
            "/%73ign-in",
            "/sign%252Din",
            "/a/%2e%2E/sign-in",
            // browsers take `a%2fb` as one segment, some servers as two
            "/a%2fb/../sign-in",
            "/a%2fb/../../sign-in",
            "/a%2fb/.%2e/%2e./sign-in",
        ] {
            assert!(local_path(text).is_some(), "{text}");
            assert!(resolved_paths(text).contains(&"/sign-in".to_owned()), "{text}");
        }
        assert_eq!(resolved_paths("/"), ["/", "/"]);
        assert_eq!(resolved_paths("/a/sign-in"), ["/a/sign-in", "/a/sign-in"]);
    }

    /// Reads an address as browsers do: without tabs and line ends, and `\` as `/`.
    fn as_a_browser_reads(text: &str) -> String {
        text.chars().filter(|c| !matches!(c, '\t' | '\n' | '\r')).collect::<String>().trim().replace('\\', "/")
    }

    proptest! {
        #[test]
        fn c122_accepted_paths_stay_on_this_site_even_if_decoded_repeatedly(
            text in prop_oneof![
                "[/\\\\%2Ff5Cc0dDaA9.:@?#a-z \t\r\n]{0,24}",
                "/(%(25){0,3}(2F|2f|5C|5c|0A|0d|09|00)|[/\\\\.a?#@:]){0,6}",
                any::<String>(),
            ],
        ) {
            if let Some(path) = local_path(&text) {
                prop_assert_eq!(path, &text);
                let mut decoded = text.clone();
                for _ in 0..8 {
                    let read = as_a_browser_reads(&decoded);
                    prop_assert!(read.starts_with('/') && !read.starts_with("//"), "{}", decoded);
                    prop_assert!(!decoded.chars().any(|c| c.is_ascii_control()), "{}", decoded);
                    decoded = percent_encoding::percent_decode_str(&decoded).decode_utf8_lossy().into_owned();
                }
            }
        }
    }
}
