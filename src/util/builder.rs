//! Setters and `Default` of builders.

/// Declares setters: each consumes the builder, and returns it with one field changed.
///
/// ```text
/// setters! {
///     /// Sets the realm.
///     pub fn realm(realm: &str) { realm: realm.to_owned() }
/// }
/// ```
macro_rules! setters {
    ($($(#[$attribute:meta])* $visibility:vis fn $name:ident($($value:ident: $kind:ty),*) { $($field:tt).+: $new:expr })+) => {$(
        $(#[$attribute])*
        $visibility fn $name(mut self $(, $value: $kind)*) -> Self {
            self.$($field).+ = $new;
            self
        }
    )+};
}

/// Implements `Default` with the function `new` of the type.
macro_rules! default_by_new {
    ($name:ident) => {
        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }
    };
}

pub(crate) use {default_by_new, setters};
