//! Removes parts of a TOML document by their places, so that the rest can be read.

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue},
};

/// A setting, or an entry of a list, that was removed.
pub(crate) struct Removed {
    pub(crate) path: Vec<String>,
    /// The place of the table that had it.
    pub(crate) table: Range<usize>,
}

/// Removes the key or the value at this place, if there is one.
pub(crate) fn remove(table: &mut DeTable<'_>, place: &Range<usize>, span: &Range<usize>) -> Option<Removed> {
    for (key, value) in table.iter_mut() {
        let place = value.span();
        if let Some(mut removed) = remove_within(value.get_mut(), &place, span) {
            removed.path.insert(0, key.get_ref().to_string());
            return Some(removed);
        }
    }
    let is_there = |(key, value): &(&Spanned<_>, &Spanned<_>)| key.span() == *span || value.span() == *span;
    let key = table.iter().find(is_there)?.0.clone();
    table.remove(&key);
    Some(Removed { path: vec![key.get_ref().to_string()], table: place.clone() })
}

fn remove_within(value: &mut DeValue<'_>, place: &Range<usize>, span: &Range<usize>) -> Option<Removed> {
    match value {
        DeValue::Table(table) => remove(table, place, span),
        DeValue::Array(values) => {
            let within = values.iter_mut().find_map(|value| {
                let place = value.span();
                remove_within(value.get_mut(), &place, span)
            });
            within.or_else(|| {
                let is_there = values.iter().any(|value| value.span() == *span);
                let all = std::mem::replace(values, DeArray::new());
                *values = all.into_iter().filter(|value| value.span() != *span).collect();
                is_there.then(|| Removed { path: Vec::new(), table: place.clone() })
            })
        }
        _ => None,
    }
}
