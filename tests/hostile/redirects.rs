//! Row 9: a redirect leads to no other port of the node.
