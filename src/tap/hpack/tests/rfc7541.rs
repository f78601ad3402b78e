//! RFC 7541, appendix C, sections 2 to 6: blocks, fields, dynamic table and its size after each. (C.1 stands with
//! the integers.)

use super::{Decoder, Fields, decode, table};

struct Step {
    block: &'static str,
    fields: &'static [(&'static str, &'static str)],
    table: &'static [(&'static str, &'static str)],
    size: usize,
}

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

fn owned(fields: &[(&str, &str)]) -> Fields {
    fields.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

fn follow(section: &str, decoder: &mut Decoder, steps: &[Step]) {
    for (step, number) in steps.iter().zip(1..) {
        let fields = decode(decoder, &octets(step.block));
        assert_eq!(fields, Ok(owned(step.fields)), "{section}.{number}");
        assert_eq!(table(decoder), owned(step.table), "{section}.{number}: table");
        assert_eq!(decoder.table.size(), step.size, "{section}.{number}: size");
    }
}

/// A decoder whose table holds 256 octets, as in C.5 and C.6.
fn small() -> Decoder {
    let mut decoder = Decoder::new();
    assert_eq!(decode(&mut decoder, &octets("3fe101")), Ok(vec![]));
    decoder
}

#[test]
fn c2_representations() {
    let rows: &[(&str, Step)] = &[
        (
            "C.2.1: literal with indexing",
            Step {
                block: "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
                fields: &[("custom-key", "custom-header")],
                table: &[("custom-key", "custom-header")],
                size: 55,
            },
        ),
        (
            "C.2.2: literal without indexing",
            Step {
                block: "040c 2f73 616d 706c 652f 7061 7468",
                fields: &[(":path", "/sample/path")],
                table: &[],
                size: 0,
            },
        ),
        (
            "C.2.3: literal never indexed",
            Step {
                block: "1008 7061 7373 776f 7264 0673 6563 7265 74",
                fields: &[("password", "secret")],
                table: &[],
                size: 0,
            },
        ),
        ("C.2.4: indexed", Step { block: "82", fields: &[(":method", "GET")], table: &[], size: 0 }),
    ];
    for (section, step) in rows {
        follow(section, &mut Decoder::new(), std::slice::from_ref(step));
    }
}

/// C.3 and C.4 are the same requests, without and with Huffman coding.
fn requests(blocks: [&'static str; 3]) -> [Step; 3] {
    [
        Step {
            block: blocks[0],
            fields: &[
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/"),
                (":authority", "www.example.com"),
            ],
            table: &[(":authority", "www.example.com")],
            size: 57,
        },
        Step {
            block: blocks[1],
            fields: &[
                (":method", "GET"),
                (":scheme", "http"),
                (":path", "/"),
                (":authority", "www.example.com"),
                ("cache-control", "no-cache"),
            ],
            table: &[("cache-control", "no-cache"), (":authority", "www.example.com")],
            size: 110,
        },
        Step {
            block: blocks[2],
            fields: &[
                (":method", "GET"),
                (":scheme", "https"),
                (":path", "/index.html"),
                (":authority", "www.example.com"),
                ("custom-key", "custom-value"),
            ],
            table: &[
                ("custom-key", "custom-value"),
                ("cache-control", "no-cache"),
                (":authority", "www.example.com"),
            ],
            size: 164,
        },
    ]
}

#[test]
fn c3_requests_without_huffman() {
    let steps = requests([
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ]);
    follow("C.3", &mut Decoder::new(), &steps);
}

#[test]
fn c4_requests_with_huffman() {
    let steps = requests([
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ]);
    follow("C.4", &mut Decoder::new(), &steps);
}

const EARLY: (&str, &str) = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
const LATE: (&str, &str) = ("date", "Mon, 21 Oct 2013 20:13:22 GMT");
const LOCATION: (&str, &str) = ("location", "https://www.example.com");
const PRIVATE: (&str, &str) = ("cache-control", "private");
const ENCODING: (&str, &str) = ("content-encoding", "gzip");
const COOKIE: (&str, &str) = ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");

/// C.5 and C.6 are the same responses, without and with Huffman coding.
fn responses(blocks: [&'static str; 3]) -> [Step; 3] {
    [
        Step {
            block: blocks[0],
            fields: &[(":status", "302"), PRIVATE, EARLY, LOCATION],
            table: &[LOCATION, EARLY, PRIVATE, (":status", "302")],
            size: 222,
        },
        Step {
            block: blocks[1],
            fields: &[(":status", "307"), PRIVATE, EARLY, LOCATION],
            table: &[(":status", "307"), LOCATION, EARLY, PRIVATE],
            size: 222,
        },
        Step {
            block: blocks[2],
            fields: &[(":status", "200"), PRIVATE, LATE, LOCATION, ENCODING, COOKIE],
            table: &[COOKIE, ENCODING, LATE],
            size: 215,
        },
    ]
}

#[test]
fn c5_responses_with_eviction_without_huffman() {
    let steps = responses([
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a
         3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04
         677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49
         553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ]);
    follow("C.5", &mut small(), &steps);
}

#[test]
fn c6_responses_with_eviction_with_huffman() {
    let steps = responses([
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e
         919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7
         821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed
         4ee5 b106 3d50 07",
    ]);
    follow("C.6", &mut small(), &steps);
}
