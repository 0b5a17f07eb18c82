//! Checks that every line of `checklist.md` is covered by a test with its number in the name, such as `c045`, or listed
//! there with the reason, and that every number in a test name has a line.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests may panic")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

const LINES: u32 = 138;

/// The numbers that appear in a text as `cNNN`.
fn numbers(text: &str) -> BTreeSet<u32> {
    let bytes = text.as_bytes();
    let word = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphanumeric);
    let begins = |at: usize| bytes[at] == b'c' && (at == 0 || !word(at - 1));
    let number = |at: usize| text.get(at + 1..at + 4)?.parse::<u32>().ok().filter(|line| *line > 0 && !word(at + 4));
    (0..bytes.len()).filter(|at| begins(*at)).filter_map(number).collect()
}

/// Calls a function with the text of each Rust file below a folder, except this one.
fn read_all(folder: &Path, read: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, read);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests/checklist.rs") {
            read(&path, &fs::read_to_string(&path).unwrap());
        }
    }
}

/// Returns the words such as `c045` and `a01` at the beginning of the name of a function.
fn labels(name: &str) -> impl Iterator<Item = &str> {
    let is_label = |word: &&str| {
        let digits = word.get(1..).unwrap_or("");
        let expected = if word.starts_with('c') { 3 } else { 2 };
        word.starts_with(['a', 'b', 'c']) && digits.len() == expected && digits.bytes().all(|b| b.is_ascii_digit())
    };
    name.split('_').take_while(is_label)
}

/// The numbers in lines such as `- c001–c009: text` or `- c024: text`.
fn listed(text: &str) -> BTreeSet<u32> {
    let mut explained = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with("- c")) {
        let (range, why) = line.split_once(": ").unwrap_or_else(|| panic!("no text: {line}"));
        assert!(!why.trim().is_empty(), "no text: {line}");
        let ends = numbers(range);
        let (first, last) = (ends.first().unwrap(), ends.last().unwrap());
        explained.extend(*first..=*last);
    }
    explained
}

#[test]
fn every_line_is_tested_or_explained() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut proved = BTreeMap::new();
    let mut read = |path: &Path, text: &str| {
        proved.extend(numbers(text).into_iter().map(|number| (number, path.display().to_string())));
    };
    read_all(&root.join("src"), &mut read);
    read_all(&root.join("tests"), &mut read);
    let text = fs::read_to_string(root.join("tests/checklist.md")).unwrap();
    let (legend, not_tested) = text.split_once("## Not tested").unwrap();
    assert!(listed(legend).iter().copied().eq(1..=LINES), "the list does not have all of {LINES} lines");
    let explained = listed(not_tested);
    let missing: Vec<_> = (1..=LINES).filter(|line| !proved.contains_key(line) && !explained.contains(line)).collect();
    assert!(missing.is_empty(), "neither tested nor explained: {missing:?}");
    let needless: Vec<_> = explained.iter().filter_map(|line| Some((line, proved.get(line)?))).collect();
    assert!(needless.is_empty(), "tested, so remove the explanation: {needless:?}");
    assert!(proved.keys().chain(&explained).all(|line| (1..=LINES).contains(line)), "there are {LINES} lines");
}

#[test]
fn every_number_in_a_test_name_has_one_line() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("tests/checklist.md")).unwrap();
    let (legend, _) = text.split_once("## Not tested").unwrap();
    let mut lines = BTreeSet::new();
    for (label, meaning) in legend.lines().filter_map(|line| line.strip_prefix("- ")?.split_once(": ")) {
        assert_eq!(labels(label).count(), 1, "no number: {label}");
        assert!(!meaning.trim().is_empty(), "no text: {label}");
        assert!(lines.insert(label.to_owned()), "two lines: {label}");
    }
    let mut used = BTreeMap::new();
    let mut read = |_: &Path, text: &str| {
        for name in text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next()) {
            used.extend(labels(name).map(|label| (label.to_owned(), name.to_owned())));
        }
    };
    for folder in ["src", "tests", "crates", "interop/tests", "bench", "models"] {
        read_all(&root.join(folder), &mut read);
    }
    assert!(used.len() > 150, "{}", used.len());
    let unexplained: Vec<_> = used.iter().filter(|(label, _)| !lines.contains(*label)).collect();
    assert!(unexplained.is_empty(), "without a line: {unexplained:?}");
    let unused: Vec<_> = lines.iter().filter(|line| !line.starts_with('c') && !used.contains_key(*line)).collect();
    assert!(unused.is_empty(), "without a test: {unused:?}");
}

#[test]
fn numbers_are_found_as_words() {
    assert!(labels("b08_c131_a01_c12_c131_x").eq(["b08", "c131", "a01"]));
    assert_eq!(numbers("fn c012_c013_x() // c126: abc999 c1 c0145 xc001"), BTreeSet::from([12, 13, 126]));
}
