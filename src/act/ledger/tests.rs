//! What is saved and read again, and what happens when it cannot be.

use std::{
    fs,
    sync::{Mutex, mpsc},
    time::UNIX_EPOCH,
};

use super::{super::status::CommandReport, *};
use crate::{ids::ProbeKind, results::text::BoundedText};

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
}

fn intent(container: &str) -> Intent {
    Intent {
        container: container.into(),
        sandbox: "s1".into(),
        pod: "u1".into(),
        name: "app".into(),
        kind: ProbeKind::Liveness,
        attempt: 3,
        action: OnFailure::Restart,
        cause: ActCause::Probe(ProbeKind::Liveness),
        step: IntentStep::Begun,
        began: Wall(at(0)),
        stop_deadline: Some(Wall(at(10))),
        not_before: None,
        successor: None,
    }
}

fn record(seconds: u64, end: Option<ActEnd>) -> ActRecord {
    ActRecord {
        at: at(seconds),
        container: "c1".into(),
        action: OnFailure::Stop,
        cause: ActCause::Exited { exit_code: Some(137) },
        end,
        took: Duration::from_millis(1500),
        command: None,
    }
}

fn place(name: &str) -> Place {
    ("u1".into(), name.into())
}

/// A file on a disk.
fn on_disk(path: &std::path::Path) -> Ledger {
    let (read, write) = (path.to_owned(), path.to_owned());
    Ledger::new(LedgerFile {
        read: Box::new(move || match fs::read(&read) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }),
        write: Box::new(move |text| fs::write(&write, text)),
    })
}

#[tokio::test]
async fn what_was_recorded_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("acts.json");
    let mut ledger = on_disk(&path);
    ledger.load().await.unwrap();
    assert_eq!(*ledger.content(), Content::default());
    ledger.record(|content| content.begin(intent("c1"))).await.unwrap();
    ledger.record(|content| content.begin(intent("c2"))).await.unwrap();
    ledger
        .record(|content| {
            content.back_off.failed(&place("app"), at(1));
            let intent = content.intent(&"c2".into()).unwrap();
            (intent.step, intent.successor) = (IntentStep::Starting, Some("c3".into()));
            content.end(&"c1".into());
            content.remember(place("app"), record(1, Some(ActEnd::Restarted("c3".into()))));
            content.remember(place("db"), record(1, Some(ActEnd::GivenUp("é".repeat(200)))));
        })
        .await
        .unwrap();
    let mut again = on_disk(&path);
    again.load().await.unwrap();
    assert_eq!(again.content(), ledger.content());
    assert_eq!(again.content().intents.len(), 1);
    assert_eq!(again.content().recent(at(59)).collect::<Vec<_>>(), [Duration::from_secs(59); 2]);
    assert_eq!(again.content().recent(at(60)).count(), 0);
    let end = again.content().last().find(|(place, _)| &*place.1 == "db").unwrap().1.end.clone();
    assert_eq!(end, Some(ActEnd::GivenUp("é".repeat(128))));
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with(r#"{"version":1,"intents":[{"container":"c2","sandbox":"s1","pod":"u1","#),
        "{text}"
    );
    assert!(text.contains(r#""cause":{"exited":{"exitCode":137}}"#), "{text}");
}

#[tokio::test]
async fn a_damaged_file_is_replaced_and_counts_as_a_budget_that_is_used_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("acts.json");
    let whole = String::from_utf8(Content::default().to_json().unwrap()).unwrap();
    for text in [
        "".to_owned(),
        "{".to_owned(),
        whole.replace(":1", ":2"),
        format!("{whole}{}", " ".repeat(MOST_BYTES)),
    ] {
        fs::write(&path, &text).unwrap();
        let mut ledger = on_disk(&path);
        ledger.load().await.unwrap();
        let content = ledger.content();
        assert_eq!((content.intents.len(), content.last().count()), (0, 0));
        assert_eq!(content.recent(clock::wall()).count(), MOST_RECENT, "the budget is used up");
        ledger.record(|content| content.begin(intent("c1"))).await.unwrap();
        let mut again = on_disk(&path);
        again.load().await.unwrap();
        assert_eq!(again.content().intents, [intent("c1")]);
    }
}

#[tokio::test]
async fn what_cannot_be_written_is_not_changed_unless_it_has_happened() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("state");
    let mut ledger = on_disk(&folder.join("acts.json"));
    let refused = ledger.record(|content| content.begin(intent("c1"))).await.unwrap_err();
    assert!(describe(&refused).starts_with("acts cannot be recorded: "), "{refused}");
    assert_eq!(ledger.content().intents, []);
    ledger.note(|content| content.remember(place("app"), record(0, None)));
    assert!(ledger.flush().await.is_err());
    fs::create_dir(&folder).unwrap();
    ledger.flush().await.unwrap();
    let mut again = on_disk(&folder.join("acts.json"));
    again.load().await.unwrap();
    assert_eq!((again.content().last().count(), again.content()), (1, ledger.content()));
}

#[tokio::test]
async fn a_file_that_cannot_be_read_now_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("acts.json");
    fs::create_dir(&path).unwrap();
    let mut ledger = on_disk(&path);
    assert!(ledger.record(|content| content.begin(intent("c1"))).await.is_err());
    fs::remove_dir(&path).unwrap();
    fs::write(&path, Content { intents: vec![intent("c0")], ..Content::default() }.to_json().unwrap())
        .unwrap();
    ledger.record(|content| content.begin(intent("c1"))).await.unwrap();
    assert_eq!(ledger.content().intents, [intent("c0"), intent("c1")]);
}

// In a time that does not pass while a thread blocks.
#[tokio::test(start_paused = true)]
async fn a_disk_that_stalls_withholds_acts_and_has_one_write_at_a_time() {
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let written = Arc::new(Mutex::new(Vec::new()));
    let log = written.clone();
    let mut ledger = Ledger::new(LedgerFile {
        read: Box::new(|| Ok(None)),
        write: Box::new(move |text| {
            wait.lock().unwrap().recv().unwrap();
            log.lock().unwrap().push(Content::from_json(text).unwrap().intents.len());
            Ok(())
        }),
    });
    ledger.load().await.unwrap();
    for _ in 0..2 {
        let advance = async { tokio::time::advance(PATIENCE).await };
        let (refused, ()) = tokio::join!(ledger.record(|content| content.begin(intent("c1"))), advance);
        assert!(matches!(refused, Err(LedgerError::Stalled)), "{refused:?}");
        assert_eq!(ledger.content().intents, []);
    }
    go_on.send(()).unwrap();
    go_on.send(()).unwrap();
    ledger.flush().await.unwrap();
    assert_eq!(*written.lock().unwrap(), [1, 0], "what was given up is taken back");
}

#[test]
fn what_is_kept_is_bounded() {
    let mut content = Content::default();
    for number in 0..5000 {
        content.begin(Intent { began: Wall(at(number / 100)), ..intent("c1") });
        content.end(&"c1".into());
        let command = CommandReport { exit_code: None, output: BoundedText::default(), took: Duration::ZERO };
        let record =
            ActRecord { command: Some(command), ..record(number, Some(ActEnd::GivenUp("x".repeat(9999)))) };
        content.remember(place(&format!("{number}{}", "n".repeat(2000))), record);
    }
    assert_eq!((content.recent.len(), content.last.len()), (MOST_RECENT, MOST_LAST));
    assert!(content.last.values().all(|record| record.at >= at(5000 - MOST_LAST as u64)));
    assert!(content.last.values().all(|record| record.command.is_none()));
    let text = content.to_json().unwrap();
    let read = Content::from_json(&text).unwrap();
    assert!(text.len() <= MOST_BYTES && read.last.len() == MOST_LAST / 4, "{}", read.last.len());
    assert!(read.last.values().all(|record| record.at >= at(5000 - MOST_LAST as u64 / 4)), "the newest");
    content.intents = vec![intent("c1"); MOST_INTENTS + 1];
    assert_eq!(content.to_json(), None);
}

#[test]
fn a_clock_that_was_set_back_holds_the_budget_for_a_minute_at_most() {
    let mut content = Content::default();
    content.begin(intent("c1"));
    let before = |seconds| at(0) - Duration::from_secs(seconds);
    assert_eq!(content.recent(before(30)).collect::<Vec<_>>(), [Duration::ZERO]);
    assert_eq!(content.recent(before(60)).count(), 0);
}
