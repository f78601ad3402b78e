//! Flags of a kubelet: as words of a process, or as text of a unit or environment file in; their values and lines out. Never
//! does IO.

/// A flag in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlagLine {
    /// From 1.
    pub(crate) line: usize,
    /// As it is written, without quotes; empty if it is on the next line.
    pub(crate) value: String,
}

/// Of a process: the last value, which is the one that counts.
pub(crate) fn of_words(words: &[String], flag: &str) -> Option<String> {
    words.iter().enumerate().rev().find_map(|(index, word)| {
        match word.strip_prefix(flag)?.strip_prefix('=') {
            Some(value) => Some(value.to_owned()),
            None if word == flag => words.get(index + 1).cloned(),
            None => None,
        }
    })
}

/// Of a unit or an environment file, in order. Comments do not count.
pub(crate) fn of_text(text: &str, flag: &str) -> Vec<FlagLine> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with(['#', ';']));
    let found = lines.flat_map(|(index, line)| {
        line.match_indices(flag).filter_map(move |(at, _)| {
            let is_word = line[..at].chars().next_back().is_none_or(is_separator);
            let rest = &line[at + flag.len()..];
            let value = rest.strip_prefix('=').or_else(|| {
                (rest.is_empty() || rest.starts_with(char::is_whitespace)).then(|| rest.trim_start())
            })?;
            let value = value.trim_start_matches(['"', '\'']);
            let end = value.find(is_separator).unwrap_or(value.len());
            is_word.then(|| FlagLine { line: index + 1, value: value[..end].to_owned() })
        })
    });
    found.collect()
}

/// The files that a unit reads variables from: those of its EnvironmentFile= lines.
pub(crate) fn environment_files(unit: &str) -> impl Iterator<Item = &str> {
    unit.lines().filter_map(|line| {
        let file = line.trim().strip_prefix("EnvironmentFile=")?.trim_start_matches('-').trim_matches('"');
        file.starts_with('/').then_some(file)
    })
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | '=' | '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAG: &str = "--container-runtime-endpoint";

    #[test]
    fn the_last_value_of_a_process_counts() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (line, flag, value) in [
            ("kubelet --config=/a --config /b", "--config", Some("/b")),
            ("kubelet --config-dir=/d", "--config", None),
            ("kubelet --config", "--config", None),
            ("kubelet", "--config", None),
        ] {
            assert_eq!(of_words(&words(line), flag).as_deref(), value, "{line}");
        }
    }

    #[test]
    fn a_flag_in_a_file_is_found_with_its_line() {
        for (text, expected) in [
            (
                "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/c.sock --x=y\"\n",
                &[(1, "unix:///run/c.sock")][..],
            ),
            (
                "[Service]\nExecStart=/usr/bin/kubelet \\\n  --container-runtime-endpoint unix:///a \\\n  -v 2\n",
                &[(3, "unix:///a")],
            ),
            (
                "ARGS='--container-runtime-endpoint=/a' # x\nB=--container-runtime-endpoint=\"/b\"",
                &[(1, "/a"), (2, "/b")],
            ),
            ("A=--container-runtime-endpoint \\\n /a\n", &[(1, "")]),
            ("# --container-runtime-endpoint=/a\n  ; --container-runtime-endpoint=/a\n", &[]),
            ("A=--container-runtime-endpoints=/a --my--container-runtime-endpoint=/a", &[]),
        ] {
            let found = of_text(text, FLAG);
            let found: Vec<_> = found.iter().map(|flag| (flag.line, &*flag.value)).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn a_unit_names_its_environment_files() {
        let unit = "[Service]\nEnvironmentFile=-/etc/default/kubelet\nEnvironmentFile=/a b\nEnvironmentFile=x\nEnvironment=A=1\n";
        assert_eq!(environment_files(unit).collect::<Vec<_>>(), ["/etc/default/kubelet", "/a b"]);
    }
}
