//! URLs that requests may be sent to.

use std::net::IpAddr;

use http::Uri;

use crate::util::error::ConfigError;

/// Parses an absolute URL that is safe to use: `https`, or `http` on a loopback address.
pub(crate) fn parse_url(setting: &'static str, text: &str) -> Result<Uri, ConfigError> {
    // errors don't show the URL, because its path or user info may contain a secret
    let wrong = |reason| ConfigError::new(setting, "the given URL", reason);
    let url: Uri = text.parse().map_err(|_| wrong("must be an absolute https URL"))?;
    let (Some(scheme), Some(authority)) = (url.scheme_str(), url.authority()) else {
        return Err(wrong("must be an absolute https URL"));
    };
    if authority.as_str().contains('@') {
        return Err(wrong("must not contain a user name or password"));
    }
    match scheme {
        "https" => Ok(url),
        "http" if is_loopback(authority.host()) => Ok(url),
        _ => Err(wrong("must be https, because plain http can be read and modified on the network")),
    }
}

fn is_loopback(host: &str) -> bool {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || literal.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_and_loopback_urls_are_accepted() {
        for good in [
            "https://gateway.example/otp?x=1",
            "HTTPS://gateway.example",
            "http://127.0.0.1:8080/otp",
            "http://127.9.9.9/",
            "http://[::1]:80/",
            "http://localhost/otp",
        ] {
            assert!(parse_url("URL", good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "/otp",
            "gateway.example:443",
            "http://gateway.example/",
            "http://10.0.0.1/",
            "http://127.0.0.1.example/",
            "http://localhost.example/",
            "ftp://gateway.example/",
            "https://user:password@gateway.example/",
            "https://gateway.example/a b",
            "file:///etc/passwd",
        ] {
            let error = parse_url("URL", bad).unwrap_err().to_string();
            assert!(!error.contains("password@"), "{error}");
        }
    }
}
