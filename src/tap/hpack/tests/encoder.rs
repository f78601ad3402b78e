//! An encoder that follows all instructions, also unwise ones. For tests only.

use std::collections::VecDeque;

use super::{
    super::{huffman, static_table::STATIC_TABLE},
    Fields,
};

/// How to send one field.
#[derive(Clone, Copy, Debug)]
pub(in crate::tap) struct Choice {
    /// Use the field's or the name's index where there is one.
    pub(in crate::tap) use_index: bool,
    /// 0: kept, 1: not indexed, else never indexed.
    pub(in crate::tap) form: u8,
    pub(in crate::tap) code_name: bool,
    pub(in crate::tap) code_value: bool,
}

/// Keeps a plain model of the dynamic table.
pub(in crate::tap) struct Encoder {
    known: Fields,
    table: VecDeque<(Vec<u8>, Vec<u8>)>,
    capacity: usize,
}

impl Encoder {
    pub(in crate::tap) fn new() -> Self {
        let known = STATIC_TABLE.iter().map(|entry| super::texts(entry.field()).unwrap()).collect();
        Self { known, table: VecDeque::new(), capacity: 4096 }
    }

    /// The dynamic table, newest first.
    pub(in crate::tap) fn table(&self) -> Fields {
        self.table.iter().cloned().collect()
    }

    pub(in crate::tap) fn size(&self) -> usize {
        self.table.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
    }

    pub(in crate::tap) fn resize(&mut self, capacity: u32, block: &mut Vec<u8>) {
        integer(capacity, 5, 0x20, block);
        self.capacity = capacity as usize;
        self.evict();
    }

    pub(in crate::tap) fn field(&mut self, name: &[u8], value: &[u8], choice: Choice, block: &mut Vec<u8>) {
        let whole = self.position(|field| field.0 == name && field.1 == value);
        if let Some(index) = whole.filter(|_| choice.use_index) {
            integer(index, 7, 0x80, block);
            return;
        }
        let (prefix, first) = match choice.form {
            0 => (6, 0x40),
            1 => (4, 0x00),
            _ => (4, 0x10),
        };
        let index = self.position(|field| field.0 == name).filter(|_| choice.use_index);
        integer(index.unwrap_or(0), prefix, first, block);
        if index.is_none() {
            string(name, choice.code_name, block);
        }
        string(value, choice.code_value, block);
        if choice.form == 0 {
            self.table.push_front((name.to_vec(), value.to_vec()));
            self.evict();
        }
    }

    fn position(&self, is_it: impl Fn(&(Vec<u8>, Vec<u8>)) -> bool) -> Option<u32> {
        self.known.iter().chain(&self.table).position(is_it).map(|at| at as u32 + 1)
    }

    fn evict(&mut self) {
        while self.size() > self.capacity {
            self.table.pop_back();
        }
    }
}

pub(in crate::tap) fn integer(value: u32, prefix: u32, first: u8, block: &mut Vec<u8>) {
    let mask = (1 << prefix) - 1;
    if value < mask {
        block.push(first | value as u8);
        return;
    }
    block.push(first | mask as u8);
    let mut rest = value - mask;
    while rest >= 128 {
        block.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}

pub(in crate::tap) fn huffman(plain: &[u8]) -> Vec<u8> {
    let mut coded = Vec::new();
    let (mut window, mut held) = (0_u64, 0);
    for &octet in plain {
        let length = u32::from(huffman::LENGTHS[usize::from(octet)]);
        let (code, _) = huffman::encode::<4>(&[octet]);
        window = window << length | u64::from(u32::from_be_bytes(code) >> (32 - length));
        held += length;
        while held >= 8 {
            held -= 8;
            coded.push((window >> held) as u8);
        }
    }
    if held > 0 {
        coded.push((window << (8 - held)) as u8 | (0xff >> held));
    }
    coded
}

fn string(plain: &[u8], is_coded: bool, block: &mut Vec<u8>) {
    let (octets, first) = if is_coded { (huffman(plain), 0x80) } else { (plain.to_vec(), 0) };
    integer(octets.len() as u32, 7, first, block);
    block.extend(octets);
}
