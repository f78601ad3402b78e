//! Any header blocks: the decoder survives them, in one piece and in fragments, and a second implementation reads the
//! same fields.
//!
//! The input is a row of blocks, each behind its length in one byte. Where the second implementation is laxer than
//! RFC 7541, or reads what ours leaves alone, only a difference between two successes counts.

#![no_main]

use criprobe::tap::hpack::Decoder;
use libfuzzer_sys::fuzz_target;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fuzz_target!(|data: &[u8]| {
    let (mut ours, mut in_fragments) = (Decoder::new(), Decoder::new());
    let mut theirs = loona_hpack::Decoder::new();
    theirs.set_max_allowed_table_size(4096);
    let mut rest = data;
    while let [length, tail @ ..] = rest {
        let (block, after) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = after;
        let read = fields(&mut ours, block, usize::MAX);
        assert_eq!(
            fields(&mut in_fragments, block, 1 + data.len() % 5),
            read,
            "the fragments make a difference"
        );
        // After an error of either the tables may differ.
        let (Some(ours), Ok(theirs)) = (read, theirs.decode(block)) else { return };
        assert_eq!(ours, theirs);
    }
});

/// All texts; none when one of them is faulty.
fn fields(decoder: &mut Decoder, block: &[u8], size: usize) -> Option<Fields> {
    let mut fields = vec![];
    let mut is_whole = true;
    let mut rest = block;
    loop {
        let (fragment, after) = rest.split_at(size.min(rest.len()));
        rest = after;
        let outcome = decoder.decode(fragment, rest.is_empty(), |field| {
            let (mut name, mut value) = (vec![], vec![]);
            is_whole &= field.raw_name.decode(&mut name).is_ok() && field.value.decode(&mut value).is_ok();
            fields.push((name, value));
        });
        if outcome.is_err() || rest.is_empty() {
            return (outcome.is_ok() && is_whole).then_some(fields);
        }
    }
}
