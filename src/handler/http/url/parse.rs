//! Reads a URL or a reference as Go's `url.Parse` does. Pure.

use super::{
    ParseError, Problem, Url, User,
    escape::{Part, kept, unescape},
};

impl Url {
    /// Reads a URL or a relative reference.
    ///
    /// # Errors
    /// Where Go sees one.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, ParseError> {
        let (url, fragment) = cut(text, b'#').unwrap_or((text, b""));
        let mut parsed = read(url).map_err(|problem| ParseError { text: url.into(), problem })?;
        parsed.fragment =
            kept(fragment, Part::Fragment).map_err(|problem| ParseError { text: text.into(), problem })?;
        Ok(parsed)
    }
}

/// All but the fragment.
fn read(text: &[u8]) -> Result<Url, Problem> {
    if text.iter().any(u8::is_ascii_control) {
        return Err(Problem::Control);
    }
    let (scheme, rest) = split_scheme(text)?;
    let (mut rest, query) = match cut(rest, b'?') {
        Some((rest, query)) => (rest, Some(query.to_vec())),
        None => (rest, None),
    };
    let mut url = Url { scheme: scheme.to_ascii_lowercase(), query, ..Url::default() };
    if !rest.starts_with(b"/") {
        if !url.scheme.is_empty() {
            rest.clone_into(&mut url.opaque);
            return Ok(url);
        }
        let first = cut(rest, b'/').map_or(rest, |(first, _)| first);
        if first.contains(&b':') {
            return Err(Problem::ColonFirst);
        }
    }
    let has_authority = rest.starts_with(b"//") && !(url.scheme.is_empty() && rest.starts_with(b"///"));
    if has_authority {
        let end = rest[2..].iter().position(|byte| *byte == b'/').map_or(rest.len(), |slash| slash + 2);
        (url.user, url.host) = read_authority(&rest[2..end])?;
        rest = &rest[end..];
    }
    url.is_hostless = !has_authority && !url.scheme.is_empty() && rest.starts_with(b"/");
    url.path = kept(rest, Part::Path)?;
    Ok(url)
}

/// Letters, digits, `+`, `-`, `.`, beginning with a letter, and a colon are a scheme; all else has none.
fn split_scheme(text: &[u8]) -> Result<(String, &[u8]), Problem> {
    let is_of_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let end = text.iter().position(|byte| !is_of_scheme(byte)).unwrap_or(text.len());
    match text.get(end) {
        Some(b':') if end == 0 => Err(Problem::NoScheme),
        Some(b':') if text[0].is_ascii_alphabetic() => {
            Ok((text[..end].iter().copied().map(char::from).collect(), &text[end + 1..]))
        }
        Some(_) | None => Ok((String::new(), text)),
    }
}

fn read_authority(text: &[u8]) -> Result<(Option<User>, Vec<u8>), Problem> {
    let Some(at) = text.iter().rposition(|byte| *byte == b'@') else {
        return Ok((None, read_host(text)?));
    };
    let host = read_host(&text[at + 1..])?;
    let user = &text[..at];
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(byte);
    if !user.iter().all(is_allowed) {
        return Err(Problem::User);
    }
    let user = match cut(user, b':') {
        Some((name, password)) => {
            User { name: unescape(name, Part::User)?, password: Some(unescape(password, Part::User)?) }
        }
        None => User { name: unescape(user, Part::User)?, password: None },
    };
    Ok((Some(user), host))
}

/// A host with its port: `name:80`, `[::1]:80`, `[fe80::1%25eth0]`.
fn read_host(text: &[u8]) -> Result<Vec<u8>, Problem> {
    if !text.starts_with(b"[") {
        if let Some(colon) = text.iter().rposition(|byte| *byte == b':') {
            check_port(&text[colon..])?;
        }
        return unescape(text, Part::Host);
    }
    let end = text.iter().rposition(|byte| *byte == b']').ok_or(Problem::NoBracket)?;
    check_port(&text[end + 1..])?;
    match text[..end].windows(3).position(|window| window == b"%25") {
        Some(zone) => Ok([
            unescape(&text[..zone], Part::Host)?,
            unescape(&text[zone..end], Part::Zone)?,
            unescape(&text[end..], Part::Host)?,
        ]
        .concat()),
        None => unescape(text, Part::Host),
    }
}

/// Nothing, or a colon and digits, be they none.
fn check_port(text: &[u8]) -> Result<(), Problem> {
    match text.split_first() {
        None => Ok(()),
        Some((b':', digits)) if digits.iter().all(u8::is_ascii_digit) => Ok(()),
        Some(_) => Err(Problem::Port(text.into())),
    }
}

/// What is before and after the first `separator`.
fn cut(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == separator)?;
    Some((&text[..at], &text[at + 1..]))
}
