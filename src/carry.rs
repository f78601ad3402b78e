//! Writes state as bytes for the process that takes over, and reads it there. In: values; out: bytes, which only code reads
//! that keeps the same state. Pure. Trusts no bytes: reading never panics, and allocates no more than there are.
//!
//! ```text
//! layout u64 | checksum u64 | the fields, one after another
//! ```

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// To be raised when a field that is carried gets another meaning, but keeps its name and its type.
const MEANING: u64 = 1;

/// In front of the fields: layout and checksum.
const HEAD: usize = 16;

/// FNV-1a's, but each step takes 64 bits.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// Why bytes are not taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// They were written by code that keeps other state.
    #[error("it was left by a version that keeps other state")]
    OtherLayout,
    /// They are not what was written.
    #[error("it is damaged")]
    Damaged,
}

/// A value that the next process takes over.
pub trait Carry: Sized {
    /// Another one as soon as it is written in another way.
    const LAYOUT: u64;

    /// Appends it.
    fn write(&self, into: &mut Writer);

    /// Takes one off the front.
    ///
    /// # Errors
    /// These are not the bytes of such a value.
    fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable>;
}

/// The layout of a value that is made of these parts.
pub const fn layout(name: &str, parts: &[(&str, u64)]) -> u64 {
    let mut hash = hash_text(mix(BASIS, MEANING), name);
    let mut at = 0;
    while at < parts.len() {
        let (name, layout) = parts[at];
        hash = mix(hash_text(hash, name), layout);
        at += 1;
    }
    hash
}

/// The layout of a field.
pub const fn layout_of<S, T: Carry>(_: fn(&S) -> &T) -> u64 {
    T::LAYOUT
}

const fn hash_text(mut hash: u64, text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        hash = mix(hash, bytes[at] as u64);
        at += 1;
    }
    mix(hash, bytes.len() as u64)
}

/// Turned, so that what differs in the upper bits does not stay there.
const fn mix(hash: u64, more: u64) -> u64 {
    (hash ^ more).wrapping_mul(PRIME).rotate_left(23)
}

/// Shows that bytes are those that were written. Not against an adversary: whoever can change them is root.
pub fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let hash = words.iter().fold(BASIS, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    rest.iter().fold(mix(hash, bytes.len() as u64), |hash, byte| mix(hash, u64::from(*byte)))
}

/// Collects what is carried.
pub struct Writer {
    bytes: Vec<u8>,
    /// When the state was as it is written.
    now: Instant,
}

impl Writer {
    /// Of a value with this layout.
    pub fn new(layout: u64, now: Instant) -> Self {
        let mut bytes = layout.to_le_bytes().to_vec();
        bytes.resize(HEAD, 0);
        Self { bytes, now }
    }

    /// Appends octets whose number the reader knows.
    pub fn push(&mut self, octets: &[u8]) {
        self.bytes.extend_from_slice(octets);
    }

    /// Appends octets of any number.
    pub fn bytes(&mut self, octets: &[u8]) {
        octets.len().write(self);
        self.push(octets);
    }

    /// All of it.
    pub fn finish(self) -> Vec<u8> {
        let mut bytes = self.bytes;
        let checksum = checksum(&bytes[HEAD..]);
        bytes[HEAD / 2..HEAD].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

/// What is carried, as far as it was not read yet.
pub struct Reader<'a> {
    rest: &'a [u8],
    /// When the state was as it was written, by the clock of this process.
    now: Instant,
}

impl<'a> Reader<'a> {
    /// Of a value with this layout.
    ///
    /// # Errors
    /// It has another one, or the bytes are damaged.
    pub fn open(bytes: &'a [u8], layout: u64, now: Instant) -> Result<Self, Unreadable> {
        let mut reader = Self { rest: bytes, now };
        if u64::read(&mut reader)? != layout {
            return Err(Unreadable::OtherLayout);
        }
        if u64::read(&mut reader)? != checksum(reader.rest) {
            return Err(Unreadable::Damaged);
        }
        Ok(reader)
    }

    /// The next so many octets.
    ///
    /// # Errors
    /// There are not as many.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Unreadable> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Unreadable::Damaged)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Octets that were written with their number.
    ///
    /// # Errors
    /// There are not as many.
    pub fn bytes(&mut self) -> Result<&'a [u8], Unreadable> {
        let count = usize::read(self)?;
        self.take(count)
    }

    /// The same as text.
    ///
    /// # Errors
    /// It is none.
    pub fn text(&mut self) -> Result<&'a str, Unreadable> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Unreadable::Damaged)
    }

    /// Ends where the value does.
    ///
    /// # Errors
    /// More follows.
    pub fn end(self) -> Result<(), Unreadable> {
        if self.rest.is_empty() { Ok(()) } else { Err(Unreadable::Damaged) }
    }
}

/// Has a type carried field by field. Whoever adds a field and forgets it here gets an error of the compiler.
///
/// `fresh` fields begin anew. `if` names a method that says whether what was read can be worked with: everything but this is
/// what damaged bytes can make of the fields.
macro_rules! carried {
    (
        struct $name:ident { $($field:ident),* $(,)? }
        $(fresh { $($(#[$attribute:meta])* $fresh:ident: $value:expr),* $(,)? })?
        $(if $is_sound:ident)?
    ) => {
        impl $crate::carry::Carry for $name {
            const LAYOUT: u64 = $crate::carry::layout(
                stringify!($name),
                &[$((stringify!($field), $crate::carry::layout_of(|it: &Self| &it.$field))),*],
            );

            #[cold]
            #[inline(never)]
            fn write(&self, into: &mut $crate::carry::Writer) {
                let Self { $($field,)* $($($(#[$attribute])* $fresh: _,)*)? } = self;
                $($crate::carry::Carry::write($field, into);)*
            }

            #[cold]
            #[inline(never)]
            fn read(from: &mut $crate::carry::Reader<'_>) -> Result<Self, $crate::carry::Unreadable> {
                let read = Self {
                    $($field: $crate::carry::Carry::read(from)?,)*
                    $($($(#[$attribute])* $fresh: $value,)*)?
                };
                $(if !read.$is_sound() {
                    return Err($crate::carry::Unreadable::Damaged);
                })?
                Ok(read)
            }
        }
    };
    (
        enum $name:ident {
            $($tag:literal $variant:ident
                $(($($field:ident: $type:ty),*))?
                $({ $($named:ident: $named_type:ty),* })?
            ),* $(,)?
        }
    ) => {
        impl $crate::carry::Carry for $name {
            const LAYOUT: u64 = $crate::carry::layout(stringify!($name), &[$((
                stringify!($tag $variant),
                $crate::carry::layout("", &[
                    $($((stringify!($field), <$type as $crate::carry::Carry>::LAYOUT)),*)?
                    $($((stringify!($named), <$named_type as $crate::carry::Carry>::LAYOUT)),*)?
                ]),
            )),*]);

            #[cold]
            #[inline(never)]
            fn write(&self, into: &mut $crate::carry::Writer) {
                match self {
                    $(Self::$variant $(($($field),*))? $({ $($named),* })? => {
                        into.push(&[$tag]);
                        $($($crate::carry::Carry::write($field, into);)*)?
                        $($($crate::carry::Carry::write($named, into);)*)?
                    })*
                }
            }

            #[cold]
            #[inline(never)]
            fn read(from: &mut $crate::carry::Reader<'_>) -> Result<Self, $crate::carry::Unreadable> {
                let tag: u8 = $crate::carry::Carry::read(from)?;
                Ok(match tag {
                    $($tag => Self::$variant
                        $(($(<$type as $crate::carry::Carry>::read(from)?),*))?
                        $({ $($named: <$named_type as $crate::carry::Carry>::read(from)?),* })?,)*
                    _ => return Err($crate::carry::Unreadable::Damaged),
                })
            }
        }
    };
}

pub(crate) use carried;

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Carry for $number {
            const LAYOUT: u64 = layout(stringify!($number), &[]);

            fn write(&self, into: &mut Writer) {
                into.push(&self.to_le_bytes());
            }

            fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
                <[u8; _]>::read(from).map(Self::from_le_bytes)
            }
        }
    )*};
}

numbers!(u32, u64, i32);

impl Carry for u8 {
    const LAYOUT: u64 = layout("u8", &[]);

    fn write(&self, into: &mut Writer) {
        into.push(&[*self]);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        <[u8; 1]>::read(from).map(|[byte]| byte)
    }
}

impl Carry for bool {
    const LAYOUT: u64 = layout("bool", &[]);

    fn write(&self, into: &mut Writer) {
        into.push(&[u8::from(*self)]);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        match u8::read(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Unreadable::Damaged),
        }
    }
}

impl Carry for usize {
    const LAYOUT: u64 = layout("usize", &[]);

    fn write(&self, into: &mut Writer) {
        (*self as u64).write(into);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        u64::read(from)?.try_into().map_err(|_| Unreadable::Damaged)
    }
}

impl<const N: usize> Carry for [u8; N] {
    const LAYOUT: u64 = layout("octets", &[("", N as u64)]);

    fn write(&self, into: &mut Writer) {
        into.push(self);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        from.take(N)?.try_into().map_err(|_| Unreadable::Damaged)
    }
}

impl Carry for Vec<u8> {
    const LAYOUT: u64 = layout("bytes", &[]);

    fn write(&self, into: &mut Writer) {
        into.bytes(self);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        from.bytes().map(Self::from)
    }
}

impl Carry for Arc<[u8]> {
    const LAYOUT: u64 = Vec::LAYOUT;

    fn write(&self, into: &mut Writer) {
        into.bytes(self);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        from.bytes().map(Self::from)
    }
}

impl Carry for Arc<str> {
    const LAYOUT: u64 = layout("text", &[]);

    fn write(&self, into: &mut Writer) {
        into.bytes(self.as_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        from.text().map(Self::from)
    }
}

impl Carry for Box<str> {
    const LAYOUT: u64 = <Arc<str>>::LAYOUT;

    fn write(&self, into: &mut Writer) {
        into.bytes(self.as_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        from.text().map(Self::from)
    }
}

impl<T: Carry> Carry for Box<T> {
    const LAYOUT: u64 = T::LAYOUT;

    fn write(&self, into: &mut Writer) {
        T::write(self, into);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        T::read(from).map(Self::new)
    }
}

impl<T: Carry> Carry for Option<T> {
    const LAYOUT: u64 = layout("option", &[("", T::LAYOUT)]);

    fn write(&self, into: &mut Writer) {
        self.is_some().write(into);
        if let Some(value) = self {
            value.write(into);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        bool::read(from)?.then(|| T::read(from)).transpose()
    }
}

/// How long ago it was: the times of two processes differ.
impl Carry for Instant {
    const LAYOUT: u64 = layout("instant", &[]);

    fn write(&self, into: &mut Writer) {
        let age = into.now.saturating_duration_since(*self);
        u64::try_from(age.as_nanos()).unwrap_or(u64::MAX).write(into);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let age = Duration::from_nanos(u64::read(from)?);
        from.now.checked_sub(age).ok_or(Unreadable::Damaged)
    }
}

#[cfg(test)]
pub(crate) mod tests;
