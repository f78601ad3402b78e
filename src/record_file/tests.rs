//! Files as they may be found, disks that are full, and lines that are too many.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};

use tempfile::TempDir;

use super::*;
use crate::clock;

const MAX: u64 = 256 << 10;

/// 10 s: longer than any step takes here.
const PATIENCE: Duration = Duration::from_secs(10);

fn at(dir: &TempDir) -> PathBuf {
    dir.path().join("records/attempts.jsonl")
}

fn writing_to(path: &Path) -> RecordFile {
    RecordFile::new("attempts", QUEUE, RecordSettings { path: Some(path.to_owned()), max_bytes: MAX })
}

fn push(file: &RecordFile, line: &str) {
    let line = line.as_bytes().to_vec();
    file.push(line.len(), || line);
}

/// Waits until the status is as it should be.
fn becomes(file: &RecordFile, expected: impl Fn(&RecordStatus) -> bool) -> RecordStatus {
    let began = clock::now();
    loop {
        let status = file.status().unwrap();
        if expected(&status) {
            return status;
        }
        assert!(clock::now() - began < PATIENCE, "{status:?}");
        thread::yield_now();
    }
}

#[test]
fn lines_are_written_to_a_file_that_only_we_can_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = writing_to(&at(&dir));
    push(&file, "{one");
    push(&file, "{two");
    file.flush(PATIENCE);
    assert_eq!(fs::read_to_string(at(&dir)).unwrap(), "{one\n{two\n");
    assert_eq!(fs::metadata(at(&dir)).unwrap().mode() & 0o777, 0o600);
    let status = file.status().unwrap();
    assert_eq!((status.written, status.dropped, &*status.trouble), (2, 0, ""));
    let other = dir.path().join("other");
    file.set(RecordSettings { path: Some(other.clone()), max_bytes: MAX });
    push(&file, "{three");
    file.flush(PATIENCE);
    assert_eq!(fs::read_to_string(other).unwrap(), "{three\n");
    file.set(RecordSettings { path: None, max_bytes: MAX });
    push(&file, "{nowhere");
    assert_eq!(file.status(), None);
}

#[test]
fn a_disk_that_hangs_is_trouble_after_ten_seconds_and_not_before() {
    let file = RecordFile::new("attempts", QUEUE, RecordSettings { path: None, max_bytes: MAX });
    let now = clock::now();
    let hangs = |writing_since: Option<Instant>, passed: u64| {
        let mut state = file.state();
        state.writing_since = writing_since;
        state.hangs(now + Duration::from_secs(passed))
    };
    for (writing_since, passed, expected) in
        [(None, 100, false), (Some(now), 9, false), (Some(now), 10, true), (Some(now), 100, true)]
    {
        assert_eq!(hangs(writing_since, passed), expected);
    }
}

#[test]
fn the_file_and_the_one_before_it_take_no_more_than_they_may_and_hold_the_newest_whole_lines() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = RecordWriter::default();
    let (path, former) = (at(&dir), dir.path().join("records/attempts.jsonl.1"));
    let line = |number: u32| format!("{{\"at\":\"{number:>92}\n");
    for number in 0..10_000 {
        let (done, ended) = writer.write(&path, MAX, line(number).as_bytes());
        assert_eq!((done, ended.is_ok()), (100, true));
    }
    let text = fs::read_to_string(&former).unwrap() + &fs::read_to_string(&path).unwrap();
    assert!(text.len() as u64 <= MAX && text.len() as u64 > MAX / 2, "{}", text.len());
    let kept: Vec<u32> = text.lines().map(|line| line[7..].trim().parse().unwrap()).collect();
    assert_eq!(kept.last(), Some(&9_999));
    assert!(kept.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    // Less is allowed now.
    writer.close();
    let (_, ended) = RecordWriter::default().write(&path, MAX / 16, b"{new\n");
    assert!(ended.is_ok());
    assert!(!former.exists() && fs::read_to_string(&path).unwrap() == "{new\n");
}

#[test]
fn half_a_line_is_ended_before_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("records");
    fs::write(&path, "{\"id\":\"whole\nhal").unwrap();
    let (done, _) = RecordWriter::default().write(&path, MAX, b"{next\n");
    assert_eq!((done, &*fs::read_to_string(&path).unwrap()), (6, "{\"id\":\"whole\nhal\n{next\n"));
    fs::write(&path, "{\"a").unwrap();
    let (done, _) = RecordWriter::default().write(&path, MAX, b"{next\n");
    assert_eq!((done, &*fs::read_to_string(&path).unwrap()), (6, "{\"a\n{next\n"));
}

#[test]
fn two_that_write_do_not_take_turns_with_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let (mut first, mut second) = (RecordWriter::default(), RecordWriter::default());
    let line = b"{\"at\":\"1\n";
    assert!(first.write(&at(&dir), MAX, line).1.is_ok());
    for _ in 0..2 {
        let (done, ended) = second.write(&at(&dir), MAX, line);
        let ended = ended.unwrap_err().to_string();
        assert_eq!((done, &*ended), (0, "another criprobe writes it: name another file"));
    }
    first.close();
    assert!(second.write(&at(&dir), MAX, line).1.is_ok());
    assert!(first.check(&at(&dir), MAX).is_err());
    assert_eq!(fs::read(at(&dir)).unwrap(), line.repeat(2));
}

#[test]
fn what_is_no_file_of_ours_is_never_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("records");
    let precious = dir.path().join("precious");
    fs::write(&precious, "keep").unwrap();
    let refused = || {
        let (done, ended) = RecordWriter::default().write(&path, MAX, b"{line\n");
        assert_eq!(done, 0);
        ended.unwrap_err().to_string()
    };
    symlink(&precious, &path).unwrap();
    assert!(refused().contains("it is a symbolic link"), "{}", refused());
    fs::remove_file(&path).unwrap();
    let fifo = rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    );
    fifo.unwrap();
    assert!(refused().contains("it is not a regular file"), "{}", refused());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(refused().contains("it is not a regular file"), "{}", refused());
    fs::remove_dir(&path).unwrap();
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o622)).unwrap();
    assert!(refused().contains("others can write to it"), "{}", refused());
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    assert!(RecordWriter::default().write(&path, MAX, b"{\"at\":\"line\n").1.is_ok());
    assert_eq!(
        fs::metadata(&path).unwrap().mode() & 0o777,
        0o600,
        "what others could read they no longer can"
    );
    fs::hard_link(&path, dir.path().join("again")).unwrap();
    assert!(refused().contains("is a hard link"), "{}", refused());
    fs::remove_file(&path).unwrap();
    for text in
        ["root:x:0:0", "{\"data-root\":\"/x\",\n \"y\":1}", "{}", "{ \"at\": 1 }", "\n", "{\"attempts"]
    {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(refused().contains("holds something else"), "{text}: {}", refused());
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
    }
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    assert!(refused().starts_with("others can write to the folder "), "{}", refused());
    assert_eq!(fs::read_to_string(precious).unwrap(), "keep");
}

#[test]
fn a_link_in_the_place_of_the_one_before_is_replaced_and_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("records");
    let precious = dir.path().join("precious");
    fs::write(&precious, "keep").unwrap();
    symlink(&precious, dir.path().join("records.1")).unwrap();
    let mut writer = RecordWriter::default();
    let line = [vec![b'x'; 1_000], vec![b'\n']].concat();
    for _ in 0..200 {
        assert!(writer.write(&path, MAX, &line).1.is_ok());
    }
    assert!(fs::symlink_metadata(dir.path().join("records.1")).unwrap().is_file());
    assert_eq!(fs::read_to_string(precious).unwrap(), "keep");
}

#[test]
fn trouble_is_shown_lines_wait_for_its_end_and_those_that_are_too_many_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("records"), "in the way").unwrap();
    let file = writing_to(&at(&dir));
    // Before there is anything to write.
    let status = becomes(&file, |status| !status.trouble.is_empty());
    let expected = "cannot use its folder: Not a directory (os error 20); a part of the path is a file, not a folder: \
                    name another file";
    assert_eq!(status.trouble, expected);
    push(&file, "{first");
    let began = clock::now();
    while !file.state().waiting.is_empty() {
        assert!(clock::now() - began < PATIENCE, "the first is with the writer");
        thread::yield_now();
    }
    let long = "{".repeat(MAX_LINE);
    for _ in 0..30 {
        push(&file, &long);
    }
    push(&file, &(long + "y"));
    let dropped = file.status().unwrap().dropped;
    assert!((20..=31).contains(&dropped), "{dropped}");
    file.flush(PATIENCE);
    fs::remove_file(dir.path().join("records")).unwrap();
    let status = becomes(&file, |status| status.trouble.is_empty() && status.written + status.dropped == 32);
    assert_eq!(status.dropped, dropped);
}

#[test]
fn trouble_ends_by_itself_also_while_there_is_nothing_to_write() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("records"), "in the way").unwrap();
    let file = writing_to(&at(&dir));
    becomes(&file, |status| !status.trouble.is_empty());
    fs::remove_file(dir.path().join("records")).unwrap();
    let status = becomes(&file, |status| status.trouble.is_empty());
    assert_eq!((status.written, status.dropped), (0, 0));
    assert_eq!(fs::read_to_string(at(&dir)).unwrap(), "");
}

#[test]
fn trouble_ends_with_the_file_that_it_is_of() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("records"), "in the way").unwrap();
    let file = writing_to(&at(&dir));
    push(&file, "{first");
    becomes(&file, |status| !status.trouble.is_empty());
    file.set(RecordSettings { path: Some(dir.path().join("other")), max_bytes: MAX });
    assert_eq!(file.status().unwrap().trouble, "");
}

#[test]
fn no_line_is_written_to_a_file_that_was_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = RecordWriter::default();
    for number in 1..=3 {
        let line = format!("{{\"at\":\"{number}\n");
        let (done, ended) = writer.write(&at(&dir), MAX, line.as_bytes());
        assert_eq!((done, ended.is_ok(), writer.deleted), (line.len(), true, number - 1));
        assert_eq!(fs::read_to_string(at(&dir)).unwrap(), line);
        fs::remove_dir_all(dir.path().join("records")).unwrap();
    }
}

#[test]
fn one_line_is_written_to_an_empty_file_that_has_no_room_for_any() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = RecordWriter::default();
    let (done, ended) = writer.write(&at(&dir), 8, b"{first\n{second\n{third\n");
    assert_eq!((done, ended.is_ok()), (22, true));
    assert_eq!(fs::read_to_string(at(&dir)).unwrap(), "{third\n");
}

#[test]
fn a_folder_that_vanishes_is_made_again_and_a_file_that_is_moved_is_begun_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = writing_to(&at(&dir));
    push(&file, "{first");
    file.flush(PATIENCE);
    let gone = dir.path().join("gone");
    fs::rename(dir.path().join("records"), &gone).unwrap();
    let (began, mut pushed) = (clock::now(), 1);
    while !at(&dir).exists() {
        assert!(clock::now() - began < PATIENCE);
        push(&file, "{more");
        pushed += 1;
        file.flush(PATIENCE);
    }
    let status = file.status().unwrap();
    assert_eq!((status.written, status.dropped), (pushed, 0), "none is lost on the way");
    assert!(gone.join("attempts.jsonl").exists());
    let moved = dir.path().join("moved");
    fs::rename(at(&dir), &moved).unwrap();
    while !at(&dir).exists() {
        assert!(clock::now() - began < 2 * PATIENCE);
        push(&file, "{more");
        file.flush(PATIENCE);
    }
    assert_eq!(file.status().unwrap().trouble, "");
}
