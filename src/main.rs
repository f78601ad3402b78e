//! The command `criprobe`: arguments in, an exit code out.
fn main() {}
