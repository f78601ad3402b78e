//! What the benches have in common: their flags, the processes that they start, and how they show what they found.

#[path = "prober/figure.rs"]
pub(crate) mod figure;
#[path = "relay/flags.rs"]
pub(crate) mod flags;
#[path = "relay/machine.rs"]
pub(crate) mod machine;
#[path = "relay/process.rs"]
pub(crate) mod process;
#[path = "relay/table.rs"]
pub(crate) mod table;
