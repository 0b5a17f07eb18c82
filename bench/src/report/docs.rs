//! Writes generated parts into the documents, between pairs of markers.

use std::{fs, io, path::PathBuf};

/// Returns the path of a file of the project.
pub fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// Replaces the text between `<!-- name -->` and `<!-- /name -->` in a document.
///
/// # Errors
///
/// The document can't be read or written, or doesn't contain the markers.
pub fn write(document: &str, name: &str, text: &str) -> io::Result<()> {
    let path = path(document);
    let old = fs::read_to_string(&path)?;
    let new =
        replaced(&old, name, text).ok_or_else(|| io::Error::other(format!("{document} has no <!-- {name} -->")))?;
    fs::write(path, new)
}

/// Returns the document with another text between the markers, or `None` if it has no such markers.
pub fn replaced(document: &str, name: &str, text: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let (before, rest) = document.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{}\n\n{end}{after}", text.trim()))
}
