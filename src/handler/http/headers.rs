//! The headers of a probe's request: those that a definition lists in, those that Go's client would hold out, by name
//! and in the order of names (docs/kubelet-prober.md 7.2). Pure.

use std::collections::BTreeMap;

use crate::handler::go;

/// What the kubelet says it is, and then what we are.
const USER_AGENT: &str = concat!("kube-probe/1.36 criprobe/", env!("CARGO_PKG_VERSION"));

/// The values of each header, by its canonical name. Ordered as they are sent: by the bytes of the name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Headers(BTreeMap<String, Vec<String>>);

impl Headers {
    /// Those of a probe: the values of one name are kept in their order, and `User-Agent` and `Accept` are added where
    /// they are not listed. An `Accept` whose first value is empty goes with all its values.
    pub(super) fn of_probe(listed: &[(String, String)]) -> Self {
        let mut headers = Self::default();
        for (name, value) in listed {
            headers.0.entry(canonical(name)).or_default().push(value.clone());
        }
        headers.0.entry("User-Agent".to_owned()).or_insert_with(|| vec![USER_AGENT.to_owned()]);
        if headers.0.entry("Accept".to_owned()).or_insert_with(|| vec!["*/*".to_owned()])[0].is_empty() {
            headers.0.remove("Accept");
        }
        headers
    }

    /// The first value of a header by its canonical name; empty where it has none.
    pub(super) fn first(&self, name: &str) -> &str {
        self.0.get(name).and_then(|values| values.first()).map_or("", String::as_str)
    }

    /// Whether any of its values, which commas separate, is that token, in any case of letters.
    pub(super) fn has_token(&self, name: &str, token: &str) -> bool {
        self.0.get(name).is_some_and(|values| values.iter().any(|value| holds_token(value, token)))
    }

    /// Puts one value in the place of all.
    pub(super) fn set(&mut self, name: &str, value: String) {
        self.0.insert(name.to_owned(), vec![value]);
    }

    /// All values with their names, in the order of names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|(name, values)| values.iter().map(|value| (name.as_str(), value.as_str())))
    }

    /// Refuses what no request may hold.
    ///
    /// # Errors
    /// In Go's words, for the first name that is no token of RFC 7230, or value with a control character.
    pub(super) fn check(&self) -> Result<(), String> {
        for (name, value) in self.iter() {
            if !is_token(name) {
                return Err(format!("net/http: invalid header field name {}", go::quoted(name.as_bytes())));
            }
            if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
                let name = go::quoted(name.as_bytes());
                return Err(format!("net/http: invalid header field value for {name}"));
            }
        }
        Ok(())
    }
}

/// Whether a list of tokens, which commas separate, holds that one.
pub(super) fn holds_token(list: &str, token: &str) -> bool {
    list.split(',').any(|listed| trimmed(listed).eq_ignore_ascii_case(token))
}

/// A value as it is sent: without blanks at its ends.
pub(super) fn trimmed(value: &str) -> &str {
    value.trim_matches([' ', '\t'])
}

/// A name with each word's first letter in upper case and the others in lower; as it is where it is no token.
pub(super) fn canonical(name: &str) -> String {
    if !is_token(name) {
        return name.to_owned();
    }
    let mut starts_word = true;
    name.chars()
        .map(|letter| {
            let cased = if starts_word { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() };
            starts_word = letter == '-';
            cased
        })
        .collect()
}

/// RFC 7230, section 3.2.6.
pub(super) fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(is_token_byte)
}

/// Whether a token may contain it.
pub(super) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
