//! How the bundled server reads clients and policies from its file.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

#[path = "../examples/server/client_secrets.rs"]
mod client_secrets;
#[path = "../examples/server/clients.rs"]
mod clients;
#[path = "../examples/server/policies.rs"]
mod policies;
#[path = "../examples/server/secret_text.rs"]
#[allow(dead_code, reason = "other settings need the rest")]
mod secret_text;

use std::path::Path;

use tollgate::{
    Client, Policies, Tenant,
    bearer::Algorithm,
    client::ClientSecretDigest,
    policy::{Method, Policy},
};

fn acme() -> Tenant {
    Tenant::parse("acme").unwrap()
}

fn read_client(text: &str) -> Result<Client, String> {
    let written: clients::WrittenClient = toml::from_str(text).map_err(|error| error.to_string())?;
    written.read(Path::new("tests")).map_err(|error| error.to_string())
}

fn read_policies(text: &str) -> Result<Policies, String> {
    toml::from_str::<policies::WrittenPolicies>(text).map_err(|error| error.to_string())?.read()
}

const GOOD: &str = r#"
    id = "demo-web"
    tenant = "acme"
    redirect_uris = ["http://127.0.0.1:8080/demo/callback"]
    scopes = ["openid", "profile", "email"]
    origins = ["https://app.example"]
    policy = { steps = 2 }
"#;

fn expected() -> Client {
    let client = Client::new("demo-web", acme()).unwrap();
    let client = client.redirect_uri("http://127.0.0.1:8080/demo/callback").unwrap();
    let client = client.scopes("openid profile email").unwrap().origin("https://app.example").unwrap();
    client.policy(Policy::any(2).unwrap())
}

#[test]
fn clients_are_read() {
    assert_eq!(read_client(GOOD), Ok(expected()));
    let more = "name = \"Demo\"\nsingle_sign_on = true\nrequire_pushed_requests = true\n\
                insecure_localhost = [\"http://localhost/cb\"]";
    let more = read_client(&format!("{GOOD}{more}")).unwrap();
    assert_eq!(more.display_name(), "Demo");
    assert!(more.needs_pushed_requests() && more.has_single_sign_on() && !expected().has_single_sign_on());
    assert!(more.redirect("http://localhost/cb").is_some());
}

#[test]
fn token_settings_are_read() {
    let with = |more: &str| read_client(&format!("{GOOD}{more}"));
    let written = with(
        r#"
        audience = "https://api.example"
        id_token_algorithm = "RS256"
        refresh_tokens = false
        id_token_on_refresh = false
        require_dpop = true
        recheck_policy = true
        after_logout = ["https://app.example/bye", "https://app.example/"]
        insecure_localhost_after_logout = ["http://localhost:3000/bye"]
        "#,
    );
    let client = expected().audience("https://api.example").unwrap().id_token_algorithm(Algorithm::Rs256);
    let client = client.without_refresh_tokens().without_id_token_on_refresh().require_dpop().recheck_policy();
    let client = client.after_logout("https://app.example/bye").unwrap().after_logout("https://app.example/").unwrap();
    assert_eq!(written, client.insecure_localhost_after_logout("http://localhost:3000/bye").map_err(|e| e.to_string()));
    let defaults = "refresh_tokens = true\nid_token_on_refresh = true\nrequire_dpop = false\nafter_logout = []";
    assert_eq!(with(defaults), Ok(expected()));

    let message = "id_token_algorithm: \"none\": unknown algorithm: use ES256, EdDSA or RS256";
    assert_eq!(with("id_token_algorithm = \"none\"").unwrap_err(), message);
    for bad in [
        "audience = \"\"",
        "after_logout = [\"http://app.example/\"]",
        "after_logout = [\"http://localhost/\"]",
        "insecure_localhost_after_logout = [\"http://app.example/\"]",
        "after_logout = [\"https://app.example/\", \"https://app.example/\"]",
        "refresh_tokens = \"no\"",
    ] {
        assert!(with(bad).is_err(), "{bad}");
    }
}

#[test]
fn a15_machine_clients_are_read() {
    let key = r#"{ kty = "OKP", crv = "Ed25519", x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" }"#;
    let text =
        |jwks: &str| format!("id = \"billing\"\ntenant = \"acme\"\nscopes = [\"invoices:write\"]\njwks = {jwks}");
    let good = text(&format!("{{ keys = [{key}] }}"));
    let jwks = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    let expected = Client::machine("billing", acme(), jwks).unwrap();
    assert_eq!(read_client(&good), Ok(expected.scopes("invoices:write").unwrap()));
    for bad in [text("{ keys = [] }"), text("1"), text("\"keys\"")] {
        assert!(read_client(&bad).is_err(), "{bad}");
    }
}

#[test]
fn c136_secrets_of_clients_are_read() {
    let with = |more: &str| read_client(&format!("{GOOD}{more}"));
    let ((secret, first), (_, second)) = (ClientSecretDigest::generate(), ClientSecretDigest::generate());
    let file = std::env::temp_dir().join(format!("tollgate-client-secret-{}", std::process::id()));
    std::fs::write(&file, format!("{}\n", secret.expose())).unwrap();
    let both = expected().secret(first).unwrap().secret(second).unwrap();
    for written in [
        format!("\"{first}\""),
        format!("\"{}\"", secret.expose()),
        format!("{{ file = {:?} }}", file.display().to_string()),
    ] {
        assert_eq!(with(&format!("secrets = [{written}, \"{second}\"]")), Ok(both.clone()), "{written}");
    }
    std::fs::remove_file(file).unwrap();
    let third = ClientSecretDigest::generate().1;
    for bad in [
        "secrets = [\"hunter2\"]".to_owned(),
        "secrets = [{ file = \"there-is-none\" }]".to_owned(),
        format!("secrets = [\"{first}\", \"{first}\"]"),
        format!("secrets = [\"{first}\", \"{second}\", \"{third}\"]"),
    ] {
        let error = with(&bad).unwrap_err();
        assert!(error.starts_with("secrets") && !error.contains("hunter2"), "{error}");
    }
    let key = r#"{ kty = "OKP", crv = "Ed25519", x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" }"#;
    let with_key = with(&format!("jwks = {{ keys = [{key}] }}")).unwrap();
    assert!(with_key.is_confidential() && !with_key.is_machine());
    assert!(with(&format!("jwks = {{ keys = [{key}] }}\nsecrets = [\"{first}\"]")).is_err());
}

#[test]
fn errors_of_clients_name_the_setting() {
    let refused = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from}");
        read_client(&GOOD.replace(from, to)).unwrap_err()
    };
    for (from, to, message) in [
        (
            "http://127.0.0.1:8080",
            "http://app.example",
            "redirect URI: http://app.example/demo/callback is not usable: must be https, except on 127.0.0.1 or [::1]",
        ),
        ("steps = 2", "steps = 9", "policy: policy: 9 steps is not usable: must have 1 to 6 steps"),
        ("\"acme\"", "\"~acme\"", "tenant: \"~acme\": the tenant name is reserved"),
        ("\"profile\"", "\"a b\"", "scopes: \"a b\" is not a valid scope name"),
    ] {
        assert_eq!(refused(from, to), message);
    }
    let unknown = refused("origins", "origin");
    assert!(unknown.contains("line 6") && unknown.contains("unknown field `origin`, expected one of"), "{unknown}");
    for (from, to) in [
        ("\"demo-web\"", "\"\""),
        ("[\"openid\", \"profile\", \"email\"]", "[]"),
        ("\"openid\"", "\"\""),
        ("\"openid\"", "\"open\\\\id\""),
        ("[\"openid\", \"profile\", \"email\"]", "\"openid\""),
        ("https://app.example", "*"),
        ("{ steps = 2 }", "{}"),
        ("tenant", "id"),
        ("id = \"demo-web\"", ""),
    ] {
        refused(from, to);
    }
}

#[test]
fn policies_are_read() {
    let two = Policy::slots([Method::Password.into(), Method::Sms | Method::Email]).unwrap();
    let expected = Policies::new(Policy::any(3).unwrap()).tenant(acme(), two);
    let expected = expected.acr("urn:example:2fa", Policy::any(2).unwrap()).unwrap();
    let text = "default = { steps = 3 }\n[tenants.acme]\nslots = [[\"password\"], [\"sms\", \"email\"]]\n\
                [acr.\"urn:example:2fa\"]\nsteps = 2\n";
    assert_eq!(read_policies(text), Ok(expected));
    assert_eq!(read_policies(""), Ok(Policies::default()));
    let two = Policy::any(2).unwrap();
    let own = two.clone().without_self_enrolment();
    assert_eq!(read_policies("default = { steps = 2, self_enrolment = false }"), Ok(Policies::new(own)));
    assert_eq!(read_policies("default = { steps = 2, self_enrolment = true }"), Ok(Policies::new(two)));
    let off = "default = { steps = 1, enrolled_second_factor = false }";
    let policy = Policy::any(1).unwrap().without_enrolled_second_factor();
    assert_eq!(read_policies(off), Ok(Policies::new(policy)));
    assert_eq!(read_policies(&off.replace("false", "true")), Ok(Policies::default()));
}

#[test]
fn errors_of_policies_name_their_place() {
    for (text, message) in [
        ("default = {}", "policies: default: must have either `steps` or `slots`"),
        ("default = { steps = 1, slots = [[\"sms\"]] }", "policies: default: must have either `steps` or `slots`"),
        ("default = { steps = 7 }", "policies: default: policy: 7 steps is not usable: must have 1 to 6 steps"),
        ("tenants.acme = { slots = [[\"fax\"]] }", "policies: tenants.\"acme\": \"fax\" is not a known method"),
        (
            "tenants.acme = { slots = [[\"password\"], [\"sms\", \"sms\"]] }",
            "policies: tenants.\"acme\": \"sms\" is listed twice",
        ),
        (
            "tenants.acme = { slots = [[\"sms\"], [\"whatsapp\"]] }",
            "policies: tenants.\"acme\": policy: 2 steps: sms; and whatsapp is not usable: can't be satisfied by methods \
             of different factor classes",
        ),
        (
            "acr.\"a b\" = { steps = 1 }",
            "policies: acr: a b is not usable: must be 1 to 255 visible ASCII characters except '\"' and '\\'",
        ),
    ] {
        assert_eq!(read_policies(text).unwrap_err(), message);
    }
    let unknown = read_policies("[default]\nstep = 1").unwrap_err();
    assert!(
        unknown.contains("line 2") && unknown.contains("unknown field `step`, expected one of `steps`"),
        "{unknown}"
    );
    for bad in [
        "[default]\nsteps = 1\n[default]\nsteps = 1",
        "default = [1]",
        "default = { steps = -1 }",
        "default = { steps = 1.0 }",
        "default = { slots = [] }",
        "default = { slots = [[]] }",
        "default = { slots = [\"sms\"] }",
        "default = { enrolled_second_factor = false }",
        "tenants.\"~anonymous\" = { steps = 1 }",
        "tenants.\"\" = { steps = 1 }",
        "tenant = {}",
        "x = 1",
    ] {
        assert!(read_policies(bad).is_err(), "{bad}");
    }
}
