//! The arguments that choose by pod and container, the same for every verb that has them: `NS/POD/CONTAINER`, or flags.

use std::str::FromStr;

use percent_encoding::percent_decode_str;

use super::Error;
use crate::report::filter::{Glob, pattern};

/// Which pods and containers.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Select {
    /// Only this namespace, pod or container: shop, shop/web-1, 'shop/web-*/app'; %2F is a slash within a name
    #[arg(value_name = "NS[/POD[/CONTAINER]]")]
    place: Option<Place<3>>,
    /// Only this namespace; * and ? are wildcards, as in the other filters by name
    #[arg(short, long, value_name = "NS", value_parser = pattern)]
    namespace: Option<Glob>,
    /// Only this pod
    #[arg(long, value_name = "POD", value_parser = pattern)]
    pod: Option<Glob>,
    /// Only this container
    #[arg(long, value_name = "CONTAINER", value_parser = pattern)]
    container: Option<Glob>,
}

/// Which pods.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct SelectPods {
    /// Only this namespace or pod: shop, shop/web-1, 'shop/web-*'; %2F is a slash within a name
    #[arg(value_name = "NS[/POD]")]
    place: Option<Place<2>>,
    /// Only this namespace; * and ? are wildcards, as in the other filters by name
    #[arg(short, long, value_name = "NS", value_parser = pattern)]
    namespace: Option<Glob>,
    /// Only this pod
    #[arg(long, value_name = "POD", value_parser = pattern)]
    pod: Option<Glob>,
}

/// What was chosen, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) namespace: Option<Glob>,
    pub(super) pod: Option<Glob>,
    pub(super) container: Option<Glob>,
}

impl Select {
    /// What the arguments choose together.
    ///
    /// # Errors
    /// Two of them name the same thing.
    pub(super) fn names(self) -> Result<Names, Error> {
        let Self { place, namespace, pod, container } = self;
        names(place, [namespace, pod, container])
    }
}

impl SelectPods {
    /// What the arguments choose together.
    ///
    /// # Errors
    /// Two of them name the same thing.
    pub(super) fn names(self) -> Result<Names, Error> {
        names(self.place, [self.namespace, self.pod, None])
    }
}

/// The names that a path gives, and the flags that give them, too.
const PARTS: [(&str, &str); 3] = [("namespace", "-n"), ("pod", "--pod"), ("container", "--container")];

fn names<const N: usize>(place: Option<Place<N>>, flags: [Option<Glob>; 3]) -> Result<Names, Error> {
    let mut chosen = flags;
    let Some(Place { written, parts }) = place else { return Ok(Names::from(chosen)) };
    if let ([_], [Some(namespace), None, _]) = (&parts[..], &chosen) {
        let namespace = namespace.as_str();
        return Err(Error::Usage(format!(
            "'{written}' is read as a namespace, and -n names one, too: write {namespace}/{written} for the pod"
        )));
    }
    for ((part, chosen), (what, flag)) in parts.into_iter().zip(&mut chosen).zip(PARTS) {
        if chosen.is_some() {
            return Err(Error::Usage(format!("'{written}' and {flag} both name the {what}: omit {flag}")));
        }
        *chosen = Some(part);
    }
    Ok(Names::from(chosen))
}

impl From<[Option<Glob>; 3]> for Names {
    fn from([namespace, pod, container]: [Option<Glob>; 3]) -> Self {
        Self { namespace, pod, container }
    }
}

/// `NS/POD/CONTAINER`, or the first names of it, as they are written and decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place<const N: usize> {
    written: String,
    /// At least one, at most `N`.
    parts: Vec<Glob>,
}

impl<const N: usize> FromStr for Place<N> {
    type Err = String;

    fn from_str(written: &str) -> Result<Self, String> {
        let form = ["NAMESPACE", "NAMESPACE/POD", "NAMESPACE/POD/CONTAINER"];
        let write = format!("write {}", form[..N].join(" or "));
        let part = |part: &str| {
            let decoded = percent_decode_str(part).decode_utf8();
            let decoded = decoded.map_err(|_| format!("the percent-encoded text is not UTF-8: {write}"))?;
            if decoded.is_empty() { Err(format!("a name is missing: {write}")) } else { pattern(&decoded) }
        };
        let parts: Vec<_> = written.split('/').map(part).collect::<Result<_, _>>()?;
        if parts.len() > N {
            return Err(format!("it has {} names: {write}", parts.len()));
        }
        Ok(Self { written: written.to_owned(), parts })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        select: Select,
    }

    #[derive(Debug, Parser)]
    struct PodLine {
        #[command(flatten)]
        select: SelectPods,
    }

    fn chosen(line: &str) -> Result<String, String> {
        let line = Line::try_parse_from(["x"].into_iter().chain(line.split_whitespace()));
        let names =
            line.map_err(|error| error.to_string())?.select.names().map_err(|error| error.to_string())?;
        let name = |glob: Option<Glob>| glob.map_or_else(|| "-".to_owned(), |glob| glob.as_str().to_owned());
        Ok([names.namespace, names.pod, names.container].map(name).join(" "))
    }

    #[test]
    fn a_path_and_flags_choose_together_unless_both_name_the_same() {
        for (line, names) in [
            ("", "- - -"),
            ("shop", "shop - -"),
            ("shop/web-*", "shop web-* -"),
            ("shop/web-1/app", "shop web-1 app"),
            ("a%2Fb/50%25", "a/b 50% -"),
            ("-n shop --pod web-1 --container app", "shop web-1 app"),
            ("shop --pod web-1", "shop web-1 -"),
            ("shop/web-1 --container app", "shop web-1 app"),
        ] {
            assert_eq!(chosen(line).as_deref(), Ok(names), "{line}");
        }
        for (line, reported) in [
            (
                "web-1 -n shop",
                "'web-1' is read as a namespace, and -n names one, too: write shop/web-1 for the pod",
            ),
            ("shop/web-1 -n shop", "'shop/web-1' and -n both name the namespace: omit -n"),
            ("shop/web-1 --pod web-2", "'shop/web-1' and --pod both name the pod: omit --pod"),
            ("a/b/c --container d", "'a/b/c' and --container both name the container: omit --container"),
            ("a//c", "a name is missing: write NAMESPACE or NAMESPACE/POD or NAMESPACE/POD/CONTAINER"),
            ("a/b/c/d", "it has 4 names: write NAMESPACE or NAMESPACE/POD or NAMESPACE/POD/CONTAINER"),
            ("%ff", "the percent-encoded text is not UTF-8"),
        ] {
            let error = chosen(line).unwrap_err();
            assert!(error.contains(reported), "{line}: {error}");
        }
        let error = PodLine::try_parse_from(["x", "a/b/c"]).unwrap_err().to_string();
        assert!(error.contains("it has 3 names: write NAMESPACE or NAMESPACE/POD"), "{error}");
    }
}
