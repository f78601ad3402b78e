//! Which files are read, in which order, and what is passed over.

use std::os::unix::fs::{PermissionsExt, symlink};

use rustix::{
    fs::{AtFlags, CWD, Mode, chownat, mkfifoat},
    process::Uid,
};
use tempfile::TempDir;

use super::{
    super::{Loaded, Overrides, load},
    *,
};

/// A folder with an empty `config.yaml` and a `conf.d`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.yaml"), "").unwrap();
    fs::create_dir(folder.path().join("conf.d")).unwrap();
    folder
}

fn loaded(folder: &TempDir) -> Result<Loaded, String> {
    let here = folder.path().display().to_string();
    load(Some(&folder.path().join("config.yaml")), &Overrides::default(), &|_| Ok(None))
        .map_err(|errors| errors.to_string().replace(&here, "DIR"))
}

fn rule(name: &str) -> String {
    format!("rules: [{{name: {name}, match: {{pod: x}}, liveness: {{grpc: {{port: 1}}}}}}]\n")
}

fn names(loaded: &Loaded) -> Vec<&str> {
    loaded.config.policy.rules.iter().map(|rule| &*rule.name).collect()
}

#[test]
fn files_of_the_folder_come_after_the_main_one_in_the_order_of_their_names() {
    let folder = folder();
    for (file, name) in [
        ("config.yaml", "main"),
        ("conf.d/b.yaml", "third"),
        ("conf.d/10-a.yaml", "first"),
        ("conf.d/9-a.yaml", "second"),
    ] {
        fs::write(folder.path().join(file), rule(name)).unwrap();
    }
    assert_eq!(names(&loaded(&folder).unwrap()), ["main", "first", "second", "third"]);
}

#[test]
fn what_editors_and_config_maps_leave_beside_a_file_is_not_read() {
    let folder = folder();
    let conf = folder.path().join("conf.d");
    let data = conf.join("..2026_11_21");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("web.yaml"), rule("web")).unwrap();
    symlink("..2026_11_21", conf.join("..data")).unwrap();
    symlink("..data/web.yaml", conf.join("web.yaml")).unwrap();
    for bad in [".hidden.yaml", "web.yaml~", ".web.yaml.swp", "#web.yaml#", "web.yaml.bak", "README"] {
        fs::write(conf.join(bad), "not: {read").unwrap();
    }
    let loaded = loaded(&folder).unwrap();
    assert_eq!((names(&loaded), loaded.notes.len()), (vec!["web"], 0), "{:?}", loaded.notes);
    assert_eq!(loaded.files.len(), 2);
}

#[test]
fn what_somebody_may_have_meant_to_be_read_is_noted() {
    let folder = folder();
    let conf = folder.path().join("conf.d");
    fs::create_dir(conf.join("folder.yaml")).unwrap();
    mkfifoat(CWD, conf.join("pipe.yaml"), Mode::from_raw_mode(0o600)).unwrap();
    for name in ["a.yml", "b.YAML", "c.json"] {
        fs::write(conf.join(name), "not: {read").unwrap();
    }
    let here = folder.path().display().to_string();
    let notes = loaded(&folder).unwrap().notes.join("\n").replace(&here, "DIR");
    insta::assert_snapshot!(notes, @"
    DIR/conf.d/a.yml is not read: its name does not end in .yaml
    DIR/conf.d/b.YAML is not read: its name does not end in .yaml
    DIR/conf.d/c.json is not read: its name does not end in .yaml
    DIR/conf.d/folder.yaml is not read: it is a folder
    DIR/conf.d/pipe.yaml is not read: it is a named pipe
    ");
}

#[test]
fn a_main_file_that_is_no_regular_file_is_an_error_and_never_waited_for() {
    let folder = folder();
    let main = folder.path().join("config.yaml");
    fs::remove_file(&main).unwrap();
    mkfifoat(CWD, &main, Mode::from_raw_mode(0o600)).unwrap();
    insta::assert_snapshot!(loaded(&folder).unwrap_err(), @"DIR/config.yaml: cannot read the configuration: it is a named pipe, not a regular file");
    fs::remove_file(&main).unwrap();
    fs::create_dir(&main).unwrap();
    insta::assert_snapshot!(loaded(&folder).unwrap_err(), @"DIR/config.yaml: cannot read the configuration: it is a folder, not a regular file");
    fs::remove_dir(&main).unwrap();
    symlink("/dev/zero", &main).unwrap();
    insta::assert_snapshot!(loaded(&folder).unwrap_err(), @"DIR/config.yaml: cannot read the configuration: it is a device, not a regular file");
}

#[test]
fn what_cannot_be_read_is_told_with_all_else() {
    let folder = folder();
    symlink("nowhere", folder.path().join("conf.d/a.yaml")).unwrap();
    fs::write(folder.path().join("conf.d/b.yaml"), "x: 1").unwrap();
    insta::assert_snapshot!(loaded(&folder).unwrap_err(), @r#"
    DIR/conf.d/a.yaml: cannot read the configuration: No such file or directory (os error 2)
    DIR/conf.d/b.yaml:1:1: unknown key "x": known keys are listen, runtime, state, api, prober, annotations, healthcheck, observed, history, attempts, act, trace, log, rules
    "#);
}

#[test]
fn a_folder_that_is_not_there_or_is_empty_is_no_error() {
    let folder = folder();
    assert_eq!(loaded(&folder).unwrap().files.len(), 1);
    fs::remove_dir(folder.path().join("conf.d")).unwrap();
    assert_eq!(loaded(&folder).unwrap().files.len(), 1);
    fs::write(folder.path().join("conf.d"), "").unwrap();
    insta::assert_snapshot!(loaded(&folder).unwrap_err(), @"DIR/conf.d: cannot read the folder: Not a directory (os error 20)");
}

#[test]
fn files_and_bytes_are_bounded() {
    let folder = folder();
    let file = |number: usize| folder.path().join(format!("conf.d/{number:03}.yaml"));
    for number in 0..100 {
        fs::write(file(number), "").unwrap();
    }
    assert!(loaded(&folder).is_ok());
    fs::write(file(100), "").unwrap();
    insta::assert_snapshot!(loaded(&folder).unwrap_err(), @"DIR/conf.d: more than 100 files: combine their rules");
    fs::remove_file(file(100)).unwrap();
    for number in 0..5 {
        fs::write(file(number), "#".repeat(MAX_FILE)).unwrap();
    }
    insta::assert_snapshot!(loaded(&folder).unwrap_err(), @"DIR/conf.d/004.yaml: more than 4194304 bytes in all files up to this one");
}

#[test]
fn files_and_folders_that_others_can_write_are_noted() {
    let folder = folder();
    let conf = folder.path().join("conf.d");
    fs::write(conf.join("a.yaml"), "{}").unwrap();
    for (path, mode) in [(conf.join("a.yaml"), 0o646), (conf.clone(), 0o757)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let here = folder.path().display().to_string();
    let notes = loaded(&folder).unwrap().notes.join("\n").replace(&here, "DIR");
    insta::assert_snapshot!(notes, @"
    DIR/conf.d can be written by others (mode 0757), who could then run commands in every container: chmod go-w
    DIR/conf.d/a.yaml can be written by others (mode 0646), who could then run commands in every container: chmod go-w
    ");
}

/// Makes a file, a folder or a link another user's, as a reader with an unused user ID sees it.
fn give_away(path: &Path) {
    if geteuid().is_root() {
        chownat(CWD, path, Some(Uid::from_raw(1000)), None, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// What a reader notes and refuses who is neither root nor the user that these tests run as.
fn read_by_another(folder: &TempDir) -> (String, String) {
    let here = folder.path().display().to_string();
    let found = read_as(Some(&folder.path().join("config.yaml")), 54_321);
    let resolved = super::super::resolve::resolve(&found.raws, &Overrides::default(), &|_| Ok(None));
    let errors =
        resolved.map_or_else(|errors| errors.conceal(&found.concealed).to_string(), |_| "ok".to_owned());
    let owner = if geteuid().is_root() { 1000 } else { geteuid().as_raw() };
    let plain = |text: String| text.replace(&here, "DIR").replace(&format!("user {owner}"), "user OTHER");
    (plain(found.notes.join("\n")), plain(errors))
}

const SECRET: &str = "root:$6$SALT$HASH:20228:0:99999:7:::\napi-token: SECRET\n";

#[test]
fn a_file_or_folder_of_another_user_is_noted_and_none_of_its_text_is_shown() {
    let folder = folder();
    let conf = folder.path().join("conf.d");
    fs::write(conf.join("a.yaml"), "rules: []\n").unwrap();
    fs::write(conf.join("b.yaml"), SECRET).unwrap();
    for path in [conf.clone(), conf.join("a.yaml"), conf.join("b.yaml")] {
        give_away(&path);
    }
    let (notes, errors) = read_by_another(&folder);
    for path in ["DIR/conf.d", "DIR/conf.d/a.yaml", "DIR/conf.d/b.yaml"] {
        let note = format!("{path} belongs to user OTHER, who could then run commands in every container");
        assert!(notes.contains(&note), "{notes}");
    }
    assert!(errors.contains("DIR/conf.d/b.yaml:1:1: wrong, but the reason is not shown"), "{errors}");
    for text in ["root", "SALT", "HASH", "token", "SECRET"] {
        assert!(!errors.contains(text), "{errors}");
    }
}

#[test]
fn none_of_the_text_behind_a_link_out_of_the_folder_is_shown() {
    let (folder, elsewhere) = (folder(), folder());
    let secret = elsewhere.path().join("shadow");
    fs::write(&secret, SECRET).unwrap();
    symlink(&secret, folder.path().join("conf.d/a.yaml")).unwrap();
    let errors = loaded(&folder).unwrap_err();
    for line in errors.lines() {
        let (place, reason) = line.split_once(": ").unwrap();
        assert!(place.starts_with("DIR/conf.d/a.yaml:"), "{line}");
        assert!(reason.starts_with("wrong, but the reason is not shown"), "{line}");
    }
    // A broken file is not quoted either.
    fs::write(&secret, "a: [SECRET\nb: }SECRET").unwrap();
    assert!(!loaded(&folder).unwrap_err().contains("SECRET"));
    fs::write(&secret, rule("web")).unwrap();
    assert_eq!(names(&loaded(&folder).unwrap()), ["web"]);
}
