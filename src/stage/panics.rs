//! The place of a panic, for the code that catches it: the panic hook stores the place here, and the code that catches
//! the panic takes it. Never logs.

use std::{any::Any, cell::RefCell, panic::PanicHookInfo};

/// 512 bytes of a panic's message; the rest is cut off. A message may quote what somebody else wrote.
const MESSAGE: usize = 512;

thread_local! {
    /// Where this thread last panicked.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the place of a panic for [`take_place`], and returns it.
pub(crate) fn keep_place(panic: &PanicHookInfo<'_>) -> Option<String> {
    let place = panic.location().map(ToString::to_string);
    // On a thread that is ending nothing is left that could catch the panic.
    let _ = PLACE.try_with(|kept| kept.replace(place.clone()));
    place
}

/// Where this thread last panicked, if it did since this was last asked.
pub(crate) fn take_place() -> Option<String> {
    PLACE.take()
}

/// The message of a panic, cut to 512 bytes.
pub(crate) fn describe(payload: &dyn Any) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    &text[..text.floor_char_boundary(MESSAGE)]
}
