//! Which probes there are: `tests/data/prober/membership.json`.

use super::*;

/// One row of `tests/data/prober/membership.json`.
///
/// Steps: `see NAME: TYPES` a running container of pod web with these probes, invalid ones with a `!`;
/// `see NAME again: TYPES` another one that replaces it; `gone NAME`, `stop pod`; `start` what is due;
/// `TYPE succeeds` an attempt in flight. Then these probes are there, as `NAME/TYPE PHASE [VERDICT]`, and no others.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    rule: String,
    r#do: Vec<String>,
    probes: Vec<String>,
}

fn see(rig: &mut Rig, name: &str, attempt: u32, kinds: &str) {
    let view = Container { name: name.into(), ..container("web", &format!("{name}-{attempt}"), attempt) };
    let plan = |kind: &str| {
        let valid = planned(spec(kind.trim_end_matches('!').parse().unwrap()));
        let invalid = Invalid { reason: "bad".to_owned(), handler: None };
        let is_valid = !kind.ends_with('!');
        Planned {
            spec: valid.spec.clone().and_then(|spec| if is_valid { Ok(spec) } else { Err(invalid) }),
            ..valid
        }
    };
    let probes = kinds.split(' ').filter(|kind| !kind.is_empty()).map(plan).collect();
    rig.accept(Input::Container { view: Arc::new(view), probes });
}

#[test]
fn probes_come_and_go_with_their_containers() {
    let rows: Vec<Row> =
        serde_json::from_str(include_str!("../../../../tests/data/prober/membership.json")).unwrap();
    for row in rows {
        let mut rig = Rig::new(8);
        let mut in_flight = Vec::new();
        for step in &row.r#do {
            match step.split_once(':').map_or((&**step, ""), |(what, kinds)| (what, kinds.trim())) {
                (what, kinds) if what.starts_with("see ") => match what[4..].strip_suffix(" again") {
                    Some(name) => see(&mut rig, name, 1, kinds),
                    None => see(&mut rig, &what[4..], 0, kinds),
                },
                ("stop pod", "") => rig.accept(Input::PodStopping("web-sandbox".into())),
                ("start", "") => in_flight.extend(rig.roster.advance(rig.now)),
                (what, "") => match (what.strip_prefix("gone "), what.strip_suffix(" succeeds")) {
                    (Some(name), _) => rig.accept(Input::ContainerGone(format!("{name}-0").into())),
                    (None, Some(kind)) => {
                        let at = in_flight.iter().position(|job| job.key.kind.as_str() == kind);
                        let key = in_flight.remove(at.expect("in flight")).key;
                        rig.roster.finish(&key, Some(outcome(AttemptResult::Success)), rig.now);
                    }
                    (None, None) => panic!("no such step: {what}"),
                },
                (what, _) => panic!("no such step: {what}"),
            }
        }
        let reported = rig.roster.statuses(rig.now).into_iter().zip(&row.probes).map(|(status, expected)| {
            let probe = format!("{}/{} {}", status.key.container, status.key.kind, status.phase.as_str());
            if expected.split(' ').count() > 2 { format!("{probe} {}", status.state) } else { probe }
        });
        assert_eq!(reported.collect::<Vec<_>>(), row.probes, "{}: {}", row.id, row.rule);
        assert_eq!(rig.roster.statuses(rig.now).len(), row.probes.len(), "{}: {}", row.id, row.rule);
    }
}

#[test]
fn what_a_list_of_all_containers_leaves_out_is_gone() {
    let mut rig = Rig::new(8);
    for name in ["stays", "goes"] {
        see(&mut rig, name, 0, "liveness");
    }
    rig.accept(Input::Listed(Arc::new(["stays-0".into()].into_iter().collect())));
    let names: Vec<_> =
        rig.roster.statuses(rig.now).iter().map(|probe| probe.key.container.to_string()).collect();
    assert_eq!(names, ["stays"]);
}
