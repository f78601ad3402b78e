//! What all subscribers of the live stream share: rows as they are now in; for each reader, what is newer than what it was
//! sent out, piece by piece. Pure. A reader keeps a number and a key: one that never reads holds no row.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    ops::Bound,
    sync::Arc,
};

use super::event;
use crate::report::pieces::PIECE;

/// 256 rows that are gone are remembered; readers that were sent less than that begin again.
const MAX_GONE: usize = 256;

/// Rows, and single texts beside them, each with the version in which it changed.
#[derive(Debug, Default)]
pub(super) struct Board {
    /// Counts the changes; 0 before the first.
    version: u64,
    rows: BTreeMap<Arc<str>, Kept>,
    /// Rows that are gone since a version, oldest first.
    gone: VecDeque<(u64, Arc<str>)>,
    /// Those that were gone before this version are forgotten.
    floor: u64,
    /// How many rows are left out.
    hidden: usize,
    /// By the name of their event.
    texts: BTreeMap<&'static str, (u64, Arc<str>)>,
}

#[derive(Debug)]
struct Kept {
    version: u64,
    /// Of what the row shows.
    print: u64,
    json: Arc<str>,
}

/// A row as it is now.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) key: Arc<str>,
    /// Another one whenever the row shows something else.
    pub(super) print: u64,
    /// The row; `None` where the board has that print.
    pub(super) json: Option<Arc<str>>,
}

/// What one reader was sent.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// All rows up to this version; `None` before the first.
    base: Option<u64>,
    pass: Option<Pass>,
    hidden: usize,
    /// The versions of the texts, by their events.
    texts: BTreeMap<&'static str, u64>,
}

/// On the way through the rows.
#[derive(Debug)]
struct Pass {
    /// The version when it began: rows that change meanwhile are sent by the next one, at the latest.
    target: u64,
    is_first: bool,
    after: Option<Arc<str>>,
}

impl Board {
    /// The print of a row that it has.
    pub(super) fn print(&self, key: &str) -> Option<u64> {
        self.rows.get(key).map(|row| row.print)
    }

    /// Whether no rows were taken in, since the beginning or since it forgot all.
    fn is_blank(&self) -> bool {
        self.version < self.floor.max(1)
    }

    /// Takes in all rows that there are, and how many are left out.
    pub(super) fn update(&mut self, rows: Vec<Fresh>, hidden: usize) {
        let next = self.version + 1;
        let there: HashSet<_> = rows.iter().map(|row| row.key.clone()).collect();
        let gone: Vec<_> = self.rows.keys().filter(|key| !there.contains(*key)).cloned().collect();
        let mut has_changed = self.is_blank() || hidden != self.hidden || !gone.is_empty();
        for key in gone {
            self.rows.remove(&key);
            self.gone.push_back((next, key));
        }
        for Fresh { key, print, json } in rows {
            if let Some(json) = json {
                self.rows.insert(key, Kept { version: next, print, json });
                has_changed = true;
            }
        }
        while self.gone.len() > MAX_GONE
            && let Some((version, _)) = self.gone.pop_front()
        {
            self.floor = version;
        }
        self.hidden = hidden;
        self.version += u64::from(has_changed);
    }

    /// Takes in the text of an event that is sent whenever it changes.
    pub(super) fn set(&mut self, name: &'static str, json: Arc<str>) {
        let version = self.texts.get(name).map_or(0, |(version, _)| *version);
        if self.texts.get(name).is_none_or(|(_, known)| *known != json) {
            self.texts.insert(name, (version + 1, json));
        }
    }

    /// Forgets all rows, as there are no readers. A new reader begins with all rows.
    pub(super) fn clear(&mut self) {
        *self = Self { version: self.version + 1, floor: self.version + 2, ..Self::default() };
    }

    /// Writes what this reader was not sent yet, until that is a piece.
    pub(super) fn write(&self, reader: &mut Reader, to: &mut String) {
        for (&name, (version, json)) in &self.texts {
            if reader.texts.insert(name, *version) != Some(*version) {
                event(to, name, json);
            }
        }
        while to.len() < PIECE && self.write_rows(reader, to) {}
    }

    /// Whether this reader was sent all rows at least once, and each of these texts.
    pub(super) fn has_sent(&self, reader: &Reader, texts: &[&str]) -> bool {
        reader.base.is_some()
            && reader.pass.is_none()
            && texts.iter().all(|name| reader.texts.contains_key(name))
    }

    /// Writes an event of rows, if there is something to write. False where this reader has them all.
    fn write_rows(&self, reader: &mut Reader, to: &mut String) -> bool {
        if reader.pass.is_none() {
            if reader.base.is_some_and(|base| base < self.floor) {
                reader.base = None;
            }
            let is_behind = reader.base.is_none_or(|base| base < self.version);
            if self.is_blank() || !is_behind {
                return false;
            }
            reader.pass = Some(Pass { target: self.version, is_first: true, after: None });
        }
        let Some(pass) = &mut reader.pass else { return false };
        let base = reader.base.unwrap_or(0);
        let is_reset = pass.is_first && reader.base.is_none();
        let after = pass.after.take().map_or(Bound::Unbounded, Bound::Excluded);
        let (mut rows, mut last) = (String::new(), None);
        for (key, row) in self.rows.range((after, Bound::Unbounded)).filter(|(_, row)| row.version > base) {
            if !rows.is_empty() {
                rows.push(',');
            }
            rows.push_str(&row.json);
            if to.len() + rows.len() >= PIECE {
                last = Some(key.clone());
                break;
            }
        }
        let gone = self.gone.iter().filter(|(version, key)| *version > base && !self.rows.contains_key(key));
        let gone: Vec<_> = gone.filter(|_| pass.is_first && !is_reset).map(|(_, key)| &**key).collect();
        let goes_on = last.is_some();
        // A reader that expects more is sent the end of the list, also if nothing is in it.
        let is_due = is_reset || !pass.is_first || reader.hidden != self.hidden;
        let is_empty = rows.is_empty() && gone.is_empty() && !is_due;
        if !is_empty {
            let gone = serde_json::to_string(&gone).unwrap_or_default();
            let hidden = self.hidden;
            let json = format!(
                r#"{{"reset":{is_reset},"rows":[{rows}],"more":{goes_on},"gone":{gone},"hidden":{hidden}}}"#
            );
            event(to, "rows", &json);
            reader.hidden = hidden;
        }
        if goes_on {
            (pass.after, pass.is_first) = (last, false);
            return true;
        }
        reader.base = Some(pass.target);
        reader.pass = None;
        // There may be newer ones by now.
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Rows by key and print, which is what they show, too.
    fn update(board: &mut Board, rows: &BTreeMap<u8, u64>, hidden: usize) {
        let fresh = rows.iter().map(|(key, print)| {
            let key: Arc<str> = format!("{key:03}").into();
            let json = (board.print(&key) != Some(*print)).then(|| format!("[\"{key}\",{print}]").into());
            Fresh { key, print: *print, json }
        });
        let fresh = fresh.collect();
        board.update(fresh, hidden);
    }

    /// What a page shows that was sent this, and how many rows and events it was sent.
    #[derive(Debug, Default, PartialEq)]
    struct Page {
        rows: BTreeMap<u8, u64>,
        hidden: u64,
        sent: usize,
        resets: usize,
    }

    impl Page {
        fn take(&mut self, text: &str) {
            for event in text.split_terminator("\n\n") {
                let data = event.strip_prefix("event: rows\ndata: ").unwrap();
                let data: serde_json::Value = serde_json::from_str(data).unwrap();
                if data["reset"] == true {
                    self.rows.clear();
                    self.resets += 1;
                }
                let number = |key: &serde_json::Value| key.as_str().unwrap().parse::<u8>().unwrap();
                for key in data["gone"].as_array().unwrap() {
                    self.rows.remove(&number(key));
                }
                for row in data["rows"].as_array().unwrap() {
                    self.rows.insert(number(&row[0]), row[1].as_u64().unwrap());
                    self.sent += 1;
                }
                self.hidden = data["hidden"].as_u64().unwrap();
            }
        }

        fn read(&mut self, board: &Board, reader: &mut Reader) {
            let mut text = String::new();
            board.write(reader, &mut text);
            self.take(&text);
        }
    }

    #[test]
    fn a_reader_gets_all_rows_first_and_then_only_what_changed() {
        let (mut board, mut reader, mut page) = (Board::default(), Reader::default(), Page::default());
        page.read(&board, &mut reader);
        assert_eq!(page, Page::default(), "nothing is known yet");
        let mut rows: BTreeMap<u8, u64> = (0..100).map(|key| (key, 1)).collect();
        for (change, sent, resets) in [
            (None, 100, 1),
            (None, 100, 1),
            (Some((7, Some(2))), 101, 1),
            (Some((7, None)), 101, 1),
            (Some((7, Some(2))), 102, 1),
            (Some((200, Some(1))), 103, 1),
        ] {
            match change {
                Some((key, Some(print))) => drop(rows.insert(key, print)),
                Some((key, None)) => drop(rows.remove(&key)),
                None => {}
            }
            update(&mut board, &rows, 0);
            page.read(&board, &mut reader);
            assert_eq!((&page.rows, page.sent, page.resets), (&rows, sent, resets), "{change:?}");
        }
        update(&mut board, &rows, 5);
        page.read(&board, &mut reader);
        assert_eq!((page.hidden, page.sent), (5, 103));
    }

    #[test]
    fn no_rows_at_all_are_told_too_and_who_comes_back_begins_again() {
        let (mut board, mut reader, mut page) = (Board::default(), Reader::default(), Page::default());
        update(&mut board, &BTreeMap::new(), 0);
        page.read(&board, &mut reader);
        assert_eq!(page.resets, 1);
        update(&mut board, &[(1, 1)].into(), 0);
        page.read(&board, &mut reader);
        board.clear();
        page.read(&board, &mut reader);
        assert_eq!((page.resets, page.sent), (1, 1), "what it forgot is not gone");
        update(&mut board, &[(2, 1)].into(), 0);
        page.read(&board, &mut reader);
        assert_eq!((page.resets, page.rows), (2, [(2, 1)].into()));
    }

    #[test]
    fn one_who_missed_too_many_that_are_gone_begins_again() {
        let (mut board, mut reader, mut page) = (Board::default(), Reader::default(), Page::default());
        update(&mut board, &[(1, 1)].into(), 0);
        page.read(&board, &mut reader);
        for number in 0..=MAX_GONE {
            update(&mut board, &[(u8::try_from(number % 200 + 2).unwrap(), 1)].into(), 0);
        }
        page.read(&board, &mut reader);
        assert_eq!((page.resets, page.rows.len(), page.sent), (2, 1, 2));
        assert!(board.gone.len() <= MAX_GONE);
    }

    #[test]
    fn texts_are_sent_when_they_change() {
        let (mut board, mut reader) = (Board::default(), Reader::default());
        let mut sent = |board: &Board| {
            let mut text = String::new();
            board.write(&mut reader, &mut text);
            text
        };
        board.set("status", "{}".into());
        assert_eq!(sent(&board), "event: status\ndata: {}\n\n");
        board.set("status", "{}".into());
        assert_eq!(sent(&board), "");
        board.set("status", "[]".into());
        board.set("top", "{}".into());
        assert_eq!(sent(&board), "event: status\ndata: []\n\nevent: top\ndata: {}\n\n");
    }

    #[test]
    fn a_long_list_is_sent_in_pieces_of_which_each_but_the_last_says_so_and_changes_meanwhile_are_not_lost() {
        let (mut board, mut reader) = (Board::default(), Reader::default());
        let long = "x".repeat(PIECE / 4);
        let fresh = |key: u32, print| Fresh {
            key: format!("{key:03}").into(),
            print,
            json: Some(format!("\"{key:03} {print} {long}\"").into()),
        };
        board.update((0..100).map(|key| fresh(key, 1)).collect(), 0);
        let (mut shown, mut goes_on) = (BTreeMap::new(), true);
        for turn in 0_u64.. {
            if turn == 3 {
                let keep = |key| Fresh { key: format!("{key:03}").into(), print: 1, json: None };
                board.update(
                    (1..100).map(|key| if key % 50 == 0 { fresh(key, 2) } else { keep(key) }).collect(),
                    0,
                );
            }
            let mut text = String::new();
            board.write(&mut reader, &mut text);
            assert!(text.len() < 2 * PIECE, "{turn}");
            if text.is_empty() {
                assert!(!goes_on);
                break;
            }
            for event in text.split_terminator("\n\n") {
                let data = event.strip_prefix("event: rows\ndata: ").unwrap();
                let data: serde_json::Value = serde_json::from_str(data).unwrap();
                assert_eq!(data["reset"], turn == 0);
                goes_on = data["more"].as_bool().unwrap();
                for row in data["rows"].as_array().unwrap() {
                    let row: Vec<_> = row.as_str().unwrap().split(' ').collect();
                    shown.insert(row[0].to_owned(), row[1].to_owned());
                }
                for key in data["gone"].as_array().unwrap() {
                    shown.remove(key.as_str().unwrap());
                }
            }
            assert_eq!(board.has_sent(&reader, &[]), !goes_on, "{turn}");
        }
        assert_eq!(shown.len(), 99);
        assert_eq!([&shown["050"], &shown["051"]], ["2", "1"]);
    }

    proptest! {
        /// However seldom it reads, and whatever changes meanwhile, a reader shows the same as the board in the end.
        #[test]
        fn a_reader_that_reads_again_shows_what_is_there(
            steps in proptest::collection::vec(
                (any::<bool>(), proptest::collection::vec((0..40_u8, 0..4_u64), 0..12)), 1..40,
            )
        ) {
            let (mut board, mut reader, mut page) = (Board::default(), Reader::default(), Page::default());
            let mut rows = BTreeMap::new();
            for (is_read, changes) in steps {
                for (key, print) in changes {
                    match print {
                        0 => drop(rows.remove(&key)),
                        print => drop(rows.insert(key, print)),
                    }
                }
                update(&mut board, &rows, 0);
                if is_read {
                    page.read(&board, &mut reader);
                    prop_assert_eq!(&page.rows, &rows);
                }
            }
            page.read(&board, &mut reader);
            prop_assert_eq!(page.rows, rows);
        }
    }
}
