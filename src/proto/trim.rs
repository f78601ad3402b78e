//! Decodes messages with content from pod authors, no further than needed: bytes in; a message of bounded size, and how
//! much was left out, out. Works on the encoded form, so that nothing large is ever decoded. Pure.

pub mod fields;

use std::{borrow::Cow, collections::BTreeSet, ops::Deref, str, sync::Arc};

use fields::{Field, put};
use prost::Message;

use super::cri;
use crate::carry::{self, Carry, Reader, Unreadable, Writer};

/// 512 bytes: the longest name that is kept as it is. Kubernetes allows 253, and an image's reference is shorter, too. A
/// longer one is shortened to its beginning and a hash of all of it, so that two long names stay two.
pub const MAX_NAME: usize = 512;

/// 32 KiB of labels are kept of one object, each counted with [`OVERHEAD`]: a Kubernetes label has 380 bytes at most, and
/// pods have a dozen. Above that the longest are left out, which is counted.
const MAX_LABELS: usize = 32 << 10;

/// The label by which a kubelet's pods are known. It is always kept: an author cannot drive it out with labels of their own.
pub const KUBELETS_UID: &str = "io.kubernetes.pod.uid";

/// 128 KiB of annotations are kept of one object, each counted with [`OVERHEAD`]: half of what Kubernetes accepts, and
/// only those that something reads. Above that the longest are left out, which is counted.
const MAX_ANNOTATIONS: usize = 128 << 10;

/// 64 bytes: what an entry of a map takes in memory beside its text.
const OVERHEAD: usize = 64;

/// 16 KiB and a byte: how much of one annotation of ours is kept. That is one byte more than is read, so that a longer
/// one is reported as too long.
const MAX_OWN: usize = (16 << 10) + 1;

/// 1,024 bytes of a text for people, or of a path. A longer text is cut at a character; a longer path is left out, as its
/// beginning names another file.
const MAX_TEXT: usize = 1 << 10;

/// A message as it was decoded, without what was too large.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trimmed<T> {
    message: T,
    omitted: u32,
}

impl<T> Trimmed<T> {
    /// How many labels and annotations were left out because there was no room for them. Those that nothing reads are
    /// not counted.
    pub fn omitted(&self) -> u32 {
        self.omitted
    }

    /// The message alone.
    pub fn into_inner(self) -> T {
        self.message
    }
}

impl<T> Deref for Trimmed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.message
    }
}

/// A message that was small from the beginning.
impl<T> From<T> for Trimmed<T> {
    fn from(message: T) -> Self {
        Self { message, omitted: 0 }
    }
}

/// As the message; it is trimmed again, which changes nothing.
impl<T: Trim> Carry for Arc<Trimmed<T>> {
    const LAYOUT: u64 = carry::layout("Trimmed", &[("omitted", u32::LAYOUT), ("message", Vec::LAYOUT)]);

    fn write(&self, into: &mut Writer) {
        self.omitted.write(into);
        into.bytes(&self.message.encode_to_vec());
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let omitted = u32::read(from)?;
        let mut trimmed: Trimmed<T> = decode(from.bytes()?).map_err(|_| Unreadable::Damaged)?;
        trimmed.omitted = omitted;
        Ok(Self::new(trimmed))
    }
}

/// The bytes are no such message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message")]
pub struct Malformed;

/// A message of which only some fields are decoded.
pub trait Trim: Message + Default {
    /// Those fields.
    const SHAPE: &'static [(u32, Part)];
}

/// How a field is decoded; one that a shape does not name is left out.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// As it is.
    Whole,
    /// Text that is shortened above [`MAX_NAME`].
    Name,
    /// Text for people, of which the beginning is kept, `MAX_TEXT` bytes.
    Text,
    /// A path, which is kept whole if it has at most `MAX_TEXT` bytes, else not at all.
    Path,
    /// A map of labels.
    Labels,
    /// A map of annotations, of which only those are kept that something reads.
    Annotations,
    /// A message with a shape of its own.
    Message(&'static [(u32, Part)]),
}

const POD: Part = Part::Message(&[(1, Part::Name), (2, Part::Name), (3, Part::Name), (4, Part::Whole)]);
const CONTAINER: Part = Part::Message(&[(1, Part::Name), (2, Part::Whole)]);
const IMAGE: Part = Part::Message(&[(1, Part::Name), (18, Part::Name)]);
/// Not its environment: the runtime is asked for the variables that a command names, once there is such a command.
const CONFIG: Part = Part::Message(&[(1, CONTAINER), (2, IMAGE), (10, Part::Annotations)]);

impl Trim for cri::PodSandboxConfig {
    const SHAPE: &'static [(u32, Part)] =
        &[(1, POD), (6, Part::Labels), (7, Part::Annotations), (8, Part::Whole)];
}

impl Trim for cri::PodSandbox {
    const SHAPE: &'static [(u32, Part)] = &[
        (1, Part::Name),
        (2, POD),
        (3, Part::Whole),
        (4, Part::Whole),
        (5, Part::Labels),
        (6, Part::Annotations),
    ];
}

impl Trim for cri::PodSandboxStatus {
    const SHAPE: &'static [(u32, Part)] = &[
        (1, Part::Name),
        (2, POD),
        (3, Part::Whole),
        (4, Part::Whole),
        (5, Part::Whole),
        (6, Part::Whole),
        (7, Part::Labels),
        (8, Part::Annotations),
    ];
}

impl Trim for cri::CreateContainerRequest {
    /// Of the pod only its names, for the trace.
    const SHAPE: &'static [(u32, Part)] = &[(1, Part::Name), (2, CONFIG), (3, Part::Message(&[(1, POD)]))];
}

impl Trim for cri::Container {
    const SHAPE: &'static [(u32, Part)] = &[
        (1, Part::Name),
        (2, Part::Name),
        (3, CONTAINER),
        (4, IMAGE),
        (5, Part::Name),
        (6, Part::Whole),
        (7, Part::Whole),
        (9, Part::Annotations),
        (10, Part::Name),
    ];
}

impl Trim for cri::ContainerStatus {
    const SHAPE: &'static [(u32, Part)] = &[
        (1, Part::Name),
        (2, CONTAINER),
        (3, Part::Whole),
        (4, Part::Whole),
        (5, Part::Whole),
        (6, Part::Whole),
        (7, Part::Whole),
        (9, Part::Name),
        (10, Part::Name),
        (11, Part::Text),
        (15, Part::Path),
        (17, Part::Name),
    ];
}

/// Decodes what is needed of a message.
///
/// # Errors
/// It is malformed, in whatever part.
pub fn decode<T: Trim>(bytes: &[u8]) -> Result<Trimmed<T>, Malformed> {
    let (mut kept, mut omitted) = (Vec::new(), 0);
    trim(bytes, T::SHAPE, &mut kept, &mut omitted)?;
    let message = T::decode(kept.as_slice()).map_err(|_| Malformed)?;
    Ok(Trimmed { message, omitted })
}

/// A name as it is kept: of one that is too long, its beginning and a hash of all of it.
pub fn name(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_NAME {
        return Cow::Borrowed(text);
    }
    // FNV-1a, 64 bits: the same in every version of criprobe, as the saved state goes by names.
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    Cow::Owned(format!("{}...{hash:016x}", cut(text, MAX_NAME - "...".len() - 16)))
}

/// The beginning of a text, of so many bytes at most.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn trim(
    mut message: &[u8],
    shape: &[(u32, Part)],
    kept: &mut Vec<u8>,
    omitted: &mut u32,
) -> Result<(), Malformed> {
    let (mut labels, mut annotations) = (Entries::new(MAX_LABELS), Entries::new(MAX_ANNOTATIONS));
    while let Some(field) = Field::next(&mut message)? {
        let part = shape.iter().find_map(|(tag, part)| (*tag == field.tag).then_some(*part));
        match (part, field.payload) {
            (None, _) => {}
            (Some(Part::Labels), Some(entry)) => {
                let Entry { tag, key, value } = Entry::read(field.tag, entry)?;
                let value = if key == KUBELETS_UID { cut(value, MAX_NAME) } else { value };
                *omitted += labels.offer(Entry { tag, key, value });
            }
            (Some(Part::Annotations), Some(entry)) => {
                let Entry { tag, key, value } = Entry::read(field.tag, entry)?;
                match Use::of(key) {
                    Some(Use::Probe) => {
                        *omitted += annotations.offer(Entry { tag, key, value: cut(value, MAX_OWN) });
                    }
                    Some(Use::Ports | Use::Guess) => *omitted += annotations.offer(Entry { tag, key, value }),
                    None => {}
                }
            }
            (Some(Part::Name), Some(text)) => {
                let text = str::from_utf8(text).map_err(|_| Malformed)?;
                put(kept, field.tag, name(text).as_bytes());
            }
            (Some(Part::Text), Some(text)) => {
                let text = str::from_utf8(text).map_err(|_| Malformed)?;
                put(kept, field.tag, cut(text, MAX_TEXT).as_bytes());
            }
            (Some(Part::Path), Some(path)) if path.len() > MAX_TEXT => {}
            (Some(Part::Message(shape)), Some(inner)) => {
                let mut trimmed = Vec::new();
                trim(inner, shape, &mut trimmed, omitted)?;
                put(kept, field.tag, &trimmed);
            }
            // A field of another type than it must have is refused by the decoder.
            (Some(Part::Whole | Part::Path), _) | (Some(_), None) => kept.extend_from_slice(field.bytes),
        }
    }
    labels.write(kept);
    annotations.write(kept);
    Ok(())
}

/// What an annotation is read for.
enum Use {
    /// It is under our own domain: a probe, or the switch.
    Probe,
    /// The ports that a container declares.
    Ports,
    /// What a client's own probe is likely to be.
    Guess,
}

impl Use {
    fn of(key: &str) -> Option<Self> {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        match key {
            "io.kubernetes.container.ports" => Some(Self::Ports),
            "kubectl.kubernetes.io/last-applied-configuration" | "kubernetes.io/config.source" => {
                Some(Self::Guess)
            }
            // A key whose author forgot the slash and the container's name is reported, too.
            _ if domain == "criprobe.dev"
                || domain.ends_with(".criprobe.dev")
                || key.ends_with(".criprobe.dev") =>
            {
                Some(Self::Probe)
            }
            _ => None,
        }
    }
}

/// One entry of a map.
#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    /// Of the map's field.
    tag: u32,
    key: &'a str,
    value: &'a str,
}

impl<'a> Entry<'a> {
    fn read(tag: u32, mut entry: &'a [u8]) -> Result<Self, Malformed> {
        let (mut key, mut value) = ("", "");
        while let Some(field) = Field::next(&mut entry)? {
            let text = || -> Result<&'a str, Malformed> {
                str::from_utf8(field.payload.ok_or(Malformed)?).map_err(|_| Malformed)
            };
            match field.tag {
                1 => key = text()?,
                2 => value = text()?,
                _ => {}
            }
        }
        Ok(Self { tag, key, value })
    }
}

/// The shortest entries of a map that have room together: a long one drives none out that every pod has, and their
/// order, which runtimes leave to chance, makes no difference.
struct Entries<'a> {
    /// [`KUBELETS_UID`] first, then by weight, then by text.
    shortest: BTreeSet<((bool, usize), &'a str, &'a str, u32)>,
    held: usize,
    most: usize,
}

impl<'a> Entries<'a> {
    fn new(most: usize) -> Self {
        Self { shortest: BTreeSet::new(), held: 0, most }
    }

    /// Takes one in. Returns how many were left out for that.
    fn offer(&mut self, entry: Entry<'a>) -> u32 {
        let weight = entry.key.len() + entry.value.len() + OVERHEAD;
        let weight = (entry.key != KUBELETS_UID, weight);
        if self.shortest.insert((weight, entry.key, entry.value, entry.tag)) {
            self.held += weight.1;
        }
        let mut left_out = 0;
        while self.held > self.most
            && let Some(((_, weight), ..)) = self.shortest.pop_last()
        {
            self.held -= weight;
            left_out += 1;
        }
        left_out
    }

    fn write(&self, kept: &mut Vec<u8>) {
        for (_, key, value, tag) in &self.shortest {
            let mut entry = Vec::new();
            put(&mut entry, 1, key.as_bytes());
            put(&mut entry, 2, value.as_bytes());
            put(kept, *tag, &entry);
        }
    }
}

#[cfg(test)]
mod tests;
