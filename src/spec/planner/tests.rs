//! What is asked of images, and that it does not matter who speaks first.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{
    glob::Glob,
    ids::ProbeKind,
    inventory::{
        fixtures::{self, texts},
        pod::Pod,
    },
    spec::{
        OnFailure, definition, healthcheck,
        identity::tests::COUNT,
        plan::ProbeSource,
        policy::Limits,
        rule::{HealthcheckAct, HealthcheckRule, HistoryRule, Matcher, Rule},
    },
};

/// A container of this image in this namespace; its pod may have turned probes off.
fn container(id: &str, image: &str, namespace: &str, is_off: bool) -> Arc<Container> {
    let annotations = texts(if is_off { &[("criprobe.dev/probes", "off")] } else { &[] });
    let pod = Pod { namespace: namespace.into(), annotations, ..fixtures::pod() };
    Arc::new(Container { image_ref: image.into(), ..fixtures::container(id, pod) })
}

/// HEALTHCHECKs count in these namespaces.
fn honouring(namespaces: &[&str]) -> Arc<Policy> {
    let healthchecks = namespaces.iter().map(|name| Glob::from(*name)).collect();
    Arc::new(Policy { healthchecks, ..Policy::default() })
}

/// What an image has: `none` nothing, another one a probe of its own.
fn of_image(image: &ImageRef) -> Option<Arc<Healthcheck>> {
    let config = format!(r#"{{"config": {{"Healthcheck": {{"Test": ["CMD", "{image}"]}}}}}}"#);
    healthcheck::read(config.as_bytes()).filter(|_| image.as_str() != "none").map(Arc::new)
}

fn wanted(planner: &mut Planner) -> Vec<String> {
    planner.take_wanted().keys().map(ToString::to_string).collect()
}

#[test]
fn an_image_is_asked_for_once_and_only_where_its_healthcheck_counts() {
    let mut planner = Planner::new(honouring(&["shop"]));
    for (id, image, namespace, is_off, asked) in [
        ("c1", "a", "other", false, &[][..]),
        ("c2", "a", "shop", true, &[]),
        ("c3", "", "shop", false, &[]),
        ("c4", "a", "shop", false, &["a"]),
        ("c5", "a", "shop", false, &[]),
        ("c6", "b", "shop", false, &["b"]),
    ] {
        planner.on_container(container(id, image, namespace, is_off));
        assert_eq!(wanted(&mut planner), asked, "{id}");
    }
    let plans: Vec<_> = planner.on_image(&"a".into(), of_image(&"a".into())).collect();
    let planned: Vec<_> = plans.iter().map(|plan| (plan.view.id.as_str(), &plan.probes[0].source)).collect();
    assert_eq!(planned, [("c4", &ProbeSource::Healthcheck), ("c5", &ProbeSource::Healthcheck)]);
    let plans: Vec<_> = planner.on_policy(honouring(&["other"])).collect();
    let probed: Vec<_> =
        plans.iter().filter(|plan| !plan.probes.is_empty()).map(|plan| plan.view.id.as_str()).collect();
    assert_eq!((probed, wanted(&mut planner)), (vec!["c1"], vec![]), "what its image has is known");
}

#[test]
fn what_a_rule_makes_of_a_healthcheck_is_shared_by_its_containers_and_not_kept_longer() {
    let healing = |on_failure| {
        let (on_failure_command, termination_grace) = (None, None);
        let act = HealthcheckAct { on_failure, on_failure_command, termination_grace };
        let (name, matcher) = ("heal".into(), Matcher::any());
        let healthcheck = HealthcheckRule { act: Some(Arc::new(act)), exec_mode: None };
        let rule = Rule {
            name,
            matcher,
            is_enforced: false,
            probes: Vec::new(),
            healthcheck,
            history: HistoryRule::default(),
        };
        Arc::new(Policy { rules: vec![rule], ..(*honouring(&["*"])).clone() })
    };
    let shared = |plan: Plan| plan.probes[0].spec.as_ref().unwrap().shared.clone().unwrap();
    let mut planner = Planner::new(healing(OnFailure::Stop));
    for id in ["c1", "c2"] {
        planner.on_container(container(id, "a", "shop", false));
    }
    let specs: Vec<_> = planner.on_image(&"a".into(), of_image(&"a".into())).map(shared).collect();
    assert_eq!((specs.len(), specs[0].on_failure), (2, OnFailure::Stop));
    assert!(Arc::ptr_eq(&specs[0], &specs[1]));
    assert!(Arc::ptr_eq(&specs[0], &shared(planner.on_container(container("c3", "a", "shop", false)))));
    let killing: Vec<_> = planner.on_policy(healing(OnFailure::Kill)).map(shared).collect();
    assert!(killing.len() == 3 && killing.iter().all(|spec| Arc::ptr_eq(spec, &killing[0])));
    assert_eq!((killing[0].on_failure, Arc::strong_count(&killing[0])), (OnFailure::Kill, 3), "only by them");
    let other = planner.on_image(&"a".into(), of_image(&"b".into())).map(shared).next().unwrap();
    assert_ne!(other.handler, killing[0].handler, "another image by the same name");
}

#[test]
fn of_an_image_that_no_container_needs_nothing_is_kept() {
    let mut planner = Planner::new(honouring(&["*"]));
    planner.on_container(container("c1", "a", "shop", false));
    planner.on_container(container("c2", "a", "shop", false));
    planner.on_gone(&"c1".into());
    assert!(planner.wants(&"a".into()));
    planner.on_gone(&"c2".into());
    assert!(!planner.wants(&"a".into()) && planner.take_wanted().is_empty());
    assert_eq!(planner.on_image(&"a".into(), of_image(&"a".into())).count(), 0, "it comes too late");
    planner.on_container(container("c3", "a", "shop", false));
    assert_eq!(wanted(&mut planner), ["a"], "and is asked for again");
    planner.on_container(container("c3", "b", "shop", false));
    assert_eq!((wanted(&mut planner), planner.wants(&"a".into())), (vec!["b".to_owned()], false));
}

/// Enforced rules, each with an image pattern and named after it.
fn ruling(patterns: &[&str]) -> Arc<Policy> {
    let kind = ProbeKind::Liveness;
    let spec = definition::read(kind, "{tcpSocket: {port: 80}}").unwrap();
    let rule = |pattern: &&str| Rule {
        name: (*pattern).into(),
        matcher: Matcher { image: Glob::from(*pattern), ..Matcher::any() },
        is_enforced: true,
        probes: vec![Rule::defining(spec.clone())],
        healthcheck: HealthcheckRule::default(),
        history: HistoryRule::default(),
    };
    Arc::new(Policy { rules: patterns.iter().map(rule).collect(), ..Policy::default() })
}

/// A container of the image `i` whose definition names it so.
fn named(id: &str, image_spec: &str) -> Arc<Container> {
    let view = container(id, "i", "shop", false);
    Arc::new(Container { image_spec: image_spec.into(), ..(*view).clone() })
}

/// The names of `i` that the runtime reports.
fn reported(planner: &mut Planner, names: &[&str]) -> Vec<Plan> {
    let mut matches = ImageMatches::default();
    names.iter().for_each(|name| planner.patterns().add_matching_name(name, &mut matches));
    planner.on_names(&"i".into(), Arc::new(matches)).collect()
}

/// The rules by which the plan has probes.
fn rules(plan: &Plan) -> Vec<String> {
    let sources = plan
        .probes
        .iter()
        .flat_map(|probe| [probe.source.in_full()].into_iter().chain(probe.shadowed.clone()));
    sources.map(|source| source.replace("enforced rule:", "")).collect()
}

const ID: &str = "sha256:0123";

#[test]
fn row_17_a_containers_own_name_for_its_image_is_the_only_one_that_counts() {
    let names = ["docker.io/library/db:1", "evil.io/legacy:1"];
    for (own, by_names) in [
        ("db:1", &["*/db:*"][..]),
        ("evil.io/legacy:1", &["*/legacy:*"]),
        ("other", &[]),
        (ID, &["*/db:*", "*/legacy:*"]),
        ("", &["*/db:*", "*/legacy:*"]),
    ] {
        let mut planner = Planner::new(ruling(&["*/db:*", "*/legacy:*", "*/absent:*"]));
        let first = planner.on_container(named("c", own));
        let is_by_id = is_id(own);
        assert_eq!(
            rules(&first),
            if is_by_id { &[][..] } else { by_names },
            "{own}: before its names are known"
        );
        assert_eq!(planner.wants(&"i".into()), is_by_id, "{own}: only then they are asked for");
        let changed = reported(&mut planner, &names);
        assert_eq!(
            changed.iter().map(rules).collect::<Vec<_>>(),
            vec![by_names; usize::from(is_by_id)],
            "{own}"
        );
        assert_eq!(rules(&planner.on_container(named("c", own))), by_names, "{own}: however it changes");

        let mut restarted = Planner::new(Arc::default());
        restarted.on_container(named("c", ""));
        restarted.on_policy(ruling(&["*/db:*", "*/legacy:*", "*/absent:*"])).for_each(drop);
        reported(&mut restarted, &names);
        assert_eq!(rules(&restarted.on_container(named("c", own))), by_names, "{own}: whenever it is learnt");
    }
}

#[test]
fn row_17_the_names_of_an_image_are_asked_for_again_and_stay_in_force_until_the_answer() {
    let mut planner = Planner::new(ruling(&["*/copy:*"]));
    planner.on_container(named("c1", ID));
    assert_eq!(wanted(&mut planner), ["i"]);
    reported(&mut planner, &["evil.io/copy:1"]);
    planner.on_container(named("c1", ID));
    assert_eq!(wanted(&mut planner), [""; 0], "no change of a container asks");
    let second = planner.on_container(named("c2", ID));
    assert_eq!(
        (rules(&second), wanted(&mut planner)),
        (vec!["*/copy:*".to_owned()], vec!["i".to_owned()]),
        "a new one"
    );

    let plans: Vec<_> = planner.on_policy(ruling(&["*/db:*", "*/copy:*"])).map(|plan| rules(&plan)).collect();
    assert_eq!((plans, wanted(&mut planner)), (vec![vec!["*/copy:*".to_owned()]; 2], vec!["i".to_owned()]));
    let plans = reported(&mut planner, &["evil.io/copy:1", "registry.corp/db:1"]);
    assert_eq!(plans.iter().map(rules).collect::<Vec<_>>(), vec![["*/db:*", "*/copy:*"]; 2]);

    assert_eq!(planner.on_policy(ruling(&["*/db:*", "*/copy:*"])).count(), 0, "nothing changed");
    assert_eq!(wanted(&mut planner), ["i"], "yet a reload asks");
    planner.on_new_link();
    assert_eq!(wanted(&mut planner), ["i"], "and so does another runtime");
    assert_eq!(reported(&mut planner, &["registry.corp/db:1", "evil.io/copy:1"]), []);
}

/// A HEALTHCHECK of so many bytes.
fn of_length(length: usize) -> Option<Arc<Healthcheck>> {
    let word = "x".repeat(length);
    let config = format!(r#"{{"config": {{"Healthcheck": {{"Test": ["CMD", "{word}"]}}}}}}"#);
    healthcheck::read(config.as_bytes()).map(Arc::new)
}

/// Which of these containers have a valid probe.
fn probed(plans: impl IntoIterator<Item = Plan>) -> Vec<(String, bool)> {
    plans.into_iter().map(|plan| (plan.view.id.to_string(), plan.probes[0].spec.is_ok())).collect()
}

#[test]
fn row_03_of_too_many_healthchecks_the_largest_are_invalid_until_there_is_room() {
    let mut planner = Planner { held: Held::new(20 << 10), ..Planner::new(honouring(&["*"])) };
    for (id, image) in [("c1", "large"), ("c2", "other"), ("c3", "usual")] {
        planner.on_container(container(id, image, "shop", false));
    }
    planner.take_wanted();
    let ok = |id: &str, is_ok| vec![(id.to_owned(), is_ok)];
    assert_eq!(probed(planner.on_image(&"large".into(), of_length(12 << 10))), ok("c1", true));
    assert_eq!(probed(planner.on_image(&"usual".into(), of_length(100))), ok("c3", true));
    let plans: Vec<_> = planner.on_image(&"other".into(), of_length(11 << 10)).collect();
    let reason = plans[1].probes[0].spec.as_ref().unwrap_err().to_string();
    assert!(reason.contains("take more than 20 KiB"), "{reason}");
    assert_eq!(probed(plans), [ok("c2", true), ok("c1", false)].concat());
    assert_eq!(wanted(&mut planner), [""; 0]);
    planner.on_gone(&"c2".into());
    assert_eq!(wanted(&mut planner), ["large"], "there is room again");
    assert_eq!(probed(planner.on_image(&"large".into(), of_length(12 << 10))), ok("c1", true));
}

#[test]
fn row_04_a_definition_is_read_once_however_often_its_container_changes() {
    let annotations = |text: &str| texts(&[("readiness.criprobe.dev/app", text)]);
    let view = |number: usize, text: &str| {
        let pod = Pod { namespace: "shop".into(), annotations: annotations(text), ..fixtures::pod() };
        let base = container("c1", "a", "shop", false);
        Arc::new(Container { attempt: number as u32, pod: Arc::new(pod), ..(*base).clone() })
    };
    let mut planner = Planner::new(honouring(&["*"]));
    let healthcheck = of_image(&"a".into());
    let read = || COUNT.get();
    let before = read();
    planner.on_container(view(0, "{tcpSocket: {port: 80}}"));
    planner.on_image(&"a".into(), healthcheck).for_each(drop);
    for number in 0..100 {
        let plan = planner.on_container(view(number, "{tcpSocket: {port: 80}}"));
        assert_eq!(plan.probes.len(), 2);
        assert!(plan.probes.iter().all(|planned| planned.spec.is_ok()));
    }
    planner.on_policy(honouring(&["shop"])).for_each(drop);
    assert_eq!(read() - before, 1);
    let plan = planner.on_container(view(0, "{grpc: {port: 80}}"));
    assert_eq!(plan.probes[0].spec.as_ref().unwrap().handler, "grpc", "it is another text");
    let limits = Limits { min_period: Duration::from_secs(3600), ..Limits::default() };
    let policy = Policy { limits, ..(*honouring(&["*"])).clone() };
    let plans: Vec<_> = planner.on_policy(Arc::new(policy)).collect();
    assert!(plans[0].probes.iter().all(|planned| planned.spec.is_err()), "other limits hold");
}

/// What may happen, in any order.
#[derive(Clone, Debug)]
enum Happening {
    Container(u8, &'static str, &'static str, bool),
    Gone(u8),
    Policy(Vec<&'static str>),
    /// The runtime reports one of the images that were asked for.
    Answered(prop::sample::Index),
}

fn happening() -> impl Strategy<Value = Happening> {
    let image = prop::sample::select(&["", "none", "a", "b"][..]);
    let namespace = prop::sample::select(&["shop", "other"][..]);
    let policies = prop::collection::vec(prop::sample::select(&["shop", "other", "*"][..]), 0..2);
    prop_oneof![
        4 => (0u8..4, image, namespace, prop::bool::weighted(0.2))
            .prop_map(|(id, image, namespace, is_off)| Happening::Container(id, image, namespace, is_off)),
        1 => (0u8..4).prop_map(Happening::Gone),
        2 => policies.prop_map(Happening::Policy),
        4 => any::<prop::sample::Index>().prop_map(Happening::Answered),
    ]
}

proptest! {
    #[test]
    fn the_plans_do_not_depend_on_the_order_of_the_facts(happenings in prop::collection::vec(happening(), 0..60)) {
        let mut planner = Planner::new(honouring(&["*"]));
        let mut policy = honouring(&["*"]);
        let (mut asked, mut reported) = (Vec::<ImageRef>::new(), BTreeMap::<String, Plan>::new());
        let mut steps = happenings.into_iter();
        loop {
            let happening = steps.next();
            let is_over = happening.is_none();
            let plans = match happening {
                Some(Happening::Container(id, image, namespace, is_off)) => {
                    vec![planner.on_container(container(&id.to_string(), image, namespace, is_off))]
                }
                Some(Happening::Gone(id)) => {
                    let id = id.to_string();
                    planner.on_gone(&id.as_str().into());
                    reported.remove(&id);
                    vec![]
                }
                Some(Happening::Policy(namespaces)) => {
                    policy = honouring(&namespaces);
                    planner.on_policy(policy.clone()).collect()
                }
                Some(Happening::Answered(which)) if !asked.is_empty() => {
                    let image = asked.swap_remove(which.index(asked.len()));
                    planner.on_image(&image, of_image(&image)).collect()
                }
                Some(Happening::Answered(_)) => vec![],
                None => {
                    let answer = |image| planner.on_image(&image, of_image(&image)).collect::<Vec<_>>();
                    asked.drain(..).flat_map(answer).collect()
                }
            };
            reported.extend(plans.into_iter().map(|plan| (plan.view.id.to_string(), plan)));
            asked.extend(planner.take_wanted().into_keys());
            if is_over {
                break;
            }
        }
        for plan in reported.into_values() {
            let healthcheck = of_image(&plan.view.image_ref).filter(|_| !plan.view.image_ref.is_empty());
            let facts = ImageFacts { healthcheck: healthcheck.as_deref(), ..ImageFacts::default() };
            prop_assert_eq!(&plan.probes, &crate::spec::plan::plan(&plan.view, &policy, facts));
        }
    }
}
