//! A short description of the browser that sent a request.

use http::{HeaderMap, header};

/// The maximum length of a program's own name.
const LONGEST_NAME: usize = 32;

/// Browsers by a part of their `User-Agent`. Most browsers also name those below them.
const BROWSERS: [(&str, &str); 9] = [
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("FxiOS/", "Firefox"),
    ("Firefox/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Chromium/", "Chromium"),
    ("Safari/", "Safari"),
];
const SYSTEMS: [(&str, &str); 7] = [
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("Macintosh", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
];

/// Returns the browser and the system that the request names, such as `Firefox on Linux`. Of other programs it returns the
/// name. At most 34 characters.
pub(crate) fn describe_device(headers: &HeaderMap) -> Option<String> {
    describe_device_in_words(headers, |browser, system| format!("{browser} on {system}"))
}

/// Does the same with words for a browser and a system.
pub(crate) fn describe_device_in_words(headers: &HeaderMap, both: impl Fn(&str, &str) -> String) -> Option<String> {
    let agent = headers.get(header::USER_AGENT)?.to_str().ok()?;
    let known =
        |names: &[(&str, &'static str)]| names.iter().find(|(part, _)| agent.contains(part)).map(|(_, name)| *name);
    match (known(&BROWSERS), known(&SYSTEMS)) {
        (Some(browser), Some(system)) => Some(both(browser, system)),
        (None, Some(system)) => Some(system.to_owned()),
        (Some(browser), None) => Some(browser.to_owned()),
        (None, None) => {
            let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            let name: String = agent.chars().take_while(is_plain).take(LONGEST_NAME).collect();
            Some(name).filter(|name| !name.is_empty())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_shortly_and_never_repeats_markup() {
        for (agent, name) in [
            ("Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0", "Firefox on Linux"),
            (
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0 Safari/537.36 Edg/142.0",
                "Edge on Windows",
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1 (KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1",
                "Safari on iPhone",
            ),
            (
                "Mozilla/5.0 (Linux; Android 15; SM-S931B) AppleWebKit/537.36 SamsungBrowser/28.0 Chrome/130.0 Mobile Safari/537.36",
                "Samsung Internet on Android",
            ),
            (
                "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 Chrome/142.0 Safari/537.36",
                "Chrome on macOS",
            ),
            ("curl/8.11.0", "curl"),
            ("<script>alert(1)</script>", ""),
            ("", ""),
        ] {
            let headers = HeaderMap::from_iter([(header::USER_AGENT, agent.parse().unwrap())]);
            assert_eq!(describe_device(&headers).unwrap_or_default(), name, "{agent}");
        }
        assert_eq!(describe_device(&HeaderMap::new()), None);
        let long = HeaderMap::from_iter([(header::USER_AGENT, "x".repeat(8000).parse().unwrap())]);
        assert_eq!(describe_device(&long).unwrap().len(), LONGEST_NAME);
    }
}
