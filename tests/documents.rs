//! The documents as web pages show them: no dead link, and no line that only rustdoc hides.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::{
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
    assert!(rows.len() > 50, "{}", rows.len());
    for row in rows {
        let mut folder = PathBuf::new();
        for name in row.split('`').skip(1).step_by(2).filter(|name| name.contains(['.', '/']) && !name.contains(' ')) {
            // a name without a folder is a neighbour of the one before
            if name.contains('/') {
                folder = Path::new(name).parent().unwrap().to_path_buf();
            }
            let path = if name.contains('/') { PathBuf::from(name) } else { folder.join(name) };
            let exists = root().join("src").join(&path).exists() || root().join(&path).exists();
            assert!(exists, "{}: {row}", path.display());
        }
    }
}
