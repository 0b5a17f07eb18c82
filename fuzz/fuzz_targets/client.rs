#![no_main]
//! Two lines: a registered and a requested redirect URI, or scope names. Nothing may panic. A match
//! must be identical except for the port of a loopback address, and a response must be a valid
//! header that starts with it.

use http::HeaderValue;
use libfuzzer_sys::fuzz_target;
use tollgate::{
    Client, Tenant,
    client::{RedirectUri, Scopes},
};

const PARAMS: [(&str, &str); 2] = [("code", "a"), ("state", "\r\n &=é")];

fuzz_target!(|text: &str| {
    let (registered, requested) = text.split_once('\n').unwrap_or((text, text));
    if let Ok(scopes) = Scopes::parse(requested) {
        assert_eq!(Scopes::parse(&scopes.to_string()), Ok(scopes));
    }
    let Ok(uri) = RedirectUri::parse(registered) else { return };
    assert!(uri.matches(registered));
    let client = Client::new("fuzz", Tenant::parse("fuzz").unwrap()).unwrap().redirect_uri(registered).unwrap();
    let Some(redirect) = client.redirect(requested) else { return };
    let answer = redirect.with_parameters(&PARAMS);
    let added = answer.strip_prefix(requested).expect("the response goes to the requested URI");
    assert!(added.contains("code=a&state=%0D%0A%20%26%3D%C3%A9"));
    assert!(HeaderValue::from_str(&answer).unwrap().to_str().is_ok());
    if registered != requested {
        let [one, two] = [registered, requested].map(|uri| uri.parse::<http::Uri>().expect("a URI"));
        assert!(one.scheme_str() == Some("http") && matches!(one.host(), Some("127.0.0.1" | "[::1]")));
        assert_eq!((one.scheme(), one.host(), one.path_and_query()), (two.scheme(), two.host(), two.path_and_query()));
        assert!(!two.authority().unwrap().as_str().contains('@'));
    }
});
