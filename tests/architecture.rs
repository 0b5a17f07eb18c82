//! The rules of the house that a machine can check.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::{
    fs,
    path::{Path, PathBuf},
};

const MOST_LINES: usize = 500;
const MOST_LINES_OF_AN_EXAMPLE: usize = 120;

// ---- the rules

#[test]
fn a_module_uses_only_modules_that_stand_above_it() {
    let order = modules(&read("src/lib.rs"));
    let mut wrong = Vec::new();
    for path in files("src") {
        let module = module_path(&path);
        let Some(own) = module.first().and_then(|name| order.iter().position(|other| other == name)) else {
            assert!(module.is_empty(), "{}: lib.rs does not name it", path.display());
            continue;
        };
        for used in used(&without_tests(&read(&path)), module.len()) {
            match order.iter().position(|other| *other == used) {
                Some(place) if place <= own => {}
                Some(_) => wrong.push(format!("{} uses {used}, which stands below it", path.display())),
                None => wrong.push(format!("{} uses crate::{used}: name the module that has it", path.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn no_file_is_long() {
    for path in files("src") {
        let lines = without_tests(&read(&path)).lines().count();
        assert!(lines <= MOST_LINES, "{}: {lines} lines before its tests", path.display());
    }
}

#[test]
fn an_example_is_short_and_says_what_it_shows() {
    for path in files("examples") {
        let text = read(&path);
        let lines = text.lines().count();
        assert!(lines <= MOST_LINES_OF_AN_EXAMPLE, "{}: {lines} lines", path.display());
        assert!(text.starts_with("//! "), "{}: begins without saying what it shows", path.display());
    }
}

// ---- reading the sources

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Every Rust file below this directory, but those that are there only for tests.
fn files(directory: &str) -> Vec<PathBuf> {
    let (mut found, mut only_tests) = (Vec::new(), Vec::new());
    let mut directories = vec![PathBuf::from(directory)];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root().join(&directory)).unwrap() {
            let path = directory.join(entry.unwrap().file_name());
            if root().join(&path).is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                only_tests.extend(test_modules(&read(&path)).map(|name| directory.join(format!("{name}.rs"))));
                found.push(path);
            }
        }
    }
    found.retain(|path| !only_tests.contains(path));
    assert!(!found.is_empty(), "{directory} has no Rust files");
    found
}

/// The modules in files of their own that a `mod.rs` has only for tests.
fn test_modules(text: &str) -> impl Iterator<Item = String> {
    text.split("#[cfg(test)]\nmod ").skip(1).filter_map(|rest| Some(rest.lines().next()?.strip_suffix(';')?.to_owned()))
}

/// `src/limit/window.rs` is `limit::window`, `src/limit/mod.rs` is `limit`, `src/lib.rs` is the root.
fn module_path(path: &Path) -> Vec<String> {
    let path = path.strip_prefix("src").unwrap().with_extension("");
    let mut names: Vec<String> = path.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
    if names.last().is_some_and(|last| last == "mod" || last == "lib") {
        names.pop();
    }
    names
}

/// The modules that `lib.rs` names, in its order.
fn modules(lib: &str) -> Vec<String> {
    let named = |line: &str| {
        let (visibility, name) = line.strip_suffix(';')?.split_once("mod ")?;
        (visibility.is_empty() || visibility.starts_with("pub")).then(|| name.to_owned())
    };
    lib.lines().filter_map(named).collect()
}

/// Up to the module of tests, which may use anything.
fn without_tests(text: &str) -> String {
    let tests = text.find("\n#[cfg(test)]\nmod tests").map_or(text.len(), |place| place + 1);
    text[..tests].to_owned()
}

/// The top-level modules that the code of a module uses. It lies so many levels below the root.
fn used(text: &str, depth: usize) -> Vec<String> {
    let code: String = text.lines().map(|line| format!("{}\n", without_comment(line))).collect();
    let to_root = "super::".repeat(depth);
    let mut used = Vec::new();
    for (root, others_name) in [("crate::", "crate"), (to_root.as_str(), "super")] {
        for (place, _) in code.match_indices(root).filter(|_| depth > 0) {
            let before = code[..place].chars().next_back();
            let is_other = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
            let is_longer_path = code[..place].ends_with("::");
            assert!(!(others_name == "super" && is_longer_path), "super:: goes above the root");
            if !is_other {
                used.extend(heads(&code[place + root.len()..]));
            }
        }
    }
    used
}

fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with("//") {
        return "";
    }
    line.split_once(" // ").map_or(line, |(code, _)| code)
}

/// The first name of a path, or of each path of a group: `a` and `b` of `{a::x, b::{y, z}}`.
fn heads(path: &str) -> Vec<String> {
    let name = |text: &str| text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut depth, mut start, mut found) = (0_usize, 0, Vec::new());
    for (place, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                found.push(name(&group[start..place]));
                start = place + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found.retain(|name: &String| !name.is_empty());
    found
}

// ---- the checks see what they look for

#[test]
fn uses_are_found_however_they_are_written() {
    let code = "
        use crate::clock::Clock;
        use crate::{
            error::ConfigError, // of settings
            event::{Event, log::{self, EventLog}},
            head,
        };
        /// See [`Tenant`](crate::documented).
        fn f(limit: crate::limit::Limiter) { crate::trace::warning!(\"\"); } // crate::comment
        pub(in crate) struct X;
        use super::sibling;
        use super::super::{store, gate::Gate};
        use mycrate::other;
    ";
    let mut found = used(code, 2);
    found.sort();
    assert_eq!(found, ["clock", "error", "event", "gate", "head", "limit", "store", "trace"]);
    assert_eq!(used("use super::store::Key;", 1), ["store"]);
    assert_eq!(used("use super::Key;", 2), [""; 0]);
}

#[test]
fn the_order_is_read_from_lib_rs_and_the_tests_of_a_file_are_left_out() {
    let lib = "//! mod doc;\nmod error;\npub mod tenant;\n#[cfg(x)]\npub(crate) mod store;\npub use crate::error::E;\n";
    assert_eq!(modules(lib), ["error", "tenant", "store"]);
    assert_eq!(without_tests("code\n#[cfg(test)]\nmod tests {\n}\n"), "code\n");
    let declared = "mod a;\n#[cfg(test)]\nmod model;\nmod b;\n#[cfg(test)]\nmod tests {\n}\n";
    assert_eq!(test_modules(declared).collect::<Vec<_>>(), ["model"]);
    assert_eq!(module_path(Path::new("src/limit/mod.rs")), ["limit"]);
    assert_eq!(module_path(Path::new("src/limit/window.rs")), ["limit", "window"]);
    assert_eq!(module_path(Path::new("src/lib.rs")), [""; 0]);
}
