//! The words of pages and messages: each key is used, each used key exists, and no page or script has words of its own.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// Keys that are made at run time: the source, the text in it that makes them, and their prefix.
const FAMILIES: [(&str, &str, &str); 9] = [
    ("src/auth/pages/page.js", "`shared.error_${code}`", "shared.error_"),
    ("src/auth/pages/account.js", "`shared.error_${code}`", "shared.error_"),
    ("src/auth/pages/page.js", "`login.error_${code}`", "login.error_"),
    ("src/auth/pages/page.js", "`login.sso_${why}`", "login.sso_"),
    ("src/auth/pages/page.js", "`login.scope_${name}`", "login.scope_"),
    ("src/auth/pages/account.js", "`account.error_${code}`", "account.error_"),
    ("src/auth/pages/account.js", "`account.link_${linked}`", "account.link_"),
    ("src/auth/pages/account.js", "`login.scope_${scope}`", "login.scope_"),
    ("src/delivery/wording.rs", "\"message.{}\", notice.kind()", "message."),
];
const PAGES: [&str; 7] =
    ["page.html", "account.html", "error.html", "logout.html", "logged_out.html", "consent.html", "consent_done.html"];
const SCRIPTS: [&str; 2] = ["page.js", "account.js"];
const SOURCES: [&str; 7] = [
    "src/auth/authorize/consent.rs",
    "src/auth/pages/consent.rs",
    "src/auth/pages/page.rs",
    "src/auth/pages/logout.rs",
    "src/auth/pages/built.rs",
    "src/delivery/wording.rs",
    "src/delivery/message.rs",
];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn without_tests(source: &str) -> &str {
    source.split("#[cfg(test)]\nmod tests").next().unwrap()
}

fn page(name: &str) -> String {
    read(&format!("src/auth/pages/{name}"))
}

fn words(language: &str) -> BTreeMap<String, String> {
    let file = read(&format!("src/words/{language}.txt"));
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(" = ")).map(|(key, text)| (key.to_owned(), text.to_owned())).collect()
}

fn is_key(text: &str) -> bool {
    let pages = ["shared", "page", "login", "account", "error", "logout", "consent", "message"];
    let is_name = |part: &str| part.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let is_file = |name| ["", "html", "js", "css"].contains(&name);
    text.split_once('.')
        .is_some_and(|(page, name)| pages.contains(&page) && is_name(name) && !name.ends_with('_') && !is_file(name))
}

/// Returns the texts between these marks that have the form of a key.
fn between(text: &str, before: char, after: char) -> BTreeSet<String> {
    let starts = text.split(before).skip(1);
    let inner = starts.filter_map(|rest| rest.split_once(after)).map(|(inner, _)| inner);
    inner.filter(|inner| is_key(inner)).map(str::to_owned).collect()
}

/// Returns the keys in quotes of a script or a source. A quoted text is between any two quotes of a line, so it is found even
/// after an odd one.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split(['"', '\n']).filter(|part| is_key(part)).map(str::to_owned).collect()
}

/// Returns the keys that each page and source uses by name.
fn used() -> BTreeMap<String, BTreeSet<String>> {
    let pages = PAGES.map(|name| (name.to_owned(), between(&page(name), '{', '}')));
    let scripts = SCRIPTS.map(|name| (name.to_owned(), quoted(&page(name))));
    let sources = SOURCES.map(|name| (name.to_owned(), quoted(without_tests(&read(name)))));
    pages.into_iter().chain(scripts).chain(sources).collect()
}

#[test]
fn each_key_that_is_used_exists() {
    let known = words("en");
    for (source, keys) in used() {
        for key in keys {
            assert!(known.contains_key(&key), "{source} uses {key}, which is not in en.txt");
        }
    }
    for (source, making, prefix) in FAMILIES {
        assert!(read(source).contains(making), "{source} makes no key from {making}");
        assert!(known.keys().filter(|key| key.starts_with(prefix)).count() > 1, "{prefix}");
    }
}

#[test]
fn each_key_is_used() {
    let used: BTreeSet<String> = used().into_values().flatten().collect();
    for key in words("en").into_keys().filter(|key| !used.contains(key)) {
        assert!(FAMILIES.iter().any(|(_, _, prefix)| key.starts_with(prefix)), "nothing uses {key}");
    }
    // the keys of messages that are no kind of a notice or of a link are named
    let kinds = read("src/delivery/notice.rs") + &read("src/delivery/link.rs");
    for key in words("en").into_keys().filter(|key| key.starts_with("message.") && !used.contains(key)) {
        let kind = key.trim_start_matches("message.").trim_end_matches("_subject").trim_end_matches("_text");
        assert!(kinds.contains(&format!("\"{kind}\"")), "nothing uses {key}");
    }
}

#[test]
fn scripts_name_only_words_that_their_page_delivers() {
    for (script, own) in [("page.js", "login."), ("account.js", "account.")] {
        for key in quoted(&page(script)) {
            assert!(key.starts_with(own) || key.starts_with("shared."), "{script}: {key}");
        }
    }
}

#[test]
fn each_outcome_at_a_provider_has_words() {
    let known = words("en");
    let outcome = read("src/auth/factors/sso/outcome.rs");
    let reasons = outcome.split("enum SsoRefusal").nth(1).unwrap().split("\n}").next().unwrap();
    let reasons: BTreeSet<&str> = reasons.split(" = \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    // a wrong answer has no more to explain, and the fragment of a proof that is not fresh is another one
    for reason in reasons.difference(&["wrong_answer", "not_fresh"].into()) {
        assert!(known.contains_key(&format!("login.sso_{reason}")), "{reason}");
    }
    assert!(reasons.len() > 5, "{reasons:?}");
    let returned: BTreeSet<&str> =
        outcome.split("sso=").skip(1).filter_map(|rest| rest.split(['"', '&']).next()).collect();
    let script = page("page.js");
    for returned in returned.difference(&["ok"].into()) {
        assert!(script.contains(&format!("  {returned}: \"login.")), "{returned}");
    }
}

#[test]
fn languages_have_the_same_keys_in_the_same_order_and_the_same_placeholders() {
    let keys = |language: &str| -> Vec<String> {
        let file = read(&format!("src/words/{language}.txt"));
        file.lines()
            .map(|line| line.split(" = ").next().unwrap().to_owned())
            .filter(|line| !line.starts_with("# The words"))
            .collect()
    };
    assert_eq!(keys("en"), keys("de"));
    let placeholders = |text: &str| -> BTreeSet<String> {
        text.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name.to_owned()).collect()
    };
    let (english, german) = (words("en"), words("de"));
    for (key, text) in &english {
        assert_eq!(placeholders(text), placeholders(&german[key]), "{key}");
    }
    // German addresses users formally, and is not left in English
    for (key, text) in &german {
        for informal in [" du ", " dein", "Du ", "Dein", " dich", " dir "] {
            assert!(!text.contains(informal), "{key}: {text}");
        }
        let is_same_word =
            ["Code", "Passkey", "Passkeys", "Name", "{button} (in {time})", "{count} s"].contains(&text.as_str());
        assert!(is_same_word || *text != english[key], "{key} is not translated");
    }
}

#[test]
fn pages_have_no_words_of_their_own() {
    for name in PAGES {
        let text = page(name);
        // what is left without tags and placeholders
        let (mut left, mut depth) = (String::new(), 0);
        for character in text.chars() {
            match character {
                '<' | '{' => depth += 1,
                '>' | '}' => depth -= 1,
                other if depth == 0 => left.push(other),
                _ => {}
            }
        }
        assert!(
            !left.contains(char::is_alphabetic),
            "{name}: {}",
            left.split_whitespace().collect::<Vec<_>>().join(" ")
        );
        for attribute in ["alt=\"", "title=\"", "placeholder=\"", "aria-label=\""] {
            for value in text.split(attribute).skip(1) {
                assert!(value.starts_with('{') || value.starts_with('"'), "{name}: {attribute}{value:.20}");
            }
        }
    }
}

#[test]
fn scripts_have_no_words_of_their_own() {
    for name in SCRIPTS {
        for line in page(name).lines().filter(|line| !line.trim_start().starts_with("//")) {
            for text in line.split(['"', '`']).skip(1).step_by(2) {
                // words are several, or begin with a capital
                let is_sentence =
                    text.split(' ').filter(|word| word.len() > 1 && word.chars().all(char::is_alphabetic)).count() > 1;
                let is_code =
                    ["Escape", "Enter", "InvalidStateError", "POST", "GET"].contains(&text) || text.contains("=");
                let is_label = text.starts_with(|first: char| first.is_ascii_uppercase());
                assert!(!is_sentence && (!is_label || is_code), "{name}: {text:?} in {line}");
            }
        }
    }
    // Rust sources that make pages have no text between tags
    for name in SOURCES {
        for text in without_tests(&read(name)).split("\">").skip(1) {
            assert!(text.starts_with(['{', '"']), "{name}: {text:.30}");
        }
    }
}
