//! Row 15: too few descriptors are our own want, never the pod's failure.
