//! Finds many texts, and their beginnings, in one pass over a message. Pure.
//!
//! The texts form a trie, and each node refers to the longest node that its own text ends with, as Aho and Corasick do it.
//! The work is proportional to the texts, once, and to the bytes of a message, however many texts there are and whatever
//! they have in common.

use std::{fmt, ops::Range};

use super::super::decoded::is_cut;

/// The node that all texts begin at.
const ROOT: usize = 0;

/// Texts to look for.
#[derive(Debug)]
pub(super) struct Beginnings {
    nodes: Vec<Node>,
    /// Where a node goes on with which byte; [`ROOT`] where it does not. The first table is empty, the second the root's,
    /// the others those of nodes at which a text branches off another one: fewer than there are texts.
    tables: Vec<[u32; 256]>,
}

/// The beginning of a text, up to a byte.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Its last byte.
    byte: u8,
    /// Whether the next node in the list goes on from here.
    is_continued: bool,
    /// How it goes on otherwise.
    table: u8,
    /// The longest shorter node that this one ends with.
    suffix: u32,
    /// What is found if this is found, wherever it is.
    anywhere: End,
    /// What is found if the message is cut behind it.
    where_cut: End,
}

/// The longest text that ends at a node; none if its length is 0.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    length: u16,
    text: u8,
}

/// Which beginnings of a text count, by their lengths in bytes. The whole text always does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Least {
    /// Wherever they are.
    pub(super) anywhere: usize,
    /// Where the message is cut.
    pub(super) where_cut: usize,
}

impl Beginnings {
    /// Those of texts, which are numbered as they come. What several begin with is the first one's.
    pub(super) fn of<'t>(texts: impl Iterator<Item = (&'t [u8], Least)> + Clone) -> Self {
        let mut nodes = Vec::with_capacity(1 + texts.clone().map(|(text, _)| text.len()).sum::<usize>());
        nodes.push(Node { table: 1, ..Node::default() });
        let mut all = Self { nodes, tables: vec![[0; 256]; 2] };
        for (number, (text, least)) in texts.enumerate() {
            all.insert(text, least, number);
        }
        all.link();
        all
    }

    fn insert(&mut self, text: &[u8], least: Least, number: usize) {
        let mut at = ROOT;
        for (depth, byte) in (1..).zip(text) {
            at = self.child(at, *byte).unwrap_or_else(|| self.add(at, *byte));
            let node = &mut self.nodes[at];
            if depth >= least.anywhere || depth == text.len() {
                node.anywhere = node.anywhere.or(End::new(depth, number));
            }
            if depth >= least.where_cut || depth == text.len() {
                node.where_cut = node.where_cut.or(End::new(depth, number));
            }
        }
    }

    fn child(&self, parent: usize, byte: u8) -> Option<usize> {
        let node = self.nodes[parent];
        if node.is_continued && self.nodes[parent + 1].byte == byte {
            return Some(parent + 1);
        }
        let child = self.tables[usize::from(node.table)][usize::from(byte)] as usize;
        (child != ROOT).then_some(child)
    }

    fn add(&mut self, parent: usize, byte: u8) -> usize {
        let at = self.nodes.len();
        if parent != ROOT && parent + 1 == at {
            self.nodes[parent].is_continued = true;
        } else {
            if self.nodes[parent].table == 0 {
                self.nodes[parent].table = narrow(self.tables.len());
                self.tables.push([0; 256]);
            }
            self.tables[usize::from(self.nodes[parent].table)][usize::from(byte)] = narrow(at);
        }
        self.nodes.push(Node { byte, ..Node::default() });
        at
    }

    /// Sets all suffixes, shorter nodes first. At each length there are at most as many nodes as there are texts.
    fn link(&mut self) {
        let mut level: Vec<_> = self.branches(ROOT).collect();
        while !level.is_empty() {
            let mut next = Vec::with_capacity(level.len());
            for parent in level {
                if self.nodes[parent].is_continued {
                    next.push((parent, parent + 1));
                }
                next.extend(self.branches(parent).map(|child| (parent, child)));
            }
            for (parent, child) in &next {
                let suffix = self.step(self.nodes[*parent].suffix as usize, self.nodes[*child].byte);
                let Node { anywhere, where_cut, .. } = self.nodes[suffix];
                let node = &mut self.nodes[*child];
                node.suffix = narrow(suffix);
                node.anywhere = node.anywhere.or(anywhere);
                node.where_cut = node.where_cut.or(where_cut);
            }
            level = next.into_iter().map(|(_, child)| child).collect();
        }
    }

    fn branches(&self, parent: usize) -> impl Iterator<Item = usize> {
        let table = Some(self.nodes[parent].table).filter(|table| *table != 0);
        let children = table.into_iter().flat_map(|table| &self.tables[usize::from(table)]);
        children.map(|child| *child as usize).filter(|child| *child != ROOT)
    }

    /// The longest node that a node's text ends with together with the byte after it.
    fn step(&self, mut at: usize, byte: u8) -> usize {
        loop {
            match self.child(at, byte) {
                Some(child) => return child,
                None if at == ROOT => return ROOT,
                None => at = self.nodes[at].suffix as usize,
            }
        }
    }

    /// Notes what is found, but for what lies within something longer that ends at the same place.
    pub(super) fn search(&self, message: &[u8], note: &mut impl FnMut(Range<usize>, usize)) {
        let mut at = ROOT;
        for (end, byte) in (1..).zip(message) {
            at = self.step(at, *byte);
            let Node { anywhere, where_cut, .. } = self.nodes[at];
            let is_cut = where_cut.length > 0 && is_cut(&message[end..]);
            let found = if is_cut { where_cut } else { anywhere };
            if found.length > 0 {
                note(end - usize::from(found.length)..end, usize::from(found.text));
            }
        }
    }
}

impl End {
    fn new(length: usize, text: usize) -> Self {
        Self { length: narrow(length), text: narrow(text) }
    }

    fn or(self, other: Self) -> Self {
        if self.length > 0 { self } else { other }
    }
}

/// A number that [`super::MESSAGE_LIMIT`] and [`super::MOST_TEXTS`] keep small enough.
fn narrow<T: TryFrom<usize, Error: fmt::Debug>>(number: usize) -> T {
    T::try_from(number).expect("texts are few, and little longer than the message")
}
