//! Where a panic happened, for whoever catches it. In: panics of any thread; out: a line in the log, and the place on
//! request. Never writes to a descriptor itself: the log does that on a thread of its own.

use std::{
    any::Any,
    cell::RefCell,
    panic::{self, PanicHookInfo},
};

/// 512 bytes of a panic's message; the rest is cut off. A message may quote what somebody else wrote.
const MESSAGE: usize = 512;

thread_local! {
    /// Where this thread last panicked.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Has every panic logged with its place from now on. Once per process.
pub(super) fn log_places() {
    panic::set_hook(Box::new(|info: &PanicHookInfo<'_>| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, panic = describe(info.payload()), "panicked: please report it");
        // A thread that is ending has nobody left to ask it.
        let _ = PLACE.try_with(|kept| kept.replace(Some(place)));
    }));
}

/// Where this thread last panicked, if it did since this was last asked.
pub(super) fn take_place() -> Option<String> {
    PLACE.take()
}

/// The message of a panic, cut to 512 bytes.
pub(super) fn describe(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    &text[..text.floor_char_boundary(MESSAGE)]
}
