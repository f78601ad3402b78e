//! What the tap costs: the decoder alone, on the bytes of connections as grpc-go and containerd write them.
//!
//! `cargo bench -p criprobe-bench --bench tap` prints the time per call, and whether it stays within the budget.
//! Nothing is relayed: the chunks are fed as the relay would pass them on, each with a reading of the clock, and the
//! events are dropped. It is the median of many short batches, so that other programs on the machine disturb little;
//! nothing here waits, so it is CPU time.

use std::{collections::VecDeque, process::ExitCode, sync::Arc, time::Duration};

use criprobe::{
    clock,
    ids::ConnId,
    peer::Peer,
    tap::{Tap, TapEvent},
};

/// 2 us of CPU a call: DESIGN.md, hot path.
const BUDGET: Duration = Duration::from_micros(2);

/// Calls of one kind of traffic.
const CALLS: usize = 100_000;

/// 1 MiB is written before the clock runs: about what a cache holds, as what comes out of a socket is in it, too.
const BATCH_BYTES: usize = 1 << 20;

const CONTAINER: &str = "7a6338369653ed774cb2a4064cf1605f1c2dc75d56e4f7e7a22aadac68d0a901";

fn main() -> ExitCode {
    let id = field(1, CONTAINER.as_bytes());
    let probe = [&id[..], &field(2, b"cat"), &field(2, b"/tmp/healthy"), &[3 << 3, 1]].concat();
    let version = Traffic { method: "Version", request: field(1, b"0.1.0"), answer: vec![7; 35] };
    let list = Traffic { method: "ListContainers", request: vec![], answer: vec![7; 80_000] };
    let status = Traffic { method: "PodSandboxStatus", request: id.clone(), answer: vec![7; 330] };
    let of_container = Traffic { method: "ContainerStatus", request: id, answer: vec![7; 1_200] };
    let exec = Traffic { method: "ExecSync", request: probe, answer: field(1, b"ok\n") };
    let rows: [(&str, &[&Traffic]); 6] = [
        ("skipped: Version", &[&version]),
        ("skipped: PodSandboxStatus", &[&status]),
        ("skipped: ListContainers, 80 KB", &[&list]),
        ("skipped: all three in turn", &[&version, &list, &status]),
        ("ContainerStatus", &[&of_container]),
        ("ExecSync", &[&exec]),
    ];
    let mut is_within = true;
    println!("CPU of the tap per call, {CALLS} calls each, budget {} ns", BUDGET.as_nanos());
    for (name, traffic) in rows {
        for in_flight in [1, 32] {
            let (each, events) = measure(traffic, in_flight);
            assert_eq!(events, 2 * CALLS, "every call is reported twice");
            is_within &= each <= BUDGET;
            let verdict = if each <= BUDGET { "ok" } else { "MISSED" };
            println!("  {name:32} {in_flight:3} in flight {:6} ns  {verdict}", each.as_nanos());
        }
    }
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Time per call, the median of all batches, and how many events were told.
fn measure(traffic: &[&Traffic], in_flight: usize) -> (Duration, usize) {
    let mut tap = Tap::new(ConnId(1), Arc::new(Peer::default()));
    let mut connection = Connection::default();
    let mut events = 0;
    let mut count = |_: TapEvent| events += 1;
    for (is_client, bytes) in connection.opening() {
        feed(&mut tap, is_client, &bytes, &mut count);
    }
    let largest = traffic.iter().map(|traffic| traffic.answer.len()).max().unwrap_or_default();
    let batch = (BATCH_BYTES / (largest + 500)).next_multiple_of(in_flight);
    let mut spent = vec![];
    let mut call = 0;
    while call < CALLS {
        let first = call;
        let until = (call + batch).min(CALLS);
        let mut chunks = vec![];
        while call < until {
            let together: Vec<_> = (call..until.min(call + in_flight)).collect();
            for &call in &together {
                connection.request(call, traffic[call % traffic.len()], &mut chunks);
            }
            for &call in &together {
                connection.answer(call, traffic[call % traffic.len()], &mut chunks);
            }
            call += together.len();
        }
        let start = clock::now();
        for (is_client, bytes) in &chunks {
            feed(&mut tap, *is_client, bytes, &mut count);
        }
        spent.push((clock::now() - start) / (call - first) as u32);
    }
    assert_eq!(tap.blindness(), None);
    spent.sort_unstable();
    (spent[spent.len() / 2], events)
}

fn feed(tap: &mut Tap, is_client: bool, bytes: &[u8], count: &mut impl FnMut(TapEvent)) {
    let now = clock::now();
    if is_client {
        tap.client_bytes(bytes, now, count);
    } else {
        tap.runtime_bytes(bytes, now, count);
    }
}

/// One method's messages.
struct Traffic {
    method: &'static str,
    request: Vec<u8>,
    answer: Vec<u8>,
}

/// The two encoders of one connection.
#[derive(Default)]
struct Connection {
    client: Encoder,
    runtime: Encoder,
}

type Chunk = (bool, Vec<u8>);

impl Connection {
    fn opening(&self) -> Vec<Chunk> {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let client = [preface, frame(4, 0, 0, &[])].concat();
        vec![(true, client), (false, frame(4, 0, 0, &[0, 5, 0, 0, 64, 0])), (true, frame(4, 1, 0, &[]))]
    }

    /// What grpc-go sends: fields that stay are indexed, the timeout enters the table again each time.
    fn request(&mut self, call: usize, traffic: &Traffic, chunks: &mut Vec<Chunk>) {
        let path = format!("/runtime.v1.RuntimeService/{}", traffic.method);
        let timeout = format!("{}u", 119_999_999 - call);
        let mut block = vec![0x83, 0x86];
        let fields = [
            (":path", &*path),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("user-agent", "grpc-go/1.72.2"),
            ("te", "trailers"),
            ("grpc-timeout", &timeout),
        ];
        for (name, value) in fields {
            self.client.field(name, value, &mut block);
        }
        let stream = 2 * call as u32 + 1;
        chunks.push((
            true,
            [frame(1, 4, stream, &block), frame(0, 1, stream, &message(&traffic.request))].concat(),
        ));
        // The runtime returns the window and measures the way.
        chunks.push((false, [frame(8, 0, 0, &[0, 0, 0, 9]), frame(6, 0, 0, &[2; 8])].concat()));
        chunks.push((true, frame(6, 1, 0, &[2; 8])));
    }

    /// What containerd answers, in DATA frames of 16 KiB and chunks of 64 KiB.
    fn answer(&mut self, call: usize, traffic: &Traffic, chunks: &mut Vec<Chunk>) {
        let stream = 2 * call as u32 + 1;
        let mut block = vec![0x88];
        self.runtime.field("content-type", "application/grpc", &mut block);
        let mut bytes = frame(1, 4, stream, &block);
        for data in message(&traffic.answer).chunks(16_384) {
            bytes.extend(frame(0, 0, stream, data));
        }
        block.clear();
        self.runtime.field("grpc-status", "0", &mut block);
        self.runtime.field("grpc-message", "", &mut block);
        bytes.extend(frame(1, 5, stream, &block));
        chunks.extend(bytes.chunks(65_536).map(|chunk| (false, chunk.to_vec())));
    }
}

/// Sends each field by its index where it has one, else as a Huffman-coded literal that enters the table.
#[derive(Default)]
struct Encoder {
    /// Newest first.
    table: VecDeque<(String, String)>,
    size: usize,
}

impl Encoder {
    fn field(&mut self, name: &str, value: &str, block: &mut Vec<u8>) {
        let known = self.table.iter().position(|field| (&*field.0, &*field.1) == (name, value));
        if let Some(at) = known {
            return integer(at + 62, 7, 0x80, block);
        }
        let in_static = [(":authority", 1), (":path", 4), ("content-type", 31), ("user-agent", 58)];
        let in_static = in_static.iter().find(|known| known.0 == name).map(|known| known.1);
        let in_table = || self.table.iter().position(|field| field.0 == name).map(|at| at + 62);
        match in_static.or_else(in_table) {
            Some(index) => integer(index, 6, 0x40, block),
            None => {
                block.push(0x40);
                string(name, block);
            }
        }
        string(value, block);
        self.size += name.len() + value.len() + 32;
        self.table.push_front((name.to_owned(), value.to_owned()));
        while self.size > 4096 {
            let (name, value) = self.table.pop_back().expect("what has a size has entries");
            self.size -= name.len() + value.len() + 32;
        }
    }
}

fn string(text: &str, block: &mut Vec<u8>) {
    let coded = huffman(text);
    integer(coded.len(), 7, 0x80, block);
    block.extend(coded);
}

fn integer(value: usize, prefix: u32, first: u8, block: &mut Vec<u8>) {
    let mask = (1 << prefix) - 1;
    if value < mask {
        return block.push(first | value as u8);
    }
    block.push(first | mask as u8);
    let mut rest = value - mask;
    while rest >= 128 {
        block.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}

/// HPACK's code for what header fields here are made of. It is canonical, so that the lengths say it all.
fn huffman(text: &str) -> Vec<u8> {
    const BY_LENGTH: [(u32, &str); 4] = [
        (5, "012aceiost"),
        (6, " %-./3456789=A_bdfghlmnpru"),
        (7, ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
        (8, "&*,;XZ"),
    ];
    let mut coded = vec![];
    let (mut window, mut held) = (0_u64, 0);
    for letter in text.chars() {
        let mut code = 0;
        let mut bits = 0;
        for (length, letters) in BY_LENGTH {
            code <<= length - bits;
            bits = length;
            match letters.find(letter) {
                Some(at) => {
                    code += at as u64;
                    break;
                }
                None => code += letters.len() as u64,
            }
        }
        window = window << bits | code;
        held += bits;
        while held >= 8 {
            held -= 8;
            coded.push((window >> held) as u8);
        }
    }
    if held > 0 {
        coded.push(((window << (8 - held)) as u8) | (0xff >> held));
    }
    coded
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A gRPC message with its head.
fn message(body: &[u8]) -> Vec<u8> {
    [&[0][..], &(body.len() as u32).to_be_bytes(), body].concat()
}

/// A length-delimited protobuf field of less than 128 bytes.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, value.len() as u8], value].concat()
}
