//! The decoder against RFC 7541's examples, against malformed blocks, and against other implementations.

pub(in crate::tap) mod encoder;
mod random;
mod rfc7541;

use encoder::{Choice, Encoder};

use super::*;

pub(in crate::tap) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// Decodes a block, all texts too.
fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackError> {
    let mut fields = Vec::new();
    let mut faults = Vec::new();
    decoder.decode(block, true, |field| match texts(field) {
        Ok(field) => fields.push(field),
        Err(fault) => faults.push(fault),
    })?;
    faults.pop().map_or(Ok(fields), Err)
}

/// Everything that decoding a block in fragments of these sizes, again and again, brings.
fn outcome(decoder: &mut Decoder, block: &[u8], sizes: &[usize]) -> (Vec<String>, Result<(), HpackError>) {
    let mut fields = Vec::new();
    let mut note =
        |field: HeaderField<'_>| fields.push(format!("{:?} {:?} {field:?}", field.name, texts(field)));
    let mut rest = block;
    for size in sizes.iter().cycle() {
        let (fragment, after) = rest.split_at(rest.len().min(*size));
        rest = after;
        let is_end = rest.is_empty();
        let outcome = decoder.decode(fragment, is_end, &mut note);
        if is_end || outcome.is_err() {
            return (fields, outcome);
        }
    }
    unreachable!("there are sizes");
}

fn texts(field: HeaderField<'_>) -> Result<(Vec<u8>, Vec<u8>), HpackError> {
    let mut name = Vec::new();
    field.raw_name.decode(&mut name)?;
    Ok((name, field.value.get(&mut Vec::new())?.to_vec()))
}

/// The dynamic table, newest first.
fn table(decoder: &Decoder) -> Fields {
    let fields = (0..).map_while(|age| decoder.table.get(age));
    fields.map(|field| texts(field).unwrap()).collect()
}

fn names(block: &[u8]) -> Vec<Name> {
    let mut names = Vec::new();
    Decoder::new().decode(block, true, |field| names.push(field.name)).unwrap();
    names
}

#[test]
fn malformed_blocks_are_errors() {
    let rows: &[(&str, &[u8], HpackError)] = &[
        ("index 0 is no entry", &[0x80], HpackError::NoSuchEntry(0)),
        ("an empty dynamic table has no entry 62", &[0xbe], HpackError::NoSuchEntry(62)),
        ("a name's index is checked when it is kept", &[0x7e, 0x01, b'x'], HpackError::NoSuchEntry(62)),
        ("a name's index is checked when it is not", &[0x0f, 0x2f, 0x01, b'x'], HpackError::NoSuchEntry(62)),
        ("the highest index", &[0xff, 0x80, 0xff, 0xff, 0xff, 0x0f], HpackError::NoSuchEntry(u32::MAX)),
        ("an index that ends early", &[0xff], HpackError::Truncated),
        ("an index without end", &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff], HpackError::IntegerOverflow),
        ("a literal without name", &[0x40], HpackError::Truncated),
        ("a literal without value", &[0x40, 0x01, b'a'], HpackError::Truncated),
        ("a name longer than the block", &[0x40, 0x02, b'a'], HpackError::Truncated),
        ("a value longer than the block", &[0x04, 0x03, b'a', b'b'], HpackError::Truncated),
        ("a length without end", &[0x04, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff], HpackError::IntegerOverflow),
        ("a size update behind a field", &[0x82, 0x20], HpackError::LateSizeUpdate),
        ("a size update above what was announced", &[0x3f, 0xe2, 0x1f], HpackError::TableTooLarge(4097)),
        ("a size update that ends early", &[0x3f], HpackError::Truncated),
        ("padding of eight bits", &[0x44, 0x82, 0x1f, 0xff], HpackError::InvalidHuffman),
        ("padding of zeros", &[0x44, 0x81, 0x18], HpackError::InvalidHuffman),
        ("nothing but padding, too long", &[0x44, 0x81, 0xff], HpackError::InvalidHuffman),
        ("the end-of-string code", &[0x44, 0x84, 0xff, 0xff, 0xff, 0xff], HpackError::InvalidHuffman),
        ("a code that ends early", &[0x44, 0x82, 0xff, 0xc0], HpackError::InvalidHuffman),
        ("a fault in a name", &[0x40, 0x81, 0xff, 0x00], HpackError::InvalidHuffman),
        ("a fault in a value that is not kept", &[0x04, 0x81, 0xff], HpackError::InvalidHuffman),
    ];
    for (rule, block, error) in rows {
        assert_eq!(decode(&mut Decoder::new(), block), Err(*error), "{rule}");
    }
}

#[test]
fn a_fault_in_a_text_that_nobody_wants_costs_nothing() {
    let block = [0x04, 0x81, 0xff, 0x82];
    assert_eq!(names(&block), [Name::Path, Name::Other]);
}

#[test]
fn an_empty_block_has_no_fields() {
    assert_eq!(decode(&mut Decoder::new(), &[]), Ok(vec![]));
}

#[test]
fn size_updates_evict_and_bound() {
    let mut decoder = Decoder::new();
    decode(&mut decoder, &[0x40, 1, b'a', 1, b'1', 0x40, 1, b'b', 1, b'2']).unwrap();
    assert_eq!(decoder.table.size(), 68);
    // Down to 34: the newest stays. Then to 0 and up again in one block: none stays.
    decode(&mut decoder, &[0x3f, 3]).unwrap();
    assert_eq!(table(&decoder), [(b"b".to_vec(), b"2".to_vec())]);
    assert_eq!(decode(&mut decoder, &[0x20, 0x3f, 0xe1, 0x1f, 0x82]).unwrap().len(), 1);
    assert_eq!(table(&decoder), []);
    decode(&mut decoder, &[0x40, 1, b'a', 1, b'1']).unwrap();
    assert_eq!(table(&decoder).len(), 1);
}

#[test]
fn the_highest_limit_ever_announced_stays_allowed() {
    let update_to_8192 = [0x3f, 0xe1, 0x3f];
    let mut decoder = Decoder::new();
    decoder.set_limit(8192);
    decoder.set_limit(0);
    assert_eq!(decode(&mut decoder, &update_to_8192), Ok(vec![]));
}

#[test]
fn no_announcement_lifts_the_table_above_its_bound() {
    let mut decoder = Decoder::new();
    decoder.set_limit(u32::MAX);
    assert_eq!(decode(&mut decoder, &[0x3f, 0xe1, 0xff, 0x03]), Ok(vec![]), "64 KiB");
    let error = HpackError::TableTooLarge(MAX_TABLE + 1);
    assert_eq!(decode(&mut decoder, &[0x3f, 0xe2, 0xff, 0x03]), Err(error));
}

#[test]
fn an_entry_larger_than_the_table_empties_it_and_is_handed_out() {
    let long = encoder::huffman(&[b'x'; 90]);
    let mut too_long = vec![0x7e, 0x80 | long.len() as u8];
    too_long.extend(&long);
    let mut plain = vec![0x7e, 90];
    plain.extend([b'x'; 90]);
    for literal in [too_long, plain] {
        let mut decoder = Decoder::new();
        decode(&mut decoder, &[0x3f, 69, 0x40, 1, b'a', 1, b'1']).unwrap();
        let fields = decode(&mut decoder, &literal).unwrap();
        assert_eq!(fields, [(b"a".to_vec(), vec![b'x'; 90])], "its name is that of an entry it evicts");
        assert_eq!((table(&decoder), decoder.table.size()), (vec![], 0));
    }
}

#[test]
fn an_entry_may_take_its_name_from_one_that_it_evicts() {
    let mut decoder = Decoder::new();
    decode(&mut decoder, &[0x3f, 9, 0x40, 3, b'a', b'b', b'c', 1, b'1']).unwrap();
    let fields = decode(&mut decoder, &[0x7e, 1, b'2', 0xbe]).unwrap();
    assert_eq!(fields, vec![(b"abc".to_vec(), b"2".to_vec()); 2]);
    assert_eq!(decoder.table.size(), 36);
}

#[test]
fn a_table_of_size_0_keeps_nothing() {
    let mut decoder = Decoder::new();
    let fields = decode(&mut decoder, &[0x20, 0x40, 0, 0, 0x44, 1, b'x']).unwrap();
    assert_eq!(fields, [(vec![], vec![]), (b":path".to_vec(), b"x".to_vec())]);
    assert_eq!(table(&decoder), []);
}

#[test]
fn of_a_string_too_long_for_the_table_the_beginning_is_handed_out() {
    let longest = 4096 * 15 / 4;
    let value = vec![b'x'; 200_000];
    for (code_value, read) in [(false, BEGINNING), (true, BEGINNING * 8 / 7)] {
        for form in [0, 1] {
            let mut encoder = Encoder::new();
            let mut block = Vec::new();
            let choice = Choice { use_index: true, form, code_name: true, code_value };
            encoder.field(b"a", b"1", Choice { form: 0, ..choice }, &mut block);
            encoder.field(b"a", &value, choice, &mut block);
            encoder.field(&value, b"2", choice, &mut block);
            encoder.field(b"b", b"3", choice, &mut block);
            for sizes in [&[usize::MAX][..], &[16_384], &[1000, 7], &[1]] {
                let mut decoder = Decoder::new();
                let mut lengths = Vec::new();
                let mut rest = &block[..];
                for size in sizes.iter().cycle() {
                    let (fragment, after) = rest.split_at(rest.len().min(*size));
                    rest = after;
                    decoder
                        .decode(fragment, rest.is_empty(), |field| {
                            let (name, value) = texts(field).unwrap();
                            lengths.push((name.len(), value.len()));
                        })
                        .unwrap();
                    let kept = decoder.kept();
                    assert!(kept <= longest + BEGINNING + 100, "{kept} in fragments of {sizes:?}");
                    if rest.is_empty() {
                        break;
                    }
                }
                let name = BEGINNING * 8 / 7;
                assert_eq!(lengths, [(1, 1), (1, read), (name, 1), (1, 1)], "in fragments of {sizes:?}");
                assert_eq!(table(&decoder), encoder.table());
                assert!(decoder.kept() <= 4096, "{}", decoder.kept());
                let looks = decoder.partial.looks;
                assert!(looks <= 40, "{looks} for two long fields in fragments of {sizes:?}");
            }
        }
    }
}

#[test]
fn a_field_whose_end_never_comes_is_an_error() {
    for block in
        [&[0x40][..], &[0x40, 1], &[0x40, 1, b'a'], &[0x40, 1, b'a', 2, b'b'], &[0x3f], &[0xff, 0x80]]
    {
        for sizes in [&[1][..], &[2], &[usize::MAX]] {
            let (fields, ended) = outcome(&mut Decoder::new(), block, sizes);
            assert_eq!((fields, ended), (vec![], Err(HpackError::Truncated)), "{block:?}");
        }
        let mut decoder = Decoder::new();
        decoder.decode(block, false, |_| {}).unwrap();
        assert_eq!(decoder.decode(&[], true, |_| {}), Err(HpackError::Truncated), "{block:?}");
    }
}

#[test]
fn memory_stays_within_a_small_multiple_of_the_table() {
    let mut decoder = Decoder::new();
    for round in 0..10_000_u32 {
        let value = encoder::huffman(&vec![b'a'; (round % 3000) as usize]);
        let mut block = vec![0x44];
        encoder::integer(value.len() as u32, 7, 0x80, &mut block);
        block.extend(value);
        decode(&mut decoder, &block).unwrap();
        assert!(decoder.table.size() <= 4096);
        assert!(decoder.table.held() <= 4 * 4096, "{} in round {round}", decoder.table.held());
    }
}

#[test]
fn names_of_interest_are_known_in_every_form() {
    let rows = [
        (Name::Path, ":path"),
        (Name::Status, ":status"),
        (Name::GrpcStatus, "grpc-status"),
        (Name::GrpcMessage, "grpc-message"),
        (Name::Traceparent, "traceparent"),
        (Name::UserAgent, "user-agent"),
        (Name::Other, "content-type"),
        (Name::Other, "grpc-timeout"),
        (Name::Other, ":pat"),
        (Name::Other, ""),
    ];
    for (name, text) in rows {
        let plain = text.as_bytes();
        let coded = encoder::huffman(plain);
        for form in [0x00, 0x10, 0x40] {
            let mut block = vec![form, plain.len() as u8];
            block.extend(plain);
            block.extend([0, form, 0x80 | coded.len() as u8]);
            block.extend(&coded);
            block.extend([0]);
            assert_eq!(names(&block), [name; 2], "{text} as {form:#x}");
        }
        let mut kept = vec![0x40, plain.len() as u8];
        kept.extend(plain);
        kept.extend([0, 0xbe]);
        assert_eq!(names(&kept), [name; 2], "{text} out of the dynamic table");
    }
    for at in 1..=61 {
        let mut raw = Vec::new();
        Decoder::new()
            .decode(&[0x80 | at], true, |field| {
                raw.push((field.name, field.raw_name.get(&mut Vec::new()).unwrap().to_vec()));
            })
            .unwrap();
        let (name, raw_name) = raw.pop().unwrap();
        assert_eq!(name, Name::of(Text::plain(&raw_name)), "static entry {at}");
    }
}

#[test]
fn the_static_table_is_that_of_a_second_implementation() {
    let block: Vec<u8> = (1..=61).map(|index| 0x80 | index).collect();
    let theirs = loona_hpack::Decoder::new().decode(&block).unwrap();
    assert_eq!(decode(&mut Decoder::new(), &block).unwrap(), theirs);
}

#[test]
fn the_huffman_code_is_that_of_a_second_implementation() {
    let mut theirs = loona_hpack::huffman::HuffmanDecoder::new();
    for octet in 0..=u8::MAX {
        for plain in [vec![octet], vec![octet; 7], vec![b'a', octet, b'z', octet]] {
            let coded = encoder::huffman(&plain);
            assert_eq!(theirs.decode(&coded).unwrap(), plain);
            let mut ours = Vec::new();
            assert_eq!(huffman::decode_within(&coded, usize::MAX, &mut ours), Ok(true));
            assert_eq!(ours, plain);
        }
    }
    let end_of_string = [0xff, 0xff, 0xff, 0xff];
    assert!(theirs.decode(&end_of_string).is_err());
    assert!(huffman::decode_within(&end_of_string, usize::MAX, &mut Vec::new()).is_err());
}

#[test]
fn debug_output_shows_no_header_text() {
    let mut shown = String::new();
    let block = [0x17, 6, b's', b'e', b'c', b'r', b'e', b't'];
    Decoder::new().decode(&block, true, |field| shown = format!("{field:?}")).unwrap();
    assert!(!shown.contains("secret") && shown.contains("6 octets"), "{shown}");
}
