//! Which folders are watched, and which changes count, for the ways in which configurations are laid out.

use std::os::unix::fs::symlink;

use super::*;

/// A folder of its own for each layout, by its real path.
struct Place {
    dir: tempfile::TempDir,
    root: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("criprobe-survey-").tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        Self { dir, root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn link(&self, name: &str, target: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        symlink(target, self.path(name)).unwrap();
    }

    fn survey(&self) -> Survey {
        Survey::of(&Roots { file: self.path("etc/config.yaml"), folder: self.path("etc/conf.d") })
    }

    /// The folders below the root that are watched.
    fn watched(&self) -> Vec<String> {
        let survey = self.survey();
        let below = survey.folders.keys().filter_map(|folder| folder.strip_prefix(&self.root).ok());
        below.map(|folder| folder.display().to_string()).collect()
    }

    fn concerns(&self, name: &str) -> bool {
        self.survey().concerns(&self.root.join(name))
    }
}

#[test]
fn a_plain_file_and_a_plain_folder_are_watched_where_they_lie() {
    let place = Place::new();
    place.write("etc/config.yaml", "");
    place.write("etc/conf.d/10.yaml", "");
    assert_eq!(place.watched(), ["etc", "etc/conf.d"]);
    for (name, counts) in [
        ("etc/config.yaml", true),
        ("etc/conf.d", true),
        ("etc/conf.d/10.yaml", true),
        ("etc/conf.d/20.yaml", true),
        ("etc/conf.d/.10.yaml.swp", false),
        ("etc/conf.d/.20.yaml", false),
        ("etc/conf.d/10.yaml~", false),
        ("etc/config.yaml.tmp", false),
        ("etc", true),
    ] {
        assert_eq!(place.concerns(name), counts, "{name}");
    }
}

#[test]
fn of_what_does_not_exist_the_nearest_folder_that_does_is_watched() {
    let place = Place::new();
    assert_eq!(place.watched(), [""]);
    assert!(place.concerns("etc") && !place.concerns("other"));
    fs::create_dir(place.path("etc")).unwrap();
    assert_eq!(place.watched(), ["etc"]);
    assert!(place.concerns("etc/config.yaml") && place.concerns("etc/conf.d"));
    fs::create_dir(place.path("etc/conf.d")).unwrap();
    assert_eq!(place.watched(), ["etc", "etc/conf.d"]);
}

#[test]
fn each_link_on_the_way_is_watched_where_it_lies_and_where_it_leads() {
    let place = Place::new();
    // As a ConfigMap is mounted.
    place.write("etc/..2026_1/config.yaml", "");
    place.link("etc/..data", "..2026_1");
    place.link("etc/config.yaml", "..data/config.yaml");
    assert_eq!(place.watched(), ["etc", "etc/..2026_1"]);
    for name in ["etc/config.yaml", "etc/..data", "etc/..2026_1/config.yaml"] {
        assert!(place.concerns(name), "{name}");
    }
    place.write("etc/..2026_2/config.yaml", "");
    place.link("etc/..data_tmp", "..2026_2");
    let before = place.survey();
    fs::rename(place.path("etc/..data_tmp"), place.path("etc/..data")).unwrap();
    assert_eq!(place.watched(), ["etc", "etc/..2026_2"]);
    assert_ne!(place.survey(), before, "a swap is seen by its stamps alone, too");
    // A whole folder elsewhere, behind two links.
    let place = Place::new();
    place.write("real/sub/config.yaml", "");
    place.link("middle", "real/sub");
    place.link("etc", "./middle/../sub");
    assert_eq!(place.watched(), ["", "real/sub"]);
    assert!(place.concerns("etc") && place.concerns("middle") && place.concerns("real/sub/conf.d"));
}

#[test]
fn a_folder_that_is_a_link_counts_its_new_files_where_they_are() {
    let place = Place::new();
    place.write("real/10.yaml", "");
    place.link("etc/conf.d", "../real");
    assert_eq!(place.watched(), ["", "etc", "real"]);
    assert!(place.concerns("real/20.yaml") && !place.concerns("real/README"));
}

#[test]
fn links_in_a_circle_and_links_to_nothing_are_watched_and_end() {
    let place = Place::new();
    place.link("etc/config.yaml", "other.yaml");
    place.link("etc/other.yaml", "config.yaml");
    place.link("etc/conf.d", "nowhere/at/all");
    assert_eq!(place.watched(), ["etc"]);
    assert!(place.concerns("etc/other.yaml") && place.concerns("etc/nowhere"));
}

#[test]
fn any_change_of_a_file_changes_its_stamp_and_nothing_else_does() {
    let place = Place::new();
    place.write("etc/config.yaml", "one");
    let same = place.survey();
    assert_eq!(place.survey(), same, "a look changes nothing");
    place.write("etc/unrelated", "x");
    assert_eq!(place.survey(), same);
    let other_size = {
        place.write("etc/config.yaml", "three");
        place.survey()
    };
    assert_ne!(other_size, same);
    place.write("etc/new", "three");
    fs::rename(place.path("etc/new"), place.path("etc/config.yaml")).unwrap();
    let other_inode = place.survey();
    assert_ne!(other_inode, other_size);
    fs::remove_file(place.path("etc/config.yaml")).unwrap();
    assert_ne!(place.survey(), other_inode);
    place.write("etc/conf.d/10.yaml", "");
    let with_one = place.survey();
    place.write("etc/conf.d/20.yaml", "");
    assert_ne!(place.survey(), with_one);
}
