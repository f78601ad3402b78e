//! Any config of an image: its HEALTHCHECK is nothing, a valid probe, or a short reason in one line, and the same each
//! time. The input is the config, or, where it begins with `{`, the HEALTHCHECK in one.

#![no_main]

use criprobe::spec::{Handler, OnFailure, healthcheck};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    check(data);
    if data.first() == Some(&b'{') {
        check(&[br#"{"config": {"Healthcheck": "#, data, b"}}"].concat());
    }
});

fn check(config: &[u8]) {
    let found = healthcheck::read(config);
    assert_eq!(found, healthcheck::read(config));
    match found {
        None => {}
        Some(Err(invalid)) => {
            assert!(!invalid.reason.is_empty() && invalid.reason.len() < 4096);
            assert!(!invalid.reason.chars().any(char::is_control));
        }
        Some(Ok(outline)) => {
            let spec = outline.shared.expect("that of an image is shared");
            let Handler::Exec { command } = &spec.handler else { panic!("a HEALTHCHECK is a command") };
            assert!(!command.is_empty() && spec.is_literal && spec.on_failure == OnFailure::Report);
            assert!(
                spec.period.as_millis() >= 100
                    && spec.timeout.as_millis() >= 1
                    && spec.failure_threshold >= 1
            );
            assert!(spec.start.is_none_or(|start| start.interval.as_millis() >= 100));
        }
    }
}
