//! The logo of the pages.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    auth::http::answer,
    http::body::Body,
    util::{encoding::escape_html, error::ConfigError, secret::SecretDigest},
};

/// The largest image.
const LARGEST: usize = 256 * 1024;
/// An SVG can have styles. Nothing in it runs, even if somebody opens it alone.
const POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; sandbox");
/// Its URL changes with its content.
const FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// An image with the name of what it shows.
#[derive(Clone, Debug)]
pub(crate) struct Logo {
    name: String,
    content_type: &'static str,
    image: Bytes,
    version: String,
}

impl Logo {
    /// Checks the image. Its first bytes show its type.
    pub(crate) fn parse(name: &str, image: Bytes) -> Result<Self, ConfigError> {
        let error = |reason| ConfigError::new("logo", name, reason);
        if name.trim().is_empty() {
            return Err(error("needs the name of what it shows, for people who cannot see it"));
        }
        if image.len() > LARGEST {
            return Err(error("must have at most 256 KiB"));
        }
        let content_type = type_of(&image).ok_or_else(|| error("must be an SVG, PNG, JPEG or WebP image"))?;
        let version =
            SecretDigest::of_secret(&image).as_bytes().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { name: name.to_owned(), content_type, image, version })
    }

    /// Returns the HTML of the image. `root` leads from the page to the folder of the login page.
    pub(crate) fn html(&self, root: &str) -> String {
        let name = escape_html(&self.name);
        format!(r#"<img class="logo" src="{root}logo?v={}" alt="{name}">"#, self.version)
    }

    /// Returns the image.
    pub(crate) fn response(&self) -> Response<Body> {
        let mut response = answer::response_with_body(StatusCode::OK, self.content_type, self.image.clone());
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, POLICY);
        response.headers_mut().insert(header::CACHE_CONTROL, FOREVER);
        response
    }
}

fn type_of(image: &[u8]) -> Option<&'static str> {
    let is_svg = |text: &str| {
        let text = text.trim_start_matches('\u{feff}').trim_start();
        text.starts_with("<svg") || text.starts_with("<?xml") && text.contains("<svg")
    };
    match image {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        text if std::str::from_utf8(text).is_ok_and(is_svg) => Some("image/svg+xml"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_is_that_of_the_content() {
        for (image, expected) in [
            (&b"\x89PNG\r\n\x1a\n\0"[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"RIFF\x01\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"<svg xmlns='http://www.w3.org/2000/svg'/>", Some("image/svg+xml")),
            ("\u{feff}<?xml version='1.0'?>\n<svg/>".as_bytes(), Some("image/svg+xml")),
            (b"<?xml version='1.0'?><html/>", None),
            (b"<!doctype html><svg/>", None),
            (b"", None),
        ] {
            assert_eq!(type_of(image), expected, "{image:?}");
        }
    }

    #[test]
    fn the_url_changes_with_the_content_and_names_are_escaped() {
        let logo = |name: &str, image: &'static [u8]| Logo::parse(name, Bytes::from_static(image));
        let (one, other) = (logo("A \"&\" B", b"<svg/>").unwrap(), logo("x", b"<svg> </svg>").unwrap());
        assert!(one.html("../").starts_with("<img class=\"logo\" src=\"../logo?v="));
        assert!(one.html("").ends_with("alt=\"A &quot;&amp;&quot; B\">"));
        assert_ne!(one.version, other.version);
        assert!(logo(" ", b"<svg/>").is_err() && logo("x", b"GIF89a").is_err());
        assert!(Logo::parse("x", [b"<svg/>".to_vec(), vec![b' '; LARGEST]].concat().into()).is_err());
    }
}
