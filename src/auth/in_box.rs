use std::pin::Pin;

/// Puts a large future into a box. Unlike `Box::pin`, this makes the box first, and the future in it: a future is as large
/// as its largest branch, and would be copied as a whole.
#[inline(always)]
pub(crate) fn in_box<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}
