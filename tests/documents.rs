//! The documents as web pages show them: no dead link, and no line that only rustdoc hides.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns all Markdown files at the root and in `docs`.
fn documents() -> Vec<PathBuf> {
    let of = |directory: PathBuf| fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let all = of(root().to_path_buf()).chain(of(root().join("docs"))).chain(of(root().join("docs/decisions")));
    let found: Vec<_> = all.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect();
    assert!(found.len() > 30, "{found:?}");
    found
}

/// Splits a document into its text and the lines of its code blocks.
fn text_and_code(document: &str) -> (String, Vec<&str>) {
    let (mut text, mut code, mut is_code) = (String::new(), Vec::new(), false);
    for line in document.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            code.push(line);
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    (text, code)
}

/// Returns the targets of all links. A reference in brackets without a target is returned as `None`.
fn links(text: &str) -> Vec<(&str, Option<&str>)> {
    let mut links = Vec::new();
    for (start, _) in text.match_indices('[') {
        let Some(rest) = text.get(start + 1..) else { continue };
        let Some((label, after)) = rest.split_once(']') else { continue };
        if label.contains('[') || text[..start].matches('`').count() % 2 == 1 {
            continue;
        }
        match after.strip_prefix('(').and_then(|target| target.split_once(')')) {
            Some((target, _)) => links.push((label, Some(target))),
            None if label.starts_with('`') => links.push((label, None)),
            None => {}
        }
    }
    links
}

/// Returns the anchor that web pages give to a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_leads_somewhere() {
    for path in documents() {
        let document = fs::read_to_string(&path).unwrap();
        for (label, target) in links(&text_and_code(&document).0) {
            let place = format!("[{label}] in {}", path.display());
            let target = target.unwrap_or_else(|| panic!("{place} has no target"));
            if target.starts_with("https://") {
                continue;
            }
            let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
            let linked = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(linked.exists(), "{place} leads to {target}");
            if !fragment.is_empty() {
                let linked = fs::read_to_string(linked).unwrap();
                let mut headings = linked.lines().filter(|line| line.starts_with('#'));
                let has = headings.any(|line| anchor(line.trim_start_matches('#')) == fragment);
                assert!(has, "{place} leads to {target}");
            }
        }
    }
}

#[test]
fn no_code_block_has_lines_that_only_rustdoc_hides() {
    for path in documents() {
        let document = fs::read_to_string(&path).unwrap();
        let (_, code) = text_and_code(&document);
        let hidden: Vec<_> = code.iter().filter(|line| **line == "#" || line.starts_with("# fn ")).collect();
        assert!(hidden.is_empty(), "{}: {hidden:?}", path.display());
    }
}

#[test]
fn links_and_dead_references_are_told_apart() {
    let text = "a [page](x.md#y), a [`Type`], a [`Known`](k.md), code `[0]` and a list [1]";
    let expected = [("page", Some("x.md#y")), ("`Type`", None), ("`Known`", Some("k.md"))];
    assert_eq!(links(text), expected);
    assert_eq!(anchor(" Where do I find …?"), "where-do-i-find-");
}

#[test]
fn every_file_and_folder_in_the_architecture_exists() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).collect();
    assert!(rows.len() > 25, "{}", rows.len());
    for row in rows {
        check_paths(row.split('`').skip(1).step_by(2).filter(|name| name.contains(['.', '/']) && !name.contains(' ')));
    }
}

#[test]
fn every_file_and_function_in_a_diagram_of_the_architecture_exists() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (names, (_, code)) = (Names::read(), text_and_code(&text));
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let (mut functions, mut unknown) = (0, Vec::new());
    for line in code {
        let words: Vec<&str> = line.split(|c| !is_part(c)).map(|word| word.trim_end_matches('.')).collect();
        // routes begin with a slash
        let is_path = |word: &&str| !word.starts_with('/') && (word.ends_with(".rs") || word.ends_with('/'));
        check_paths(words.iter().copied().filter(is_path));
        for name in words.iter().filter(|word| word.contains('_') && !word.contains(['.', '/'])) {
            functions += 1;
            unknown.extend((!names.all.contains(*name)).then_some(name.to_owned()));
        }
    }
    assert!(unknown.is_empty() && functions > 15, "{functions}, {unknown:?}");
}

/// Checks that these files and folders exist. One without a folder is a neighbour of the one before.
fn check_paths<'a>(names: impl Iterator<Item = &'a str>) {
    let mut folder = PathBuf::new();
    for name in names {
        if name.contains('/') {
            folder = Path::new(name).parent().unwrap().to_path_buf();
        }
        let path = if name.contains('/') { PathBuf::from(name) } else { folder.join(name) };
        let exists = root().join("src").join(&path).exists() || root().join(&path).exists();
        assert!(exists, "{}", path.display());
    }
}

/// Returns all Rust files below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the word at the start of a text.
fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("")
}

/// Returns the name that a line declares, after words such as `pub` and `async`.
fn declared<'a>(line: &'a str, keywords: &[&str]) -> Option<&'a str> {
    let mut rest = line.trim_start();
    loop {
        let first = rest.split([' ', '(']).next()?;
        match first {
            _ if keywords.contains(&first) => return Some(word(rest.get(first.len() + 1..)?)),
            "pub" if rest.starts_with("pub(") => rest = rest.split_once(") ")?.1,
            "pub" | "async" | "const" | "unsafe" => rest = rest.get(first.len() + 1..)?,
            _ => return None,
        }
    }
}

/// Returns the name of the type in the rest of a line that begins with `impl`.
fn implemented(head: &str) -> &str {
    let mut depth = 0;
    let after_parameters = head.find(|c| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        depth == 0 && c == ' '
    });
    let head = after_parameters.map_or("", |at| head[at..].trim_start());
    let name = head.rsplit_once(" for ").map_or(head, |(_, name)| name);
    word(name.split(['<', ' ']).next().unwrap_or("").rsplit("::").next().unwrap_or(""))
}

/// The members of each type of the crate, and the names of everything in each module.
#[derive(Default)]
struct Names {
    members: BTreeMap<String, BTreeSet<String>>,
    modules: BTreeMap<String, BTreeSet<String>>,
    all: BTreeSet<String>,
}

impl Names {
    fn read() -> Self {
        let (mut names, mut files) = (Self::default(), Vec::new());
        sources(&root().join("src"), &mut files);
        for path in files {
            let module = match path.file_stem().unwrap().to_str().unwrap() {
                "mod" => path.parent().unwrap().file_name().unwrap().to_str().unwrap(),
                stem => stem,
            };
            names.read_file(module, &fs::read_to_string(&path).unwrap());
        }
        names
    }

    fn read_file(&mut self, module: &str, text: &str) {
        let own = self.modules.entry(module.to_owned()).or_default();
        let mut item = String::new();
        for line in text.lines() {
            if let Some(name) = declared(line, &["struct", "enum", "trait", "type", "fn", "mod"]) {
                own.insert(name.to_owned());
                self.all.insert(name.to_owned());
            }
            // macros declare types below their first level, so an item can be indented
            if let Some(name) = declared(line, &["struct", "enum", "trait"]) {
                name.clone_into(&mut item);
                self.members.entry(item.clone()).or_default();
            } else if let Some(head) = line.trim_start().strip_prefix("impl") {
                implemented(head).clone_into(&mut item);
            } else if line.starts_with("event_kinds! {") {
                "EventKind".clone_into(&mut item);
            } else if let Some(member) = declared(line, &["fn", "type"]) {
                self.members.entry(item.clone()).or_default().insert(member.to_owned());
            } else if line.starts_with("    ") {
                // a field, a variant, an associated constant or an argument of a macro
                let line = line.trim_start();
                let line =
                    line.strip_prefix("pub").map_or(line, |rest| rest.split_once(' ').map_or("", |(_, rest)| rest));
                let name = word(line.strip_prefix("const ").unwrap_or(line));
                self.members.entry(item.clone()).or_default().insert(name.to_owned());
            }
        }
    }

    /// Returns whether a path such as `Tokens::verifier` names something that exists, or something of another crate.
    fn has(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split("::").collect();
        let (Some(first), [.., owner, last]) = (parts.first(), parts.as_slice()) else { return true };
        if first.starts_with(char::is_lowercase) && !self.modules.contains_key(*first) && *first != "crate" {
            return true;
        }
        match self.members.get(*owner) {
            Some(members) => members.contains(*last),
            None if self.modules.contains_key(*owner) && parts.len() == 2 => self.all.contains(*last),
            None => true,
        }
    }
}

/// Returns the paths such as `Tokens::verifier` that a text has in backticks.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2).map(|code| code.split(['(', '<']).next().unwrap_or(code));
    quoted.filter(|code| code.contains("::") && code.split("::").all(|part| !part.is_empty() && word(part) == part))
}

#[test]
fn b34_every_name_in_a_document_exists() {
    let names = Names::read();
    assert!(names.members.len() > 300, "{}", names.members.len());
    let mut files = documents();
    sources(&root().join("src"), &mut files);
    let mut unknown = BTreeSet::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let is_code = path.extension().is_some_and(|extension| extension == "rs");
        // a paragraph of a comment is read as one text, because a name in backticks never spans lines
        for line in text.lines().filter(|line| !is_code || line.trim_start().starts_with("//")) {
            unknown.extend(
                paths(line).filter(|name| !names.has(name)).map(|name| format!("{name} in {}", path.display())),
            );
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn c135_every_test_in_the_list_of_standards_exists() {
    let mut files = Vec::new();
    for folder in ["src", "tests", "interop"] {
        sources(&root().join(folder), &mut files);
    }
    let mut tests = BTreeSet::new();
    for path in files {
        let text = fs::read_to_string(path).unwrap();
        let mut is_test = false;
        for line in text.lines().map(str::trim_start) {
            match declared(line, &["fn"]).filter(|_| is_test) {
                Some(name) => _ = tests.insert(name.to_owned()),
                None if line.starts_with("#[") => is_test |= line.contains("test]") || line.contains("::test("),
                None => {}
            }
            is_test &= line.starts_with("#[") || line.starts_with("//");
        }
    }
    assert!(tests.len() > 1500, "{}", tests.len());
    let text = fs::read_to_string(root().join("docs/standards.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.ends_with("shown by |"));
    let (mut named, mut unknown) = (0, Vec::new());
    for row in rows {
        let cells: Vec<&str> = row.trim_end_matches('|').split(" |").collect();
        assert_eq!(cells.len(), 4, "{row}");
        let shown = cells.last().unwrap().split('`').skip(1).step_by(2);
        let (known, others): (Vec<_>, Vec<_>) = shown.partition(|name| tests.contains(*name));
        named += known.len();
        unknown.extend(others);
        // what is implemented has a test
        assert!(!known.is_empty() || cells.get(1).is_some_and(|cell| cell.trim().is_empty()), "{row}");
    }
    assert!(unknown.is_empty() && named > 90, "{named}, {unknown:#?}");
}

#[test]
fn b34_the_crate_page_has_no_relative_links() {
    let text = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    assert!(!text.starts_with("#![doc = include_str!"), "links of the README are dead in the documentation");
    let page: String = text.lines().filter_map(|line| line.strip_prefix("//!")).collect::<Vec<_>>().join("\n");
    assert!(page.lines().count() > 20, "{page}");
    for (label, target) in links(&text_and_code(&page).0) {
        assert!(target.is_none_or(|target| !target.contains(".md")), "[{label}] leads to a file of the repository");
    }
}

#[test]
fn b34_the_page_of_the_login_names_every_parameter_of_its_start() {
    let description = fs::read_to_string(root().join("src/auth/openapi.json")).unwrap();
    let description: serde_json::Value = serde_json::from_str(&description).unwrap();
    let start = description["components"]["schemas"]["StartRequest"]["allOf"][1]["properties"].as_object().unwrap();
    assert!(start.contains_key("steps"));
    let page = fs::read_to_string(root().join("src/auth/mod.rs")).unwrap();
    let is_named = |name: &&String| page.contains(&format!("`{name}`")) || page.contains(&format!("`{name}: "));
    let missing: Vec<_> = start.keys().filter(|name| !is_named(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn b34_nothing_is_said_of_a_release_or_a_repository_that_does_not_exist() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let is_released = changelog.lines().any(|line| line.starts_with("## [") || line.starts_with("## 0"));
    assert!(is_released || !manifest.contains("repository ="), "name the repository when there is one");
    for path in documents().iter().filter(|_| !is_released) {
        let text = fs::read_to_string(path).unwrap();
        for claim in ["newest release", "latest release", "docs.rs/tollgate"] {
            assert!(!text.contains(claim), "{}: {claim}", path.display());
        }
    }
}

/// Returns the list items and the paragraphs with a bold beginning of SECURITY.md, except what is below a bold `Limits`.
fn promises(text: &str) -> Vec<String> {
    let (mut found, mut is_limit) = (Vec::new(), false);
    for paragraph in text.split("\n\n") {
        if paragraph.starts_with("**") || paragraph.starts_with('#') {
            is_limit = paragraph == "**Limits**";
        }
        let mut items: Vec<String> = Vec::new();
        for line in paragraph.lines() {
            let is_item = line.starts_with("- ") || line.starts_with(|c: char| c.is_ascii_digit());
            match items.last_mut() {
                Some(item) if !is_item => *item = format!("{item} {}", line.trim()),
                _ => items.push(line.to_owned()),
            }
        }
        let is_headline = |item: &str| item.ends_with("**") || item.ends_with(':');
        let is_promise =
            |item: &String| item.starts_with(|c: char| "*-".contains(c) || c.is_ascii_digit()) && !is_headline(item);
        found.extend(items.into_iter().filter(|item| is_promise(item) && !is_limit));
    }
    found
}

/// Returns the names of all functions of the crate and its SQL stores that follow a line such as `#[test]`.
fn test_names() -> BTreeSet<String> {
    let mut files = Vec::new();
    for folder in ["src", "tests", "crates"] {
        sources(&root().join(folder), &mut files);
    }
    let mut names = BTreeSet::new();
    for path in files {
        let mut is_test = false;
        for line in fs::read_to_string(path).unwrap().lines() {
            is_test |= line.trim_start().starts_with("#[test]") || line.trim_start().starts_with("#[tokio::test");
            if let Some(name) = declared(line, &["fn"]) {
                names.extend(is_test.then(|| name.to_owned()));
                is_test = false;
            }
        }
    }
    names
}

#[test]
fn every_promise_of_security_names_its_test_or_a_reason() {
    let text = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let tests = test_names();
    assert!(tests.len() > 1_500, "{}", tests.len());
    let promises = promises(&text);
    assert!(promises.len() > 50, "{}", promises.len());
    for promise in promises {
        let last = promise.rsplit(". ").next().unwrap();
        let has_test = last.starts_with("Shown by `") && last.ends_with("`.");
        assert!(has_test || last.starts_with("No test: "), "neither a test nor a reason: {promise}");
    }
    for shown in text.split("Shown by ").skip(1) {
        let named = shown.split_once("`.").map(|(names, _)| names.split('`').skip(1).step_by(2));
        for name in named.unwrap() {
            assert!(tests.contains(name), "there is no test {name}");
        }
    }
}
