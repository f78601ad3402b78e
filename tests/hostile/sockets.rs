//! Rows 14 and 19b: sockets, locks and folders that others may touch, and starts right after a kill.
