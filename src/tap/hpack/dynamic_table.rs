//! The entries that the encoder asked to keep (RFC 7541, sections 2.3.2 and 4): fields in, fields out.
//!
//! ```text
//! octets:  [ evicted | oldest name value | ... | newest name value ]
//! ```
//! Octets are appended behind and given up in front; the front is cut off once it outweighs the rest, so each octet
//! is moved once at most on average. Memory stays within a small multiple of the table's size.

use std::collections::VecDeque;

use super::{Field, HpackError, Name, Text};

/// 32 octets: what an entry counts beside its name and value (RFC 7541, section 4.1).
const ENTRY_OVERHEAD: usize = 32;

/// 512 octets: fewer dead ones are not worth cutting off.
const CUT_FROM: usize = 512;

#[derive(Debug)]
pub(super) struct DynamicTable {
    octets: Vec<u8>,
    /// From the oldest to the newest.
    entries: VecDeque<Entry>,
    /// Of the entries, as RFC 7541 counts it.
    size: usize,
    capacity: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u32,
    name_length: u32,
    value_length: u32,
    name: Name,
}

impl Entry {
    fn length(self) -> usize {
        self.name_length as usize + self.value_length as usize
    }

    fn size(self) -> usize {
        self.length() + ENTRY_OVERHEAD
    }
}

impl DynamicTable {
    pub(super) fn new(capacity: usize) -> Self {
        Self { octets: Vec::new(), entries: VecDeque::new(), size: 0, capacity }
    }

    /// The entry that came `age` insertions before the newest.
    pub(super) fn get(&self, age: usize) -> Option<Field<'_>> {
        let entry = self.entry(age)?;
        let octets = &self.octets[entry.start as usize..][..entry.length()];
        let (name, value) = octets.split_at(entry.name_length as usize);
        Some(Field { name: entry.name, raw_name: Text::plain(name), value: Text::plain(value) })
    }

    pub(super) fn newest(&self) -> Option<Field<'_>> {
        self.get(0)
    }

    /// Enters a field, evicting as needed; says whether it fits. One that does not changes nothing: the caller
    /// clears the table, as RFC 7541, section 4.4 asks, once it is done with it.
    pub(super) fn insert(
        &mut self,
        name: Name,
        raw_name: Text<'_>,
        value: Text<'_>,
    ) -> Result<bool, HpackError> {
        let start = self.octets.len();
        let fits = raw_name.decode_within(self.room(), &mut self.octets)?;
        self.finish(start, name, fits, value)
    }

    /// Enters a field with the name of the entry of that age; like [`DynamicTable::insert`]. None without such an
    /// entry.
    pub(super) fn insert_like(&mut self, age: usize, value: Text<'_>) -> Result<Option<bool>, HpackError> {
        let Some(entry) = self.entry(age) else { return Ok(None) };
        let start = self.octets.len();
        let from = entry.start as usize;
        self.octets.extend_from_within(from..from + entry.name_length as usize);
        self.finish(start, entry.name, true, value).map(Some)
    }

    /// Evicts down to a new capacity.
    pub(super) fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.evict();
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.octets.clear();
        self.size = 0;
    }

    /// What the entries count, as RFC 7541 has it.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The memory that names and values take, in octets.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.octets.capacity()
    }

    fn entry(&self, age: usize) -> Option<Entry> {
        let from_oldest = self.entries.len().checked_sub(age.checked_add(1)?)?;
        self.entries.get(from_oldest).copied()
    }

    /// The longest name and value that an entry may have.
    fn room(&self) -> usize {
        self.capacity.saturating_sub(ENTRY_OVERHEAD)
    }

    /// Makes an entry of the name that stands at `start` already, and of the value.
    fn finish(
        &mut self,
        start: usize,
        name: Name,
        name_fits: bool,
        value: Text<'_>,
    ) -> Result<bool, HpackError> {
        let name_length = self.octets.len() - start;
        let value_fits = value.decode_within(self.room().saturating_sub(name_length), &mut self.octets)?;
        if !(name_fits && value_fits) || self.capacity < ENTRY_OVERHEAD {
            self.octets.truncate(start);
            return Ok(false);
        }
        let value_length = self.octets.len() - start - name_length;
        // Offsets fit: two capacities and an entry are the most that `octets` ever holds.
        let entry = Entry {
            start: start as u32,
            name_length: name_length as u32,
            value_length: value_length as u32,
            name,
        };
        self.size += entry.size();
        self.entries.push_back(entry);
        self.evict();
        Ok(true)
    }

    fn evict(&mut self) {
        while self.size > self.capacity
            && let Some(entry) = self.entries.pop_front()
        {
            self.size -= entry.size();
        }
        let dead = self.entries.front().map_or(self.octets.len(), |oldest| oldest.start as usize);
        if dead >= CUT_FROM && dead > self.octets.len() / 2 {
            self.octets.drain(..dead);
            for entry in &mut self.entries {
                entry.start -= dead as u32;
            }
        }
    }
}
