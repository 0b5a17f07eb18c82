//! Compares every response of every test with the OpenAPI document.

use std::sync::LazyLock;

use http::Method;
use serde_json::Value;
use tollgate::AuthService;

use crate::world::Answer;

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(AuthService::openapi()).unwrap());

/// Fails if the status, the headers or the body of a response is not as documented.
pub(crate) fn check(method: &Method, path: &str, answer: &Answer) {
    let by = if method == Method::HEAD { Method::GET } else { method.clone() };
    let path = if path.starts_with("/authentication/sso/") { "/authentication/sso/{provider}/callback" } else { path };
    let operation = &DOCUMENT["paths"][path][by.as_str().to_lowercase()];
    if operation.is_null() {
        // unknown endpoints use the common error format, or a page for people
        let bodyless = *method == Method::HEAD || answer.status == 204;
        assert!([204, 403, 404, 405, 429].contains(&answer.status.as_u16()), "{method} {path}: {answer:?}");
        let is_page = answer.header("content-type").starts_with("text/html");
        if !bodyless && !is_page {
            conforms(&content(answer, &DOCUMENT["components"]["responses"]["Error404"]), &answer.json(), path);
        }
        return;
    }
    let described = resolve(&operation["responses"][answer.status.as_str()]);
    assert!(!described.is_null(), "{method} {path} is not described to answer {}: {answer:?}", answer.status);
    for (name, header) in described["headers"].as_object().into_iter().flatten() {
        // `Retry-After` is omitted if retrying can't help
        let may_lack = name.starts_with("x-ratelimit") || resolve(header)["required"] != true;
        match answer.headers.get(name) {
            Some(value) if resolve(header)["schema"]["type"] == "integer" => {
                assert!(value.to_str().unwrap().parse::<u64>().is_ok(), "{path}: {name}");
            }
            found => assert!(found.is_some() || may_lack, "{method} {path}: {name} is missing: {answer:?}"),
        }
    }
    if *method == Method::HEAD || described["content"].is_null() {
        assert_eq!(answer.text, "", "{method} {path}");
        return;
    }
    let schema = content(answer, described);
    if schema["type"] != "string" {
        conforms(&schema, &answer.json(), path);
    }
}

/// Returns the schema of the content type that was sent.
fn content(answer: &Answer, described: &Value) -> Value {
    let content_type = answer.header("content-type").split(';').next().unwrap();
    if content_type == "text/html" {
        // errors of `/authorize` are pages for people
        return serde_json::json!({ "type": "string" });
    }
    let media = &described["content"][content_type];
    assert!(!media.is_null(), "{content_type} is not described: {answer:?}");
    media["schema"].clone()
}

fn resolve(value: &Value) -> &Value {
    match value["$ref"].as_str() {
        Some(reference) => DOCUMENT.pointer(reference.strip_prefix('#').unwrap()).unwrap(),
        None => value,
    }
}

/// Checks the parts of JSON Schema that the document uses for responses. Members without a description are errors.
fn conforms(schema: &Value, value: &Value, place: &str) {
    let schema = resolve(schema);
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().map(|it| it.as_str().unwrap()).collect(),
        _ => Vec::new(),
    };
    let own = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    assert!(types.is_empty() || types.contains(&own), "{place}: {value} is no {types:?}");
    if let Some(allowed) = schema["enum"].as_array() {
        assert!(allowed.contains(value), "{place}: {value} is not among {allowed:?}");
    }
    assert!(schema.get("const").is_none_or(|only| only == value), "{place}: {value}");
    if let (Some(least), Some(number)) = (schema["minimum"].as_i64(), value.as_i64()) {
        assert!(number >= least, "{place}: {number}");
    }
    if let (Some("^[A-Za-z0-9_-]{22}$"), Some(text)) = (schema["pattern"].as_str(), value.as_str()) {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        assert!(text.len() == 22 && text.bytes().all(allowed), "{place}: {text}");
    }
    for item in value.as_array().into_iter().flatten() {
        conforms(&schema["items"], item, place);
    }
    let Some(members) = value.as_object() else { return };
    if schema["properties"].is_null() {
        return;
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        assert!(members.contains_key(required.as_str().unwrap()), "{place}: {required} is missing in {value}");
    }
    for (name, member) in members {
        let described = &schema["properties"][name];
        if described.is_null() && schema["additionalProperties"] == true {
            continue;
        }
        assert!(!described.is_null(), "{place}: {name} is not described");
        conforms(described, member, &format!("{place} {name}"));
    }
}

#[test]
#[should_panic(expected = "is not described")]
fn an_undocumented_member_is_reported() {
    let schema = &DOCUMENT["components"]["schemas"]["Completed"];
    let value = serde_json::json!({ "session_id": "A".repeat(22), "status": "completed", "user": "ada" });
    conforms(schema, &value, "complete");
}
