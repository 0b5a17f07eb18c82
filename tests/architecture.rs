//! Structural rules that the compiler does not check.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

const MAX_LINES: usize = 500;
const MAX_LINES_OF_AN_EXAMPLE: usize = 120;
const MAX_FILES_PER_FOLDER: usize = 15;
const MAX_NAMES_AT_THE_ROOT: usize = 45;

/// Names that would hide one of `http` or `axum` in a file that imports both, or that say nothing without their module.
const NOT_AT_THE_ROOT: &[&str] =
    &["Body", "Digest", "Extension", "Handle", "Method", "Policy", "Replay", "Request", "Response", "Uri"];

/// Modules that are still being rebuilt. Their files may import each other in circles. Only ever remove entries.
const CIRCLES_ALLOWED_IN: &[&str] = &[];

/// Folders that are still being rebuilt and may have too many files. Only ever remove entries.
const LARGE_FOLDERS: &[&str] = &[];

/// The folders of `auth`, in the order in which they may use each other. The files beside them connect them.
const FOLDERS_OF_AUTH: &[&str] =
    &["http", "state", "pages", "factors", "authorize", "steps", "provider", "first_party", "account"];

/// The folders of `auth/factors` that are no factor.
const SHARED_BY_FACTORS: &[&str] = &["credentials", "enrolment"];

/// Lists what each factor stores.
const ROW_OF_ALL_FACTORS: &str = "src/auth/factors/credentials/row.rs";

/// Modules that know nothing of the features built on them.
const INNER_MODULES: &[&str] =
    &["util", "http", "gate", "reject", "tenant", "event", "limit", "store", "session", "pkce"];

/// Words that inner modules do not use, neither in code nor in comments.
const OUTER_WORDS: &[&str] = &["authservice", "bearer", "jwks", "login", "logins", "sso", "tokens"];

/// Phrases that inner modules may use: applications with sessions have a login page, and OAuth has an error of this name.
const NOT_OUTER: &[&str] = &["login page", "login_url", "login url", "/login", "login_required"];

/// Names that several public types may still share. Only ever remove entries.
const SHARED_NAMES: &[&str] = &[];

// ---- rules

#[test]
fn modules_use_only_modules_listed_above_them() {
    let order = modules(&read("src/lib.rs"));
    let mut wrong = Vec::new();
    for path in files("src") {
        let module = module_path(&path);
        let Some(own) = module.first().and_then(|name| order.iter().position(|other| other == name)) else {
            assert!(module.is_empty(), "{}: not declared in lib.rs", path.display());
            continue;
        };
        for used in used(&without_tests(&read(&path)), module.len()) {
            match order.iter().position(|other| *other == used) {
                Some(place) if place <= own => {}
                Some(_) => wrong.push(format!("{} uses {used}, which is listed below it", path.display())),
                None => wrong.push(format!("{} uses crate::{used}: import it from its module", path.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn inner_modules_do_not_name_outer_features() {
    let mut wrong = Vec::new();
    for module in INNER_MODULES {
        for path in all_files(&format!("src/{module}")) {
            for (number, line) in read(&path).lines().enumerate().filter(|(_, line)| names_outer_features(line)) {
                wrong.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} lines:\n{}\n", wrong.len(), wrong.join("\n"));
}

#[test]
fn files_do_not_import_each_other_in_circles() {
    let paths = files("src");
    let modules: BTreeSet<Vec<String>> = paths.iter().map(|path| module_path(path)).collect();
    let imports: BTreeMap<Vec<String>, BTreeSet<Vec<String>>> = paths
        .iter()
        .map(|path| {
            let module = module_path(path);
            (module.clone(), imports(&without_tests(&read(path)), &module, &modules))
        })
        .collect();
    let in_circles = in_circles(&imports);
    let wrong: Vec<String> = in_circles
        .iter()
        .filter(|module| !module.first().is_some_and(|top| CIRCLES_ALLOWED_IN.contains(&top.as_str())))
        .map(|module| module.join("::"))
        .collect();
    assert!(wrong.is_empty(), "these files import each other in circles:\n{}\n", wrong.join("\n"));
    for allowed in CIRCLES_ALLOWED_IN {
        let has_circle = in_circles.iter().any(|module| module.first().is_some_and(|top| top == allowed));
        assert!(has_circle, "{allowed} has no circles any more: remove it from CIRCLES_ALLOWED_IN");
    }
}

#[test]
fn folders_of_auth_use_only_folders_listed_before_them() {
    let place = |module: &[String]| {
        let folder = (module.first()? == "auth").then(|| module.get(1))??;
        FOLDERS_OF_AUTH.iter().position(|other| other == folder)
    };
    let wrong: Vec<String> = imports_of("src/auth")
        .into_iter()
        .filter(|(path, used)| place(&module_path(path)).zip(place(used)).is_some_and(|(own, used)| used > own))
        .map(|(path, used)| format!("{} uses {}, which is listed after it", path.display(), used.join("::")))
        .collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn a_factor_knows_nothing_of_the_others() {
    let folder = |module: &[String]| {
        let [auth, factors, folder, ..] = module else { return None };
        (auth == "auth" && factors == "factors" && root().join("src/auth/factors").join(folder).is_dir())
            .then(|| folder.clone())
    };
    let wrong: Vec<String> = imports_of("src/auth/factors")
        .into_iter()
        .filter(|(path, used)| {
            let (own, used) = (folder(&module_path(path)), folder(used));
            let is_factor = used.as_deref().is_some_and(|used| !SHARED_BY_FACTORS.contains(&used));
            own.is_some() && own != used && is_factor && path != Path::new(ROW_OF_ALL_FACTORS)
        })
        .map(|(path, used)| format!("{} uses {}", path.display(), used.join("::")))
        .collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn folders_have_a_limited_number_of_files() {
    let mut folders = BTreeMap::<String, usize>::new();
    for path in files("src") {
        *folders.entry(path.parent().unwrap().display().to_string()).or_default() += 1;
    }
    let large: Vec<&str> =
        folders.iter().filter(|(_, files)| **files > MAX_FILES_PER_FOLDER).map(|(folder, _)| folder.as_str()).collect();
    assert_eq!(large, LARGE_FOLDERS, "folders with more than {MAX_FILES_PER_FOLDER} files");
}

#[test]
fn public_types_have_unique_names() {
    let mut names = BTreeMap::<String, Vec<String>>::new();
    for path in files("src") {
        for name in public_types(&without_tests(&read(&path))) {
            names.entry(name).or_default().push(path.display().to_string());
        }
    }
    let shared: Vec<(&String, &Vec<String>)> = names.iter().filter(|(_, files)| files.len() > 1).collect();
    assert!(shared.iter().map(|(name, _)| name.as_str()).eq(SHARED_NAMES.iter().copied()), "{shared:#?}");
}

#[test]
fn the_root_has_few_names() {
    let lib = read("src/lib.rs");
    let exports: Vec<_> = lib.split("\npub use crate::").skip(1).flat_map(paths).collect();
    let names: BTreeSet<_> = exports.into_iter().filter_map(|mut path| path.pop()).collect();
    assert!(names.len() <= MAX_NAMES_AT_THE_ROOT, "{} names at the root: {names:?}", names.len());
    let poor: Vec<_> = names.iter().filter(|name| NOT_AT_THE_ROOT.contains(&name.as_str())).collect();
    assert!(poor.is_empty(), "these need a module or another name: {poor:?}");
}

#[test]
fn files_are_short() {
    for path in files("src") {
        let lines = without_tests(&read(&path)).lines().count();
        assert!(lines <= MAX_LINES, "{}: {lines} lines without tests", path.display());
    }
}

#[test]
fn examples_are_short_and_start_with_a_summary() {
    for path in files("examples") {
        let text = read(&path);
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES_OF_AN_EXAMPLE, "{}: {lines} lines", path.display());
        assert!(text.starts_with("//! "), "{}: does not start with a summary", path.display());
    }
}

// ---- reading the sources

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// All Rust files below a directory, except files of test modules.
fn files(directory: &str) -> Vec<PathBuf> {
    let mut found = all_files(directory);
    let tests = |path: &PathBuf| {
        let folder = path.parent().unwrap().to_owned();
        test_modules(&read(path)).map(|name| folder.join(format!("{name}.rs"))).collect::<Vec<_>>()
    };
    let only_tests: Vec<PathBuf> = found.iter().flat_map(tests).collect();
    found.retain(|path| !only_tests.contains(path));
    found
}

/// All Rust files below a directory.
fn all_files(directory: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::from(directory)];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root().join(&directory)).unwrap() {
            let path = directory.join(entry.unwrap().file_name());
            if root().join(&path).is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "{directory} has no Rust files");
    found
}

/// Whether a line has a word of an outer feature, such as `LoginFailed`, `login_limits` or `feature = "login"`.
fn names_outer_features(line: &str) -> bool {
    let text = NOT_OUTER.iter().fold(line.to_owned(), |text, known| text.replace(known, ""));
    let mut words = String::new();
    for c in text.replace("AuthService", " authservice ").chars() {
        match c {
            'A'..='Z' => words.extend([' ', c.to_ascii_lowercase()]),
            _ if c.is_alphanumeric() => words.push(c),
            _ => words.push(' '),
        }
    }
    words.split(' ').any(|word| OUTER_WORDS.contains(&word))
}

/// The modules with files of their own that are compiled only for tests.
fn test_modules(text: &str) -> impl Iterator<Item = String> {
    text.split("#[cfg(test)]\nmod ").skip(1).filter_map(|rest| Some(rest.lines().next()?.strip_suffix(';')?.to_owned()))
}

/// `src/limit/engine/window.rs` is `limit::engine::window`, `src/limit/mod.rs` is `limit`, `src/lib.rs` is the root.
fn module_path(path: &Path) -> Vec<String> {
    let path = path.strip_prefix("src").unwrap().with_extension("");
    let mut names: Vec<String> = path.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
    if names.last().is_some_and(|last| last == "mod" || last == "lib") {
        names.pop();
    }
    names
}

/// The modules that `lib.rs` declares, in order.
fn modules(lib: &str) -> Vec<String> {
    let named = |line: &str| {
        let (visibility, name) = line.strip_suffix(';')?.split_once("mod ")?;
        (visibility.is_empty() || visibility.starts_with("pub")).then(|| name.to_owned())
    };
    lib.lines().filter_map(named).collect()
}

/// The text up to the `tests` module, which may use anything.
fn without_tests(text: &str) -> String {
    let begins = ["mod tests", "pub(super) mod tests"].map(|begin| text.find(&format!("\n#[cfg(test)]\n{begin}")));
    let tests = begins.into_iter().flatten().min().map_or(text.len(), |place| place + 1);
    text[..tests].to_owned()
}

/// The top-level modules that the code of a module uses. `depth` is the depth of that module.
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

/// The first name of each path in the text after a root, such as `a` and `b` in `{a::x, b::{y, z}}`.
fn heads(text: &str) -> Vec<String> {
    let mut heads: Vec<String> = paths(text).into_iter().filter_map(|path| path.into_iter().next()).collect();
    heads.dedup();
    heads
}

/// The modules with files of their own that the code of `module` imports from: for each path, the deepest module on it.
fn imports(text: &str, module: &[String], modules: &BTreeSet<Vec<String>>) -> BTreeSet<Vec<String>> {
    let code: String = text.lines().map(|line| format!("{}\n", without_comment(line))).collect();
    let mut found = BTreeSet::new();
    for root in ["crate::", "self::", "super::"] {
        for (place, _) in code.match_indices(root) {
            let before = code[..place].chars().next_back();
            let is_visibility = code[..place].ends_with("pub(in ");
            if is_visibility || before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let mut base = if root == "crate::" { Vec::new() } else { module.to_vec() };
            let mut rest = &code[place..];
            rest = rest.strip_prefix("crate::").or_else(|| rest.strip_prefix("self::")).unwrap_or(rest);
            while let Some(parent) = rest.strip_prefix("super::") {
                base.pop();
                rest = parent;
            }
            for path in paths(rest) {
                let mut target = base.clone();
                for name in path {
                    target.push(name);
                    if !modules.contains(&target) {
                        target.pop();
                        break;
                    }
                }
                if !target.is_empty() && target != module {
                    found.insert(target);
                }
            }
        }
    }
    found
}

/// The files below a directory, each with a module that it imports from.
fn imports_of(directory: &str) -> Vec<(PathBuf, Vec<String>)> {
    let modules: BTreeSet<Vec<String>> = files("src").iter().map(|path| module_path(path)).collect();
    let of_file = |path: PathBuf| {
        let found = imports(&without_tests(&read(&path)), &module_path(&path), &modules);
        found.into_iter().map(move |used| (path.clone(), used)).collect::<Vec<_>>()
    };
    files(directory).into_iter().flat_map(of_file).collect()
}

/// All modules that can reach themselves by following imports.
fn in_circles(imports: &BTreeMap<Vec<String>, BTreeSet<Vec<String>>>) -> Vec<Vec<String>> {
    let reaches_itself = |start: &&Vec<String>| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&Vec<String>> = imports[*start].iter().collect();
        while let Some(module) = next.pop() {
            if module == *start {
                return true;
            }
            if seen.insert(module) {
                next.extend(imports.get(module).into_iter().flatten());
            }
        }
        false
    };
    imports.keys().filter(reaches_itself).cloned().collect()
}

/// The paths in the text after a root, such as `a::x` and `b::y` in `{a::x, b::{y}}`.
fn paths(text: &str) -> Vec<Vec<String>> {
    if let Some(group) = text.strip_prefix('{') {
        return parts(group).into_iter().flat_map(|part| paths(part.trim_start())).collect();
    }
    let name: String = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    if name.is_empty() {
        return Vec::new();
    }
    let Some(rest) = text[name.len()..].strip_prefix("::") else { return vec![vec![name]] };
    let longer = paths(rest);
    if longer.is_empty() {
        return vec![vec![name]];
    }
    longer.into_iter().map(|path| [vec![name.clone()], path].concat()).collect()
}

/// The parts of a group, up to its closing brace.
fn parts(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0_usize, 0, Vec::new());
    for (place, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                found.push(&group[start..place]);
                start = place + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found
}

/// The names of the types and traits that are declared `pub`.
fn public_types(text: &str) -> Vec<String> {
    let declared = |line: &str| {
        let (kind, rest) = line.strip_prefix("pub ")?.split_once(' ')?;
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        ["struct", "enum", "trait", "type", "union"].contains(&kind).then_some(name)
    };
    // pin_project! declares types one level deeper
    text.lines().filter_map(|line| declared(line.strip_prefix("    ").unwrap_or(line))).collect()
}

// ---- tests of the checks

#[test]
fn all_forms_of_imports_are_found() {
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
fn names_of_outer_features_are_found() {
    for line in
        ["#[cfg(feature = \"login\")]", "EventKind::SsoLinked", "login_limits", "/// Logins end.", "an `AuthService`"]
    {
        assert!(names_outer_features(line), "{line}");
    }
    for line in ["/// Redirects to the login page.", "layer.login_url(\"/login\")?", "is_token(name)", "catalogins"] {
        assert!(!names_outer_features(line), "{line}");
    }
}

#[test]
fn modules_and_tests_are_recognized() {
    let lib = "//! mod doc;\nmod error;\npub mod tenant;\n#[cfg(x)]\npub(crate) mod store;\npub use crate::error::E;\n";
    assert_eq!(modules(lib), ["error", "tenant", "store"]);
    assert_eq!(without_tests("code\n#[cfg(test)]\nmod tests {\n}\n"), "code\n");
    let declared = "mod a;\n#[cfg(test)]\nmod model;\nmod b;\n#[cfg(test)]\nmod tests {\n}\n";
    assert_eq!(test_modules(declared).collect::<Vec<_>>(), ["model"]);
    assert_eq!(module_path(Path::new("src/limit/mod.rs")), ["limit"]);
    assert_eq!(module_path(Path::new("src/limit/engine/window.rs")), ["limit", "engine", "window"]);
    assert_eq!(module_path(Path::new("src/lib.rs")), [""; 0]);
}

#[test]
fn imports_are_resolved_to_the_deepest_module() {
    let named = |path: &str| path.split("::").map(str::to_owned).collect::<Vec<String>>();
    let modules = ["event", "event::log", "event::record", "util", "util::clock"].map(named).into();
    let code = "
        use super::{log::EventLog, record::{self, Event}};
        use crate::{util::clock::{Clock, Moment}, event::Query};
        fn f() { self::helper(); super::record::f(); }
        pub(in crate::util) fn g() {}
    ";
    let found = imports(code, &named("event::query"), &modules);
    assert_eq!(found, ["event", "event::log", "event::record", "util::clock"].map(named).into());
}

#[test]
fn circles_are_found() {
    let module = |name: &str| vec![name.to_owned()];
    let imports = [("a", "b"), ("b", "c"), ("c", "b"), ("d", "a")];
    let imports = imports.map(|(from, to)| (module(from), BTreeSet::from([module(to)]))).into();
    assert_eq!(in_circles(&imports), [module("b"), module("c")]);
}

#[test]
fn public_types_are_listed() {
    let code = "pub struct A<T>(T);\npub(crate) enum B {}\npub fn c() {}\n    pub struct D {\n        pub type_: E,\npub trait F: G {}\n";
    assert_eq!(public_types(code), ["A", "D", "F"]);
}
