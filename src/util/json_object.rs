//! Writes flat JSON objects, so that rate limits and events need no JSON library.

use std::fmt::Write;

/// A JSON object under construction. Members are written in the order of the calls.
#[derive(Debug)]
pub(crate) struct JsonObject(String);

impl JsonObject {
    pub(crate) fn new() -> Self {
        Self(String::from("{"))
    }

    pub(crate) fn text(mut self, name: &str, value: &str) -> Self {
        self.write_member_name(name);
        push_quoted(&mut self.0, value);
        self
    }

    pub(crate) fn text_if_any(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(name, value),
            None => self,
        }
    }

    pub(crate) fn number(self, name: &str, value: u64) -> Self {
        self.json(name, &value.to_string())
    }

    pub(crate) fn number_if_any(self, name: &str, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.number(name, value),
            None => self,
        }
    }

    /// Writes an array of texts.
    pub(crate) fn texts(mut self, name: &str, values: &[&str]) -> Self {
        self.write_member_name(name);
        self.0.push('[');
        for (place, value) in values.iter().enumerate() {
            if place > 0 {
                self.0.push(',');
            }
            push_quoted(&mut self.0, value);
        }
        self.0.push(']');
        self
    }

    /// Writes a value that is JSON already.
    pub(crate) fn json(mut self, name: &str, value: &str) -> Self {
        self.write_member_name(name);
        self.0.push_str(value);
        self
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn write_member_name(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        push_quoted(&mut self.0, name);
        self.0.push(':');
    }
}

fn push_quoted(json: &mut String, text: &str) {
    json.push('"');
    for char in text.chars() {
        match char {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            // writing to a `String` never fails
            control @ '\0'..'\x20' => drop(write!(json, "\\u{:04x}", u32::from(control))),
            char => json.push(char),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_object_has_its_members_in_their_order() {
        assert_eq!(JsonObject::new().end(), "{}");
        let object = JsonObject::new().number("b", 7).text("a", "x").text_if_any("none", None).number_if_any("n", None);
        let object = object.texts("c", &[]).texts("d", &["1", "2"]).json("e", "[{}]");
        assert_eq!(object.end(), r#"{"b":7,"a":"x","c":[],"d":["1","2"],"e":[{}]}"#);
    }

    proptest! {
        #[test]
        fn a20_every_text_is_read_back_as_it_was(name in any::<String>(), value in any::<String>(), n in any::<u64>()) {
            let object = JsonObject::new().text("v", &value).texts("t", &[&name, &value]).number("n", n).end();
            let read: Value = serde_json::from_str(&object).unwrap();
            prop_assert_eq!(read, json!({ "v": value, "t": [name, value], "n": n }));
            let named = JsonObject::new().number_if_any(&name, Some(n)).end();
            prop_assert_eq!(serde_json::from_str::<Value>(&named).unwrap(), json!({ name: n }));
        }
    }
}
