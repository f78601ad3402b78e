//! Any header blocks: the decoder survives them, and a second implementation reads the same fields.
//!
//! The input is a row of blocks, each behind its length in one byte. Where the second implementation is laxer than
//! RFC 7541, or reads what ours leaves alone, only a difference between two successes counts.

#![no_main]

use criprobe::tap::hpack::Decoder;
use libfuzzer_sys::fuzz_target;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fuzz_target!(|data: &[u8]| {
    let mut ours = Decoder::new();
    let mut theirs = loona_hpack::Decoder::new();
    theirs.set_max_allowed_table_size(4096);
    let mut rest = data;
    while let [length, tail @ ..] = rest {
        let (block, after) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = after;
        // After an error of either the tables may differ.
        let (Some(ours), Ok(theirs)) = (fields(&mut ours, block), theirs.decode(block)) else { return };
        assert_eq!(ours, theirs);
    }
});

/// All texts; none when one of them is faulty.
fn fields(decoder: &mut Decoder, block: &[u8]) -> Option<Fields> {
    let mut fields = vec![];
    let mut is_whole = true;
    let outcome = decoder.decode(block, |field| {
        let (mut name, mut value) = (vec![], vec![]);
        is_whole &= field.raw_name.decode(&mut name).is_ok() && field.value.decode(&mut value).is_ok();
        fields.push((name, value));
    });
    (outcome.is_ok() && is_whole).then_some(fields)
}
