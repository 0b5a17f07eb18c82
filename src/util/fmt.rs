//! Implementations of `Debug`, `Display`, `Error` and `FromStr`, and names of variants, that would otherwise be written out for
//! each type.

/// Implements `Debug` with these fields, and `..` for the others.
macro_rules! debug_fields {
    ($name:ident $(<$($param:ident $(: $bound:path)?),+>)? { $($field:ident),+ }) => {
        $crate::util::fmt::debug_fields!($name $(<$($param $(: $bound)?),+>)?, |own| $($field: own.$field),+);
    };
    ($name:ident $(<$($param:ident $(: $bound:path)?),+>)?, |$own:ident| $($field:ident: $value:expr),+) => {
        impl $(<$($param $(: $bound)?),+>)? std::fmt::Debug for $name $(<$($param),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $own = self;
                f.debug_struct(stringify!($name))$(.field(stringify!($field), &$value))+.finish_non_exhaustive()
            }
        }
    };
}

/// Implements `Debug` with this text or value alone.
macro_rules! debug_text {
    ($name:ident $(<$($param:ident),+>)?, |$own:ident| $text:expr) => {
        impl $(<$($param),+>)? std::fmt::Debug for $name $(<$($param),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $own = self;
                f.debug_tuple(stringify!($name)).field(&$text).finish()
            }
        }
    };
}

/// Implements `Debug` for a type that shows nothing of its value.
macro_rules! opaque_debug {
    ($name:ident) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        }
    };
}

/// Implements `Display` with this text.
macro_rules! display {
    ($name:ident, |$own:ident| $text:expr) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $own = self;
                f.write_str($text)
            }
        }
    };
}

/// Implements `Error`, without a source, and `Display` with this text.
macro_rules! text_error {
    ($name:ident, |$own:ident| $text:expr) => {
        $crate::util::fmt::display!($name, |$own| $text);

        impl std::error::Error for $name {}
    };
    ($name:ident, $text:literal) => {
        $crate::util::fmt::text_error!($name, |_own| $text);
    };
}

/// Implements `FromStr` with the function `parse` of the type.
macro_rules! from_str {
    ($name:ident, $error:ident) => {
        impl std::str::FromStr for $name {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, $error> {
                Self::parse(text)
            }
        }
    };
}

/// Declares an enum with a function that returns the names, and with a list of all variants if something needs it.
///
/// ```text
/// named_enum! {
///     /// A colour.
///     #[derive(Clone, Copy)]
///     pub enum Colour {
///         /// Like the sky.
///         Blue = "blue",
///     }
///
///     /// Returns the name on the wire.
///     pub fn as_str;
///     /// All colours.
///     pub const ALL;
/// }
/// ```
macro_rules! named_enum {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident { $($(#[$of_variant:meta])* $variant:ident = $text:literal,)+ }
        $(#[$of_names:meta])* $names:vis fn as_str;
        $($(#[$of_all:meta])* $all:vis const ALL;)?
    ) => {
        $(#[$attribute])*
        $visibility enum $name {
            $($(#[$of_variant])* $variant,)+
        }

        impl $name {
            $(#[$of_names])*
            $names const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        $crate::util::fmt::named_enum! { @all $name [$($variant)+] $($(#[$of_all])* $all const ALL;)? }
    };
    (@all $name:ident [$($variant:ident)+]) => {};
    (@all $name:ident [$($variant:ident)+] $(#[$of_all:meta])* $all:vis const ALL;) => {
        impl $name {
            $(#[$of_all])*
            $all const ALL: &'static [Self] = &[$(Self::$variant),+];
        }
    };
}

pub(crate) use {debug_fields, debug_text, display, from_str, named_enum, opaque_debug, text_error};
