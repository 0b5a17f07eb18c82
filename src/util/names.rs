//! Enums whose variants have stable names.

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

        $crate::util::names::named_enum! { @all $name [$($variant)+] $($(#[$of_all])* $all const ALL;)? }
    };
    (@all $name:ident [$($variant:ident)+]) => {};
    (@all $name:ident [$($variant:ident)+] $(#[$of_all:meta])* $all:vis const ALL;) => {
        impl $name {
            $(#[$of_all])*
            $all const ALL: &'static [Self] = &[$(Self::$variant),+];
        }
    };
}

pub(crate) use named_enum;
