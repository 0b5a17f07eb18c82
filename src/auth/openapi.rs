//! Tests compare the description of the endpoints with the code.

use std::collections::BTreeSet;

use http::Method;
use serde_json::Value;

use crate::auth::{
    http::{problem::Code, route::PATHS},
    pages::page::OPENAPI,
};

fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

#[test]
fn every_path_and_method_is_documented_and_no_others() {
    let document = document();
    let described: BTreeSet<(String, String)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, operations)| {
            operations.as_object().unwrap().keys().map(|method| (path.clone(), method.clone()))
        })
        .collect();
    let served: BTreeSet<(String, String)> = PATHS
        .iter()
        .flat_map(|path| [Method::GET, Method::POST].map(|method| (path, method)))
        .filter(|(path, method)| path.route(method).is_some())
        .map(|(path, method)| (path.path.to_owned(), method.as_str().to_lowercase()))
        .collect();
    assert_eq!(described, served);
}

#[test]
fn every_error_is_documented_under_its_status_and_no_other() {
    let document = document();
    let known: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    let listed = document["components"]["schemas"]["ErrorName"]["enum"].as_array().unwrap();
    assert_eq!(listed.iter().map(|name| name.as_str().unwrap()).collect::<BTreeSet<_>>(), known);
    for (name, response) in document["components"]["responses"].as_object().unwrap() {
        let text = response["description"].as_str().unwrap().split("`error` is one of: ").nth(1).unwrap();
        let described: BTreeSet<&str> =
            text.trim_end_matches('.').split(", ").map(|name| name.trim_matches('`')).collect();
        let own = Code::ALL.iter().filter(|code| name == &format!("Error{}", code.status().as_u16()));
        assert_eq!(described, own.map(|code| code.as_str()).collect(), "{name}");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn walk(value: &Value, document: &Value) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    assert!(document.pointer(reference.strip_prefix('#').unwrap()).is_some(), "{reference}");
                }
                members.values().for_each(|member| walk(member, document));
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, document)),
            _ => {}
        }
    }
    let document = document();
    walk(&document, &document);
}
