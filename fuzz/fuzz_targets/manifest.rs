//! Any bytes as a file to check, and as a configuration to check it with: nothing panics, and every finding has a place
//! within the file.

#![no_main]

use criprobe::check::{CheckInput, check};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let input = |name: &str| CheckInput { name: name.to_owned(), bytes: bytes.to_vec(), is_named: true };
    let lines = bytes.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count() + 1;
    let view = check(&[input("file")], &[input("rules")], "default");
    for finding in view.files.iter().flat_map(|file| &file.findings) {
        let line = finding.line.map_or(1, |line| line as usize);
        assert!((1..=lines).contains(&line), "{finding:?}");
        assert!(!finding.message.is_empty());
    }
});
