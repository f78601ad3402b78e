//! The sizes of chunks (RFC 9112, section 7.1), as Go's client reads them. In: lines; out: sizes. Pure; never sees data.

/// 4 KiB: how long the line with a chunk's size may be; a longer one is an error.
pub(super) const MAX_LINE: usize = 4095;

/// 16 KiB: how much more a body's framing may hold than its data explains; more is an error. Go's number.
const MAX_EXCESS: u64 = 16 << 10;

/// The chunks of one body.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    excess: u64,
}

impl Chunks {
    /// The size in a line with its end; 0 ends the body.
    ///
    /// # Errors
    /// In Go's words.
    pub(super) fn on_line(&mut self, line: &[u8]) -> Result<u64, &'static str> {
        let size = read(line)?;
        let framing = line.len() as u64 + 2;
        self.excess = (self.excess + framing).saturating_sub(size.saturating_mul(2).saturating_add(16));
        if self.excess > MAX_EXCESS { Err("chunked encoding contains too much non-data") } else { Ok(size) }
    }
}

fn read(line: &[u8]) -> Result<u64, &'static str> {
    match line.iter().position(|byte| *byte == b'\r') {
        None => return Err("chunked line ends with bare LF"),
        Some(at) if at + 2 != line.len() => return Err("invalid CR in chunked line"),
        Some(_) => {}
    }
    let digits = line.trim_ascii_end().split(|byte| *byte == b';').next().unwrap_or_default();
    if digits.is_empty() {
        return Err("empty hex number for chunk length");
    }
    digits.iter().enumerate().try_fold(0u64, |size, (at, digit)| {
        let digit = char::from(*digit).to_digit(16).ok_or("invalid byte in chunk length")?;
        if at >= 16 { Err("http chunk length too large") } else { Ok(size << 4 | u64::from(digit)) }
    })
}
