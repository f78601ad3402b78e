//! Images of an embedded runtime that misbehaves.

use std::time::Duration;

use tokio::time::timeout;
use tonic::Code;

use super::*;
use crate::{
    demo::{EmbeddedRuntime, FaultKind, InjectedFault, Options},
    glob::Glob,
};

const HEALTHCHECK: &[u8] = br#"{"config": {"Healthcheck": {"Test": ["CMD", "true"]}}}"#;

/// A runtime whose images have a HEALTHCHECK, and who asks it.
struct Rig {
    runtime: EmbeddedRuntime,
    images: Images,
    _dir: tempfile::TempDir,
}

impl Rig {
    fn with(names: &[String]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("runtime.sock");
        let runtime = EmbeddedRuntime::start(Options::new(&socket, dir.path().join("containers"))).unwrap();
        for name in names {
            runtime.add_image(name, HEALTHCHECK);
        }
        let mut images = Images::new(Runtime::new(&socket), watch::Sender::default());
        names.iter().for_each(|name| images.want(name.as_str().into(), Depth::Healthcheck));
        Self { runtime, images, _dir: dir }
    }

    fn always(&self, method: &str, kind: FaultKind) {
        self.runtime.faults().add(InjectedFault::always(method, kind));
    }

    fn times(&self, method: &str, times: u32, code: Code) {
        let kind = FaultKind::Code(code, "not now".to_owned());
        self.runtime.faults().add(InjectedFault { method: method.to_owned(), times: Some(times), kind });
    }

    /// The next image of which it is known what HEALTHCHECK it has.
    async fn answer(&mut self) -> (ImageRef, Option<Arc<Healthcheck>>) {
        loop {
            let answer = timeout(Duration::from_secs(20), self.images.next()).await.expect("an answer comes");
            if let Found::Healthcheck(healthcheck) = answer.found {
                return (answer.image, healthcheck);
            }
        }
    }

    fn want(&mut self, image: &str) {
        self.images.want(image.into(), Depth::Healthcheck);
    }

    /// Whether nothing comes for a while.
    async fn is_silent(&mut self) -> bool {
        let silence = async { while !matches!(self.images.next().await.found, Found::Healthcheck(_)) {} };
        timeout(Duration::from_millis(300), silence).await.is_err()
    }

    fn asked(&self) -> (usize, usize) {
        let faults = self.runtime.faults();
        (faults.count("ImageStatus"), faults.count("Read"))
    }
}

fn patterns(all: &[&str]) -> ImagePatterns {
    all.iter().map(|pattern| Glob::from(*pattern)).collect::<Vec<_>>().iter().collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("image-{number}")).collect()
}

#[tokio::test]
async fn what_was_read_of_an_image_is_not_read_again() {
    let mut rig = Rig::with(&names(1));
    let (_, healthcheck) = rig.answer().await;
    assert!(healthcheck.as_deref().is_some_and(Result::is_ok), "{healthcheck:?}");
    rig.want("image-0:latest");
    assert_eq!(rig.answer().await.1, healthcheck);
    assert_eq!(rig.asked(), (2, 1), "another name of the same image");
    rig.runtime.shutdown().await;
}

#[tokio::test]
async fn an_error_is_tried_again_and_keeps_no_other_waiting() {
    let mut rig = Rig::with(&names(1));
    rig.times("ImageStatus", 1, Code::Unavailable);
    rig.times("Read", 1, Code::NotFound);
    assert!(rig.is_silent().await);
    rig.want("image-0");
    rig.runtime.add_image("other", HEALTHCHECK);
    rig.runtime.faults().clear();
    rig.times("Read", 1, Code::Internal);
    rig.want("other");
    let (first, second) = (rig.answer().await, rig.answer().await);
    assert!(first.0 != second.0 && first.1.is_some() && second.1.is_some());
    rig.runtime.shutdown().await;
}

#[tokio::test]
async fn no_more_than_four_are_asked_for_at_once_and_all_in_the_end() {
    let mut rig = Rig::with(&names(20));
    rig.always("ImageStatus", FaultKind::Hang);
    assert!(rig.is_silent().await);
    assert_eq!(rig.asked(), (AT_ONCE.quick, 0));
    rig.runtime.faults().clear();
    let mut found = std::collections::BTreeSet::new();
    while found.len() < 20 {
        found.insert(rig.answer().await.0);
    }
    rig.runtime.shutdown().await;
}

#[tokio::test]
async fn a_runtime_without_a_content_store_is_asked_no_more() {
    let mut rig = Rig::with(&names(20));
    rig.always("Read", FaultKind::Code(Code::Unimplemented, "unknown service".to_owned()));
    assert!(rig.is_silent().await);
    let (statuses, reads) = rig.asked();
    rig.want("image-9");
    assert!(rig.is_silent().await);
    assert_eq!(
        (rig.asked(), rig.images.has_no_store),
        ((statuses + 1, reads), true),
        "its names are asked for"
    );
    rig.runtime.shutdown().await;
}

#[tokio::test]
async fn a_runtime_without_an_image_service_is_asked_no_more() {
    let mut rig = Rig::with(&names(20));
    rig.always("ImageStatus", FaultKind::Code(Code::Unimplemented, "unknown service".to_owned()));
    assert!(rig.is_silent().await);
    let asked = rig.asked();
    rig.want("image-9");
    assert!(rig.is_silent().await);
    assert_eq!(
        (rig.asked(), rig.images.turns.backlog().count, rig.images.absence.is_some()),
        (asked, 0, true)
    );
    rig.runtime.shutdown().await;
}

/// The patterns that match the names of the next image that is answered.
async fn matches(rig: &mut Rig) -> Vec<String> {
    loop {
        let answer = timeout(Duration::from_secs(20), rig.images.next()).await.expect("an answer comes");
        if let Found::Names(names) = answer.found {
            return names.iter().map(str::to_owned).collect();
        }
    }
}

#[tokio::test]
async fn row_17_no_name_hides_another_nor_does_an_older_answer() {
    let mut rig = Rig::with(&[]);
    rig.runtime.add_image("evil.io/copy:1", HEALTHCHECK);
    rig.images.match_with(&patterns(&["*/copy:*", "*/db:*"]));
    let want = |rig: &mut Rig| rig.images.want("evil.io/copy:1".into(), Depth::Names);
    want(&mut rig);
    assert_eq!(matches(&mut rig).await, ["*/copy:*"]);
    rig.runtime.tag_image("evil.io/copy:1", "registry.corp/db:1");
    for number in 0..1_500 {
        rig.runtime.tag_image("evil.io/copy:1", &format!("evil.io/a:{number}"));
    }
    want(&mut rig);
    assert_eq!(matches(&mut rig).await, ["*/copy:*", "*/db:*"]);
    rig.runtime.shutdown().await;
}

#[tokio::test]
async fn row_17_what_is_wanted_while_it_is_asked_for_is_asked_for_once_more() {
    let mut rig = Rig::with(&[]);
    rig.runtime.add_image("web", HEALTHCHECK);
    rig.images.match_with(&patterns(&["web:*"]));
    rig.images.want("web".into(), Depth::Names);
    rig.images.ask(clock::now());
    rig.images.want("web".into(), Depth::Names);
    rig.images.want("web".into(), Depth::Names);
    for _ in 0..2 {
        assert_eq!(matches(&mut rig).await, ["web:*"]);
    }
    assert!(rig.is_silent().await);
    assert_eq!(rig.asked(), (2, 0));
    rig.runtime.shutdown().await;
}

#[tokio::test]
async fn row_17_an_image_service_that_was_not_there_is_asked_again() {
    let mut rig = Rig::with(&names(5));
    rig.times("ImageStatus", 1, Code::Unimplemented);
    let mut found = std::collections::BTreeSet::new();
    while found.len() < 5 {
        found.insert(rig.answer().await.0);
    }
    assert!(rig.images.absence.is_none());
    rig.runtime.shutdown().await;
}

#[tokio::test]
async fn row_17_a_new_link_may_have_what_the_former_runtime_did_not() {
    let mut rig = Rig::with(&names(1));
    rig.always("Read", FaultKind::Code(Code::Unimplemented, "unknown service".to_owned()));
    assert!(rig.is_silent().await);
    rig.runtime.faults().clear();
    rig.always("ImageStatus", FaultKind::Code(Code::Unimplemented, "unknown service".to_owned()));
    rig.want("image-0");
    assert!(rig.is_silent().await);
    assert!(rig.images.has_no_store && rig.images.absence.is_some());
    rig.runtime.faults().clear();
    rig.images.on_new_link(clock::now());
    assert!(rig.answer().await.1.is_some());
    rig.runtime.shutdown().await;
}

#[tokio::test]
async fn an_image_whose_names_are_wanted_is_not_read_until_its_healthcheck_is() {
    let mut rig = Rig::with(&[]);
    rig.runtime.add_image("web", HEALTHCHECK);
    rig.images.match_with(&patterns(&["web:latest", "other"]));
    rig.images.want("web".into(), Depth::Names);
    let ImageAnswer { found: Found::Names(names), .. } = rig.images.next().await else { panic!("no names") };
    assert!(names.iter().any(|name| name == "web:latest"), "{names:?}");
    assert!(rig.is_silent().await);
    assert_eq!(rig.asked(), (1, 0));
    rig.want("web");
    assert!(rig.answer().await.1.is_some());
    assert_eq!(rig.asked(), (2, 1));
    rig.runtime.shutdown().await;
}

#[tokio::test]
async fn what_nobody_wants_any_more_is_not_tried_again() {
    let mut rig = Rig::with(&[]);
    rig.want("unknown");
    assert!(rig.is_silent().await);
    assert_eq!(rig.images.turns.backlog().count, 1, "to be tried again");
    rig.images.retain(|_| false);
    assert_eq!((rig.images.turns.deadline(), rig.images.depths.len()), (None, 0));
    rig.runtime.shutdown().await;
}

#[tokio::test]
async fn a_config_that_is_too_long_is_a_healthcheck_that_cannot_be_used() {
    let mut rig = Rig::with(&names(1));
    rig.runtime.add_image("image-0", &vec![b' '; healthcheck::MAX_CONFIG + 1]);
    assert_eq!(rig.answer().await.1.as_deref(), Some(&healthcheck::too_long()));
    rig.runtime.shutdown().await;
}
