//! The entries that the encoder asked to keep (RFC 7541, sections 2.3.2 and 4): fields in, fields out.
//!
//! ```text
//! octets:  [ evicted | oldest value | ... | newest value ]
//! ```
//! Octets are appended behind and given up in front; the front is cut off once it outweighs the rest, so each octet
//! is moved once at most on average. Entries that were made with the name of another share it: an encoder can ask for
//! that with two octets, however long the name is. So the work stays within a small multiple of the octets that came,
//! and memory within a small multiple of the table's size.

use std::{collections::VecDeque, sync::Arc};

use super::{HeaderField, HpackError, MAX_TABLE, Name, STATIC_TABLE, Text};
use crate::carry::{self, Carry, Reader, Unreadable, Writer};

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
    /// The memory of the names that came, counted once for each entry.
    names: usize,
    capacity: usize,
    /// Octets that were copied so far, and entries that were moved.
    #[cfg(test)]
    pub(super) work: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    name: Name,
    raw_name: RawName,
    start: u32,
    value_length: u32,
}

/// The octets of a name: those of the static table, or what came.
#[derive(Clone, Debug)]
enum RawName {
    Static(&'static [u8]),
    Shared(Arc<[u8]>),
}

/// As the fields that are entered again.
impl Carry for DynamicTable {
    const LAYOUT: u64 = carry::layout(
        "DynamicTable",
        &[("capacity", usize::LAYOUT), ("name", Vec::LAYOUT), ("value", Vec::LAYOUT)],
    );

    fn write(&self, into: &mut Writer) {
        self.capacity.write(into);
        self.entries.len().write(into);
        for entry in &self.entries {
            into.bytes(entry.raw_name.octets());
            into.bytes(self.value(entry));
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let capacity = usize::read(from)?;
        if capacity > MAX_TABLE as usize {
            return Err(Unreadable::Damaged);
        }
        let mut table = Self::new(capacity);
        for _ in 0..usize::read(from)? {
            let (raw_name, value) = (from.bytes()?, Text::plain(from.bytes()?));
            let known = STATIC_TABLE.iter().find(|known| known.raw_name == raw_name);
            let entered = match known {
                Some(known) => table.insert_static(known.name, known.raw_name, value),
                None => {
                    let raw_name = Text::plain(raw_name);
                    table.insert(Name::of(raw_name), raw_name, value)
                }
            };
            if entered != Ok(true) {
                return Err(Unreadable::Damaged);
            }
        }
        Ok(table)
    }
}

impl RawName {
    fn octets(&self) -> &[u8] {
        match self {
            Self::Static(octets) => octets,
            Self::Shared(octets) => octets,
        }
    }
}

impl RawName {
    /// The memory of a name that came, with the counts in front of it.
    fn memory(&self) -> usize {
        match self {
            Self::Static(_) => 0,
            Self::Shared(octets) => octets.len() + 2 * size_of::<usize>(),
        }
    }
}

impl Entry {
    fn size(&self) -> usize {
        self.raw_name.octets().len() + self.value_length as usize + ENTRY_OVERHEAD
    }
}

impl DynamicTable {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            octets: Vec::new(),
            entries: VecDeque::new(),
            size: 0,
            names: 0,
            capacity,
            #[cfg(test)]
            work: 0,
        }
    }

    /// The entry that came `age` insertions before the newest.
    pub(super) fn get(&self, age: usize) -> Option<HeaderField<'_>> {
        let entry = self.entry(age)?;
        Some(HeaderField {
            name: entry.name,
            raw_name: Text::plain(entry.raw_name.octets()),
            value: Text::plain(self.value(entry)),
        })
    }

    fn value(&self, entry: &Entry) -> &[u8] {
        &self.octets[entry.start as usize..][..entry.value_length as usize]
    }

    pub(super) fn newest(&self) -> Option<HeaderField<'_>> {
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
        let shared = RawName::Shared(Arc::from(&self.octets[start..]));
        self.note_work(2 * shared.octets().len());
        self.octets.truncate(start);
        Ok(fits && self.enter(name, shared, value)?)
    }

    /// Enters a field with a name of the static table; like [`DynamicTable::insert`].
    pub(super) fn insert_static(
        &mut self,
        name: Name,
        raw_name: &'static [u8],
        value: Text<'_>,
    ) -> Result<bool, HpackError> {
        self.enter(name, RawName::Static(raw_name), value)
    }

    /// Enters a field with the name of the entry of that age; like [`DynamicTable::insert`]. None without such an
    /// entry.
    pub(super) fn insert_like(&mut self, age: usize, value: Text<'_>) -> Result<Option<bool>, HpackError> {
        let Some(Entry { name, raw_name, .. }) = self.entry(age).cloned() else { return Ok(None) };
        self.enter(name, raw_name, value).map(Some)
    }

    /// Evicts down to a new capacity.
    pub(super) fn resize(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.evict();
    }

    /// The size that the encoder set, in octets.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.octets.clear();
        (self.size, self.names) = (0, 0);
    }

    /// Bytes of memory in use.
    pub(super) fn memory(&self) -> usize {
        self.octets.capacity() + self.entries.capacity() * size_of::<Entry>() + self.names
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

    fn entry(&self, age: usize) -> Option<&Entry> {
        let from_oldest = self.entries.len().checked_sub(age.checked_add(1)?)?;
        self.entries.get(from_oldest)
    }

    /// The longest name and value that an entry may have.
    fn room(&self) -> usize {
        self.capacity.saturating_sub(ENTRY_OVERHEAD)
    }

    /// Makes an entry of a name and a value.
    fn enter(&mut self, name: Name, raw_name: RawName, value: Text<'_>) -> Result<bool, HpackError> {
        let start = self.octets.len();
        let room = self.room().checked_sub(raw_name.octets().len());
        let fits = value.decode_within(room.unwrap_or_default(), &mut self.octets)?;
        let value_length = self.octets.len() - start;
        self.note_work(value_length);
        if !fits || room.is_none() || self.capacity < ENTRY_OVERHEAD {
            self.octets.truncate(start);
            return Ok(false);
        }
        // Offsets fit: two capacities and an entry are the most that `octets` ever holds.
        let entry = Entry { name, raw_name, start: start as u32, value_length: value_length as u32 };
        self.size += entry.size();
        self.names += entry.raw_name.memory();
        self.entries.push_back(entry);
        self.evict();
        Ok(true)
    }

    fn evict(&mut self) {
        while self.size > self.capacity
            && let Some(entry) = self.entries.pop_front()
        {
            self.size -= entry.size();
            self.names -= entry.raw_name.memory();
        }
        let dead = self.entries.front().map_or(self.octets.len(), |oldest| oldest.start as usize);
        if dead >= CUT_FROM && dead > self.octets.len() / 2 {
            self.note_work(self.octets.len() - dead + self.entries.len());
            self.octets.drain(..dead);
            for entry in &mut self.entries {
                entry.start -= dead as u32;
            }
        }
    }

    /// Counts what a property bounds.
    #[cfg(test)]
    fn note_work(&mut self, work: usize) {
        self.work += work;
    }

    #[cfg(not(test))]
    fn note_work(&self, _: usize) {}
}
