//! Any bytes as the files of the configuration: reading them never panics, what is refused has reasons of one line each,
//! what is accepted has rules that hold.
//!
//! A zero byte, which no such file may hold, stands between two files.

#![no_main]

use std::{collections::HashSet, path::Path};

use criprobe::{
    config::{Overrides, raw::Raw, resolve::resolve},
    document,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let path = Path::new("c.yaml");
    let files: Vec<_> = data
        .split(|byte| *byte == 0)
        .take(3)
        .map(|bytes| match document::decode(bytes) {
            Ok(text) => Raw::read(text, path),
            Err(error) => Raw::malformed(path, &error),
        })
        .collect();
    match resolve(&files, &Overrides::default(), &|_| Ok(Some(1))) {
        Ok(loaded) => {
            let rules = &loaded.config.policy.rules;
            assert_eq!(rules.len(), loaded.rules.len());
            let names: HashSet<_> = rules.iter().map(|rule| &rule.name).collect();
            assert_eq!(names.len(), rules.len());
            assert!(rules.iter().all(|rule| !rule.probes.is_empty()));
        }
        Err(errors) => {
            assert!(errors.iter().next().is_some());
            assert!(errors.iter().all(|error| !error.to_string().contains(char::is_control)));
        }
    }
});
