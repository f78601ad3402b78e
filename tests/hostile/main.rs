//! What pods' authors, peers, runtimes, logs, disks and clocks may do to criprobe, and what must hold all the same. Each
//! test is named after the row of the review that proved the opposite (docs/security.md).

#[path = "../support/mod.rs"]
#[allow(dead_code)]
mod support;

/// The embedded runtime and a daemon in front of it.
#[path = "../daemon/rig.rs"]
#[allow(dead_code)]
mod rig;

/// A runtime that speaks as little HTTP/2 as a test needs.
mod made_up;

/// Texts that multiply, and commands that grow: rows 1, 2 and 3.
mod texts;

/// Events that push out others: row 2.
mod events;

/// Outputs of megabytes, again and again: row 2.
mod floods;

/// Error texts of megabytes in header blocks: row 2.
mod headers;

/// Places held by commands and servers that never end: rows 4 and 5.
mod places;

/// Connections that peers keep in the kernel: row 5.
mod connections;

/// A log that is not read: row 6.
mod log;

/// Runtimes that answer in unusual ways: rows 7, 8 and 11.
mod presence;

/// Redirects to other ports: row 9.
mod redirects;

/// Statuses that never come: row 20.
mod statuses;

/// Statuses that fail again and again, and large values of variables: rows 3 and 20.
mod variables;

/// Pods with one uid: row 10.
mod uids;

/// More probes than there may be: rows 4 and 10.
mod quota;

/// Stops whose end was lost: row 12.
mod stops;

/// Stages that panic: row 13.
mod stages;

/// Sockets, locks and folders that others may touch: rows 14 and 19b.
mod sockets;

/// Too few descriptors: row 15.
mod descriptors;

/// A runtime that stands still: rows 15a and 19a.
mod frozen;

/// Labels and annotations of megabytes: row 16.
mod memory;

/// Long annotations of pods whose own probes are observed: row 16.
mod manifests;

/// Images that are known by their id: row 17.
mod images;

/// A disk that is full: row 18.
mod disk;

/// A clock that is set back: row 19.
mod clock;

/// Too many questions: row 20.
mod questions;
