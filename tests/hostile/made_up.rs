//! A runtime that a test makes up: as much HTTP/2 as it takes to answer every call like Version, and what a test wants
//! beside. Each connection has a thread, which ends with the connection.

use std::{
    io::{self, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    thread,
};

use anyhow::Result;
use criprobe::proto::cri::VersionResponse;
use prost::Message;
use tempfile::TempDir;

/// A call of this path is never answered: the runtime sends a GOAWAY that allows streams up to 3, and reads on.
pub(crate) const HOLD: &str = "/hold";

/// After a call of this path the runtime answers no more calls of the connection, and reads on.
pub(crate) const HANG: &str = "/hang";

/// After a call of this path the runtime reads no more of the connection, as if it were frozen.
pub(crate) const FREEZE: &str = "/freeze";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RESET: u8 = 3;
const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;

const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// A frame as it was read.
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// Starts one in a folder of its own; it serves until the process ends.
pub(crate) fn start() -> Result<(PathBuf, TempDir)> {
    let dir = tempfile::Builder::new().prefix("criprobe-rt-").tempdir()?;
    let path = dir.path().join("rt.sock");
    let listener = UnixListener::bind(&path)?;
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(stream));
        }
    });
    Ok((path, dir))
}

/// A client's end of a new connection, its preface sent.
pub(crate) fn connect(socket: &Path) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[]))?;
    Ok(stream)
}

/// The header block of a call, all of it literal.
pub(crate) fn call(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x04, path.len() as u8];
    block.extend(path.bytes());
    block
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The next frame.
///
/// # Errors
/// The connection is over.
pub(crate) fn read_frame(stream: &mut UnixStream) -> io::Result<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head)?;
    let [a, b, c, kind, flags, id @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    stream.read_exact(&mut payload)?;
    Ok(Frame { kind, flags, stream: u32::from_be_bytes(id), payload })
}

fn serve(mut stream: UnixStream) -> io::Result<()> {
    stream.read_exact(&mut [0; 24])?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[]))?;
    let mut hangs = false;
    loop {
        let read = read_frame(&mut stream)?;
        let asks = |path: &str| read.payload.windows(path.len()).any(|window| window == path.as_bytes());
        match read.kind {
            SETTINGS | PING if read.flags & ACK == 0 => {
                let echo: &[u8] = if read.kind == PING { &read.payload } else { &[] };
                stream.write_all(&frame(read.kind, ACK, 0, echo))?;
            }
            HEADERS if asks(HOLD) => {
                stream.write_all(&frame(GOAWAY, 0, 0, &[0, 0, 0, 3, 0, 0, 0, 0]))?;
            }
            HEADERS if asks(HANG) => hangs = true,
            HEADERS if asks(FREEZE) => loop {
                thread::park();
            },
            DATA | HEADERS if read.flags & END_STREAM != 0 && !hangs => {
                stream.write_all(&answer(read.stream))?;
            }
            _ => {}
        }
    }
}

fn answer(stream: u32) -> Vec<u8> {
    let version = VersionResponse {
        version: "0.1.0".to_owned(),
        runtime_name: "made-up".to_owned(),
        runtime_version: "1".to_owned(),
        runtime_api_version: "v1".to_owned(),
    }
    .encode_to_vec();
    let mut head = vec![0x88, 0x0f, 0x10, 16];
    head.extend(b"application/grpc");
    let mut message = vec![0];
    message.extend((version.len() as u32).to_be_bytes());
    message.extend(version);
    let mut trailers = vec![0x00, 11];
    trailers.extend(b"grpc-status");
    trailers.extend([1, b'0']);
    let mut bytes = frame(HEADERS, END_HEADERS, stream, &head);
    bytes.extend(frame(DATA, 0, stream, &message));
    bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &trailers));
    bytes
}
