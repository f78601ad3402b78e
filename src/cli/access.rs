//! Describes who can open a socket, for a user who cannot.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

/// Describes who can open the socket, from its mode and owner: `root and members of group criprobe can`.
pub(super) fn who_may_open(path: &Path) -> String {
    let Ok(meta) = fs::metadata(path) else { return "only root can".to_owned() };
    let owner = name_of(meta.uid(), "/etc/passwd").unwrap_or_else(|| format!("user {}", meta.uid()));
    if meta.mode() & 0o020 == 0 {
        return format!("only {owner} can");
    }
    let group = name_of(meta.gid(), "/etc/group").unwrap_or_else(|| meta.gid().to_string());
    format!("{owner} and members of group {group} can")
}

fn name_of(id: u32, file: &str) -> Option<String> {
    named(id, &fs::read_to_string(file).ok()?)
}

/// Finds the name of an id in the text of passwd(5) or group(5): its name is the first field, the id the third.
fn named(id: u32, text: &str) -> Option<String> {
    let id = id.to_string();
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn ids_are_named_as_the_files_say() {
        let group = "root:x:0:\n\nbroken\nprobers:x:1000:anna,ben\n";
        assert_eq!(named(0, group).as_deref(), Some("root"));
        assert_eq!(named(1_000, group).as_deref(), Some("probers"));
        assert_eq!(named(100, group), None);
    }

    #[test]
    fn the_group_is_named_only_where_it_may() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mode = |mode| fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        mode(0o600);
        assert!(who_may_open(file.path()).starts_with("only "));
        mode(0o660);
        assert!(who_may_open(file.path()).contains(" and members of group "));
        assert_eq!(who_may_open(Path::new("/nowhere/at/all")), "only root can");
    }
}
