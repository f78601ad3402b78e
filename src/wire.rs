//! What is on the wire: the bytes of a connection in, calls out; and what that is made of. A crate of its own, because it is
//! compiled to be fast, and everything else to be small. `criprobe` re-exports all of it: `crate::tap` there is this one.

pub mod carry;
pub mod clock;
pub mod count;
pub mod ids;
pub mod peer;
pub mod proto;
pub mod relay;
pub mod tap;
