//! HPACK's Huffman code (RFC 7541, section 5.2 and appendix B): octets to octets, strictly.
//!
//! The code is canonical: in order of length, then of symbol, codes count upwards. The lengths say it all.

use super::HpackError;

/// The length in bits of each octet's code, and at 256 of the end-of-string code.
pub(super) const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, // 0x00
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, // 0x10
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, // 0x20
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, // 0x30
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, // 0x40
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, // 0x50
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, // 0x60
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, // 0x70
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, // 0x80
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, // 0x90
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, // 0xa0
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, // 0xb0
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, // 0xc0
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, // 0xd0
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, // 0xe0
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, // 0xf0
    30,
];

/// 30 bits: the longest code.
const LONGEST: usize = 30;

/// The symbol that no string may hold.
const END_OF_STRING: u16 = 256;

/// 15 octets of a coded string are at least 4 of the string itself: no code is longer than 30 bits.
pub(super) const LEAST_YIELD: (usize, usize) = (15, 4);

/// Appends the decoded string to `into`, at most `limit` octets of it; says whether that was all.
///
/// # Errors
/// Fails with [`HpackError::InvalidHuffman`] where the string holds the end-of-string code, or ends in more than
/// seven bits of padding or in any but ones.
pub(super) fn decode_within(coded: &[u8], limit: usize, into: &mut Vec<u8>) -> Result<bool, HpackError> {
    // 5 bits is the shortest code.
    into.reserve((coded.len() * 8 / 5).min(limit));
    let end = into.len().saturating_add(limit);
    let mut fits = true;
    let mut bits = Bits::new(coded);
    while let Some(symbol) = bits.next_symbol()? {
        if into.len() < end {
            into.push(symbol);
        } else {
            fits = false;
        }
    }
    bits.check_padding()?;
    Ok(fits)
}

/// The same of a string whose end is not there: it may end within a code.
pub(super) fn decode_beginning(coded: &[u8], limit: usize, into: &mut Vec<u8>) -> Result<(), HpackError> {
    into.reserve((coded.len() * 8 / 5).min(limit));
    let end = into.len().saturating_add(limit);
    let mut bits = Bits::new(coded);
    while into.len() < end
        && let Some(symbol) = bits.next_symbol()?
    {
        into.push(symbol);
    }
    Ok(())
}

/// The bits of a coded string that were not decoded yet.
struct Bits<'a> {
    /// The next bits, from the highest on.
    window: u64,
    /// How many of them belong to the string; below are zeros, or bits that will be loaded again.
    held: u32,
    rest: &'a [u8],
}

impl<'a> Bits<'a> {
    fn new(coded: &'a [u8]) -> Self {
        Self { window: 0, held: 0, rest: coded }
    }

    /// None where what is left is no whole code.
    #[inline]
    fn next_symbol(&mut self) -> Result<Option<u8>, HpackError> {
        if self.held < LONGEST as u32 {
            self.refill();
        }
        let (symbol, length) = match DECODING.short[(self.window >> (64 - SHORT)) as usize] {
            (_, 0) => self.long_symbol(),
            (symbol, length) => (u16::from(symbol), u32::from(length)),
        };
        if length > self.held {
            return Ok(None);
        }
        if symbol == END_OF_STRING {
            return Err(HpackError::InvalidHuffman);
        }
        self.window <<= length;
        self.held -= length;
        Ok(Some(symbol as u8))
    }

    #[inline]
    fn refill(&mut self) {
        if let Some(chunk) = self.rest.first_chunk() {
            self.window |= u64::from_be_bytes(*chunk) >> self.held;
            let taken = (63 - self.held) / 8;
            self.rest = &self.rest[taken as usize..];
            self.held += taken * 8;
            return;
        }
        while self.held <= 56
            && let [octet, tail @ ..] = self.rest
        {
            self.window |= u64::from(*octet) << (56 - self.held);
            self.held += 8;
            self.rest = tail;
        }
    }

    /// The symbol at the front and its length, where that exceeds `SHORT`.
    #[cold]
    fn long_symbol(&self) -> (u16, u32) {
        let code = (self.window >> (64 - LONGEST)) as u32;
        let length = (SHORT + 1..LONGEST).find(|&length| code < DECODING.end[length]).unwrap_or(LONGEST);
        let from_first = (code - DECODING.first[length]) >> (LONGEST - length);
        let at = DECODING.before[length] as usize + from_first as usize;
        (DECODING.symbols[at], length as u32)
    }

    /// What is left over must be fewer than eight bits, all ones (RFC 7541, section 5.2).
    fn check_padding(&self) -> Result<(), HpackError> {
        let is_valid = self.held < 8 && self.window.leading_ones() >= self.held;
        if is_valid { Ok(()) } else { Err(HpackError::InvalidHuffman) }
    }
}

/// 8 bits: codes up to here, all of letters and digits, are found by one look.
const SHORT: usize = 8;

/// The code, arranged for decoding. Codes are held from the highest of `LONGEST` bits on.
struct Decoding {
    /// By the next `SHORT` bits: the symbol and its length, 0 for longer ones.
    short: [(u8, u8); 1 << SHORT],
    /// By length: the first code.
    first: [u32; LONGEST + 1],
    /// By length: the end of its codes.
    end: [u32; LONGEST + 1],
    /// By length: how many symbols have shorter codes.
    before: [u16; LONGEST + 1],
    /// All symbols, in order of their codes.
    symbols: [u16; 257],
    /// By symbol: its code, as low bits.
    codes: [u32; 257],
}

static DECODING: Decoding = Decoding::new();

impl Decoding {
    const fn new() -> Self {
        let mut this = Self {
            short: [(0, 0); 1 << SHORT],
            first: [0; LONGEST + 1],
            end: [0; LONGEST + 1],
            before: [0; LONGEST + 1],
            symbols: [0; 257],
            codes: [0; 257],
        };
        let (mut next, mut seen, mut length) = (0, 0, 1);
        while length <= LONGEST {
            this.first[length] = next;
            this.before[length] = seen as u16;
            let mut symbol = 0;
            while symbol < LENGTHS.len() {
                if LENGTHS[symbol] as usize == length {
                    this.codes[symbol] = next >> (LONGEST - length);
                    this.symbols[seen] = symbol as u16;
                    seen += 1;
                    let after = next + (1 << (LONGEST - length));
                    let mut prefix = next >> (LONGEST - SHORT);
                    while length <= SHORT && prefix < after >> (LONGEST - SHORT) {
                        this.short[prefix as usize] = (symbol as u8, length as u8);
                        prefix += 1;
                    }
                    next = after;
                }
                symbol += 1;
            }
            this.end[length] = next;
            length += 1;
        }
        assert!(next == 1 << LONGEST, "the lengths make a complete code");
        this
    }
}

/// The Huffman form of a short string, and its length in octets. For constants: `N` octets must hold it.
pub(super) const fn encode<const N: usize>(plain: &[u8]) -> ([u8; N], usize) {
    const CODES: &[u32; 257] = &Decoding::new().codes;
    let mut coded = [0; N];
    let mut bits = 0;
    let mut at = 0;
    while at < plain.len() {
        let mut left = LENGTHS[plain[at] as usize];
        while left > 0 {
            left -= 1;
            let bit = (CODES[plain[at] as usize] >> left) as u8 & 1;
            coded[bits / 8] |= bit << (7 - bits % 8);
            bits += 1;
        }
        at += 1;
    }
    if !bits.is_multiple_of(8) {
        coded[bits / 8] |= u8::MAX >> (bits % 8);
    }
    (coded, bits.div_ceil(8))
}
