//! What runs on the node: pods and their containers, as the runtime and the passing calls tell.

pub mod view;
