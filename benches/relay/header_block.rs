//! Header blocks as gRPC stacks write them: a field literally once, then by its index. Fields in, HPACK out.

/// The encoder of one direction of a connection. Never has more to keep than the table of 4096 octets holds.
#[derive(Default)]
pub(crate) struct HeaderEncoder {
    /// Newest last.
    kept: Vec<(&'static str, &'static str)>,
    /// The peer wants no table.
    is_plain: bool,
    owes_update: bool,
}

impl HeaderEncoder {
    /// Obeys the peer's SETTINGS_HEADER_TABLE_SIZE: a table smaller than the usual one is not used at all.
    pub(crate) fn set_limit(&mut self, limit: u32) {
        if limit < 4096 && !self.is_plain {
            self.is_plain = true;
            self.owes_update = true;
            self.kept.clear();
        }
    }

    /// Starts a block.
    pub(crate) fn begin(&mut self, block: &mut Vec<u8>) {
        if std::mem::take(&mut self.owes_update) {
            block.push(0x20);
        }
    }

    /// Appends a field that will come again; `index` is that of its name in the static table, or 0.
    pub(crate) fn field(&mut self, index: u8, name: &'static str, value: &'static str, block: &mut Vec<u8>) {
        if self.is_plain {
            return literal(0x00, 15, index, name, value, block);
        }
        match self.kept.iter().rev().position(|kept| *kept == (name, value)) {
            Some(age) => block.push(0x80 | (62 + age) as u8),
            None => {
                literal(0x40, 63, index, name, value, block);
                self.kept.push((name, value));
            }
        }
    }
}

/// Appends a field that no table keeps.
pub(crate) fn unkept_field(index: u8, name: &str, value: &str, block: &mut Vec<u8>) {
    literal(0x00, 15, index, name, value, block);
}

fn literal(form: u8, mask: u8, index: u8, name: &str, value: &str, block: &mut Vec<u8>) {
    if index < mask {
        block.push(form | index);
    } else {
        block.extend([form | mask, index - mask]);
    }
    if index == 0 {
        string(name, block);
    }
    string(value, block);
}

fn string(text: &str, block: &mut Vec<u8>) {
    assert!(text.len() < 127, "one octet holds the length");
    block.push(text.len() as u8);
    block.extend(text.bytes());
}
