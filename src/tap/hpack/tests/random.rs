//! Properties: random octets never panic, random field lists come out as they went in, and a second implementation
//! agrees.

use proptest::{collection::vec, prelude::*, sample::select};

use super::{
    super::*,
    Fields, decode,
    encoder::{self, Choice, Encoder},
    outcome, table, texts,
};

/// Few enough names that fields meet again.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let known = [":path", ":status", "grpc-timeout", "grpc-status", "cookie", "x-a", "x-b", ""];
    prop_oneof![
        6 => select(known.map(|name| name.as_bytes().to_vec()).to_vec()),
        1 => vec(any::<u8>(), 0..40),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let known = ["/", "/runtime.v1.RuntimeService/Version", "200", "0", "119999999u", ""];
    prop_oneof![
        6 => select(known.map(|value| value.as_bytes().to_vec()).to_vec()),
        2 => vec(any::<u8>(), 0..60),
        1 => vec(any::<u8>(), 900..1500),
    ]
}

fn choice() -> impl Strategy<Value = Choice> {
    (any::<bool>(), 0..3_u8, any::<bool>(), any::<bool>()).prop_map(
        |(use_index, form, code_name, code_value)| Choice { use_index, form, code_name, code_value },
    )
}

/// A field that asks for as much as its octets can: a long name, an entry with the name of another, an entry.
fn costly_field() -> impl Strategy<Value = Vec<u8>> {
    let string = |octets: usize, block: &mut Vec<u8>| {
        encoder::integer(octets as u32, 7, 0, block);
        block.extend(vec![b'x'; octets]);
    };
    prop_oneof![
        1 => (0..20_000_usize, 0..40_usize).prop_map(move |(name, value)| {
            let mut block = vec![0x40];
            string(name, &mut block);
            string(value, &mut block);
            block
        }),
        20 => (62..70_u32, 0..3_usize).prop_map(move |(index, value)| {
            let mut block = Vec::new();
            encoder::integer(index, 6, 0x40, &mut block);
            string(value, &mut block);
            block
        }),
        2 => (62..70_u32).prop_map(|index| {
            let mut block = Vec::new();
            encoder::integer(index, 7, 0x80, &mut block);
            block
        }),
    ]
}

/// Longer than what is read of a string that does not fit a small table, or the usual one.
fn long_value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => value(),
        2 => (any::<u8>(), 0..400_usize).prop_map(|(octet, length)| vec![octet; length]),
        1 => (any::<u8>(), 15_000..17_000_usize).prop_map(|(octet, length)| vec![octet; length]),
    ]
}

/// A row of blocks for a table that is small most of the time.
fn long_block() -> impl Strategy<Value = Block> {
    let name = prop_oneof![8 => name(), 1 => long_value()];
    let capacities = prop_oneof![4 => Just(vec![]), 4 => vec(0..120_u32, 1..3), 1 => Just(vec![4096])];
    (capacities, vec((name, long_value(), choice()), 1..6))
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![3 => 1..4_usize, 3 => 1..100_usize, 1 => 1..10_000_usize], 1..12)
}

type Block = (Vec<u32>, Vec<(Vec<u8>, Vec<u8>, Choice)>);

fn block() -> impl Strategy<Value = Block> {
    let capacities = prop_oneof![8 => Just(vec![]), 1 => vec(0..4097_u32, 1..3)];
    (capacities, vec((name(), value(), choice()), 1..12))
}

fn encode(encoder: &mut Encoder, capacities: Vec<u32>, fields: &[(Vec<u8>, Vec<u8>, Choice)]) -> Vec<u8> {
    let mut octets = Vec::new();
    for capacity in capacities {
        encoder.resize(capacity, &mut octets);
    }
    for (name, value, choice) in fields {
        encoder.field(name, value, *choice, &mut octets);
    }
    octets
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_was_encoded_in_any_way_comes_out(blocks in vec(block(), 1..20)) {
        let mut encoder = Encoder::new();
        let mut ours = Decoder::new();
        let mut theirs = loona_hpack::Decoder::new();
        for (capacities, fields) in blocks {
            let octets = encode(&mut encoder, capacities, &fields);
            let fields: Fields = fields.into_iter().map(|(name, value, _)| (name, value)).collect();
            prop_assert_eq!(&decode(&mut ours, &octets).unwrap(), &fields);
            prop_assert_eq!(&theirs.decode(&octets).unwrap(), &fields);
            prop_assert_eq!(table(&ours), encoder.table());
            prop_assert_eq!(ours.table.size(), encoder.size());
        }
    }

    #[test]
    fn any_fragments_of_a_block_bring_what_the_whole_brings(
        blocks in vec(long_block(), 1..8),
        sizes in sizes(),
        beginning in 1..40_usize,
    ) {
        let mut encoder = Encoder::new();
        let mut theirs = loona_hpack::Decoder::new();
        let mut whole = Decoder::with_beginning(beginning);
        let mut cut = Decoder::with_beginning(beginning);
        for (capacities, fields) in blocks {
            let octets = encode(&mut encoder, capacities, &fields);
            let mut read = Fields::new();
            whole.decode(&octets, true, |field| read.push(texts(field).unwrap())).unwrap();
            prop_assert_eq!(read.len(), fields.len());
            for (field, (name, value, _)) in read.iter().zip(&fields) {
                // A long one is read up to a code that is cut.
                prop_assert!(name.starts_with(&field.0) && value.starts_with(&field.1));
                prop_assert!(field.0.len() == name.len() || field.0.len() * 30 / 8 + 4 >= beginning);
                prop_assert!(field.1.len() == value.len() || field.1.len() * 30 / 8 + 4 >= beginning);
            }
            let mut cut_read = Fields::new();
            let mut rest = &octets[..];
            for size in sizes.iter().cycle() {
                let (fragment, after) = rest.split_at(rest.len().min(*size));
                rest = after;
                cut.decode(fragment, rest.is_empty(), |field| cut_read.push(texts(field).unwrap())).unwrap();
                let most = (cut.table.capacity() * 15 / 4).max(beginning).max(4096) + beginning + 100;
                prop_assert!(cut.kept() <= most, "{} of {}", cut.kept(), most);
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(cut_read, read);
            let fields: Fields = fields.into_iter().map(|(name, value, _)| (name, value)).collect();
            prop_assert_eq!(&theirs.decode(&octets).unwrap(), &fields);
            for decoder in [&whole, &cut] {
                prop_assert_eq!(table(decoder), encoder.table());
                prop_assert_eq!(decoder.table.size(), encoder.size());
            }
        }
    }

    #[test]
    fn any_fragments_of_random_octets_bring_what_the_whole_brings(
        blocks in vec(prop_oneof![
            vec(any::<u8>(), 0..200),
            vec(select(vec![0x00, 0x01, 0x20, 0x3f, 0x40, 0x44, 0x7f, 0x81, 0x82, 0xbe, 0xff]), 0..60),
        ], 1..20),
        sizes in sizes(),
        beginning in 1..40_usize,
    ) {
        let mut whole = Decoder::with_beginning(beginning);
        let mut cut = Decoder::with_beginning(beginning);
        for block in blocks {
            let expected = outcome(&mut whole, &block, &[usize::MAX]);
            prop_assert_eq!(&outcome(&mut cut, &block, &sizes), &expected);
            prop_assert_eq!(table(&cut), table(&whole));
            if expected.1.is_err() {
                break;
            }
        }
    }

    #[test]
    fn what_a_second_implementation_encodes_comes_out(blocks in vec(vec((name(), value()), 0..12), 1..20)) {
        let mut theirs = loona_hpack::Encoder::new();
        let mut ours = Decoder::new();
        for fields in blocks {
            let octets = theirs.encode(fields.iter().map(|(name, value)| (&name[..], &value[..])));
            prop_assert_eq!(decode(&mut ours, &octets).unwrap(), fields);
        }
    }

    #[test]
    fn the_work_is_bounded_by_the_octets_that_came(fields in vec(costly_field(), 1..2000), is_large: bool) {
        let mut decoder = Decoder::new();
        decoder.set_limit(MAX_TABLE);
        let mut came = 0;
        if is_large {
            let mut block = Vec::new();
            encoder::integer(MAX_TABLE, 5, 0x20, &mut block);
            decode(&mut decoder, &block).unwrap();
        }
        for field in fields {
            // An entry that is not there costs nothing either.
            let _ = decoder.decode(&field, true, |_| {});
            came += field.len();
        }
        let work = decoder.table.work;
        prop_assert!(work <= 8 * came + 4096, "{work} for {came} octets");
    }

    #[test]
    fn random_octets_never_panic(blocks in vec(vec(any::<u8>(), 0..200), 1..20), limit in any::<u32>()) {
        let mut decoder = Decoder::new();
        decoder.set_limit(limit);
        for block in blocks {
            // Going on after an error is of no use, but of no harm either.
            let _ = decode(&mut decoder, &block);
            prop_assert!(decoder.table.size() <= MAX_TABLE as usize);
        }
    }

    #[test]
    fn a_cut_or_altered_block_never_panics(
        fields in vec((name(), value(), choice()), 1..12),
        at in any::<prop::sample::Index>(),
        octet in any::<u8>(),
    ) {
        let mut octets = Vec::new();
        let mut encoder = Encoder::new();
        for (name, value, choice) in fields {
            encoder.field(&name, &value, choice, &mut octets);
        }
        let at = at.index(octets.len());
        let _ = decode(&mut Decoder::new(), &octets[..at]);
        octets[at] = octet;
        let _ = decode(&mut Decoder::new(), &octets);
    }

    #[test]
    fn both_implementations_find_the_same_strings_well_formed(coded in vec(any::<u8>(), 0..12)) {
        let mut ours = Vec::new();
        let outcome = huffman::decode_within(&coded, usize::MAX, &mut ours);
        let theirs = loona_hpack::huffman::HuffmanDecoder::new().decode(&coded);
        prop_assert_eq!(outcome.is_ok(), theirs.is_ok(), "{:?}", theirs);
        if let Ok(theirs) = theirs {
            prop_assert_eq!(ours, theirs);
        }
    }
}
