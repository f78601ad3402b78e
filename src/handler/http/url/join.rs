//! Resolves a reference against the URL that it came from, as Go's `URL.ResolveReference` does (RFC 3986, section 5.2).
//! Pure.

use super::Url;

impl Url {
    /// Where a reference that stood at `self` leads.
    pub(crate) fn join(&self, reference: Self) -> Self {
        let scheme = if reference.scheme.is_empty() { self.scheme.clone() } else { reference.scheme.clone() };
        let has_authority = !reference.host.is_empty() || reference.user.is_some();
        if !reference.scheme.is_empty() || has_authority {
            return Self { scheme, path: without_dots(&reference.path), ..reference };
        }
        let is_fragment_only = reference.path.is_empty() && reference.query.is_none();
        let keeps_fragment = is_fragment_only && reference.fragment.is_empty();
        Self {
            scheme,
            user: self.user.clone(),
            host: self.host.clone(),
            path: without_dots(&merged(&self.path, &reference.path)),
            query: if is_fragment_only { self.query.clone() } else { reference.query },
            fragment: if keeps_fragment { self.fragment.clone() } else { reference.fragment },
            ..Self::default()
        }
    }
}

/// RFC 3986, section 5.2.3.
fn merged(base: &[u8], reference: &[u8]) -> Vec<u8> {
    match reference.first() {
        None => base.to_vec(),
        Some(b'/') => reference.to_vec(),
        Some(_) => {
            let folder = base.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
            [&base[..folder], reference].concat()
        }
    }
}

/// Removes `.` and `..`. What has any path begins with a slash afterwards. The empty segment before the first slash is
/// one that `..` takes away, too, so that `/..//a` becomes `/a`, as it does in Go.
fn without_dots(path: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        return Vec::new();
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut ends_in_folder = false;
    for segment in path.split(|byte| *byte == b'/') {
        ends_in_folder = matches!(segment, b"." | b"..");
        match segment {
            b"." if kept.is_empty() => kept.push(b""),
            b"." => {}
            b".." => {
                kept.pop();
            }
            _ => kept.push(segment),
        }
    }
    let mut path = [b"/".as_slice(), &kept.join(&b'/')].concat();
    if ends_in_folder {
        path.push(b'/');
    }
    if path.starts_with(b"//") {
        path.remove(0);
    }
    path
}
