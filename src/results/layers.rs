//! What a runtime says of an exec that it could not make, without the layers that it passed through: the reason, as
//! people look for it. Pure.

/// Prefixes that only say that an exec did not start, each only before the actual reason.
const LAYERS: [&str; 4] = [
    "failed to exec in container: ",
    "OCI runtime exec failed: ",
    "exec failed: ",
    "unable to start container process: ",
];

/// The text without gRPC's prefix, ids of execs, and the layers.
pub(crate) fn plain(text: &str) -> String {
    let Some(at) = text.find("rpc error: code = ").or_else(|| text.find(LAYERS[0])) else {
        return text.to_owned();
    };
    let (before, mut rest) = text.split_at(at);
    if let Some((code, described)) =
        after(rest, "rpc error: code = ").and_then(|rest| rest.split_once(" desc = "))
        && code.chars().all(char::is_alphanumeric)
    {
        rest = described;
    }
    while let Some(inner) = peeled(rest) {
        rest = inner;
    }
    let rest = rest.strip_suffix(": unknown").unwrap_or(rest);
    format!("{before}{rest}")
}

fn peeled(text: &str) -> Option<&str> {
    let layer = LAYERS.iter().find_map(|layer| after(text, layer));
    layer.or_else(|| Some(after(text, "failed to start exec \"")?.split_once("\": ")?.1))
}

fn after<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    text.strip_prefix(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_left_and_nothing_else_is_touched() {
        let id = "5d41402abc4b2a76b9719d911017c592".repeat(2);
        let long = format!(
            "rpc error: code = Unknown desc = failed to exec in container: failed to start exec \"{id}\": OCI runtime \
             exec failed: exec failed: unable to start container process: exec: \"cat\": executable file not found in \
             $PATH: unknown"
        );
        let reason = "exec: \"cat\": executable file not found in $PATH";
        for (text, shown) in [
            (long.as_str(), reason.to_owned()),
            (
                &format!("Liveness probe errored and resulted in unknown state: {long}"),
                format!("Liveness probe errored and resulted in unknown state: {reason}"),
            ),
            (long.split_once(" desc = ").unwrap().1, reason.to_owned()),
            ("rpc error: code = Unavailable desc = transport is closing", "transport is closing".to_owned()),
            ("rpc error: code = ", "rpc error: code = ".to_owned()),
            ("exec failed: it said", "exec failed: it said".to_owned()),
            ("cat: no such file: unknown", "cat: no such file: unknown".to_owned()),
        ] {
            assert_eq!(plain(text), shown);
        }
    }
}
