//! The protocols that criprobe speaks, generated from `proto/`; what `Debug` shows of them; how much of a message is kept;
//! calls whose messages are passed on in their encoded form; and the readers for messages that arrive in pieces.

pub mod encoded;
pub mod exec;
pub mod grpc;
pub mod trim;
pub mod walk;

use std::fmt;

/// `runtime.v1`: the part of the CRI that we decode, ask for, or serve.
#[allow(missing_docs, clippy::all, unreachable_pub, rust_2018_idioms)]
pub mod cri {
    tonic::include_proto!("runtime.v1");
}

/// containerd's own services: its events, and what is below.
#[allow(missing_docs, clippy::all, unreachable_pub, rust_2018_idioms)]
pub mod containerd {
    tonic::include_proto!("containerd.services.events.v1");

    /// Its content store.
    pub mod content {
        tonic::include_proto!("containerd.services.content.v1");
    }

    /// Payloads of the events.
    pub mod events {
        tonic::include_proto!("containerd.events");
    }

    /// The processes of its containers.
    pub mod tasks {
        tonic::include_proto!("containerd.services.tasks.v1");
    }
}

/// The gRPC health protocol.
#[allow(missing_docs, clippy::all, unreachable_pub, rust_2018_idioms)]
pub mod health {
    tonic::include_proto!("grpc.health.v1");
}

/// Messages that may hold secrets print their name, and nothing that a person could misuse.
macro_rules! reveal_only {
    ($($message:ident { $($field:ident),* }),* $(,)?) => {$(
        impl fmt::Debug for cri::$message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($message))$(.field(stringify!($field), &self.$field))*.finish_non_exhaustive()
            }
        }
    )*};
}

reveal_only! {
    KeyValue { key },
    AuthConfig {},
    ExecResponse {},
    AttachResponse {},
    PortForwardResponse {},
    ExecSyncResponse { exit_code },
    ContainerStatusResponse { status },
}
