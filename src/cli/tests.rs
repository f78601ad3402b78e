//! The command line as people type it: what each line parses to, what wrong ones are told, and the help texts.

use super::*;

fn parsed(arguments: &str) -> Result<Command, String> {
    let arguments = arguments.split(' ').filter(|word| !word.is_empty());
    let matches = Cli::command().try_get_matches_from(["criprobe"].into_iter().chain(arguments));
    match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(Cli { verb: Verb::Question(verb), common }) => Ok(Command::Ask(Request { verb, common })),
        Ok(Cli { verb: Verb::Serve(arguments), common }) => {
            Ok(Command::Serve(ServeArgs { api: common.api, ..arguments }))
        }
        Ok(Cli { verb: Verb::Demo(arguments), .. }) => Ok(Command::Demo(arguments)),
        Err(error) => Err(one_line(&error.render().to_string())),
    }
}

#[test]
fn the_definition_holds_together() {
    Cli::command().debug_assert();
}

#[test]
fn help_teaches() {
    let mut command = Cli::command().term_width(100);
    command.build();
    let verbs = command
        .get_subcommands_mut()
        .map(|verb| (verb.get_name().to_owned(), verb.render_help().to_string()));
    for (verb, help) in verbs.collect::<Vec<_>>() {
        insta::assert_snapshot!(format!("help_{verb}"), help);
    }
    insta::assert_snapshot!("help", command.render_help().to_string());
}

#[test]
fn what_all_verbs_take_stands_before_or_after_them() {
    for arguments in ["--api /x -o json probes", "probes --api /x -o json", "-o json probes --api /x"] {
        let Ok(Command::Ask(Request { common, .. })) = parsed(arguments) else { panic!("{arguments}") };
        assert_eq!((common.api.as_deref(), common.output), (Some("/x"), Format::Json));
    }
}

#[test]
fn what_is_wrong_is_said_in_one_line_with_what_to_do() {
    for (arguments, line) in [
        (
            "probs",
            "unrecognized subcommand 'probs'; a similar subcommand exists: 'probes'; see 'criprobe --help'",
        ),
        ("probes --nmespace x", "see 'criprobe probes --help'"),
        ("probes --type livenes", "one of startup, readiness, liveness, observed-N; see 'criprobe"),
        ("probes -o xml", "[possible values: table, wide, json, yaml]"),
        (
            "probes -w --check",
            "the argument '--watch' cannot be used with '--check'; see 'criprobe probes --help'",
        ),
        ("trace --slower soon", "invalid value 'soon' for '--slower <DURATION>'"),
        ("trace --last -1", "invalid value '-1' for '--last <N>'"),
        ("trace --last", "a value is required for '--last <N>' but none was supplied"),
        ("serve --log-level loud", "[possible values: error, warn, info, debug, trace]"),
        ("demo --for ever", "invalid value 'ever' for '--for <DURATION>'"),
        ("status extra", "unexpected argument 'extra' found"),
    ] {
        let error = parsed(arguments).unwrap_err();
        assert!(error.contains(line), "{arguments}: {error}");
        assert!(!error.contains('\n'), "{arguments}: {error}");
    }
}

#[test]
fn flags_of_the_daemon_are_handed_on_as_they_are() {
    let arguments =
        "serve --config /c --listen l.sock --runtime unix:///r --log-format json --log-level debug";
    let Ok(Command::Serve(serve)) = parsed(arguments) else { panic!() };
    let text = |text: &str| Some(text.to_owned());
    let expected = ServeArgs {
        config: Some("/c".into()),
        listen: text("l.sock"),
        runtime: text("unix:///r"),
        api: None,
        log_format: text("json"),
        log_level: text("debug"),
    };
    assert_eq!(serve, expected);
    let Ok(Command::Serve(serve)) = parsed("--api /a serve") else { panic!() };
    assert_eq!(serve.api, text("/a"));
    let Ok(Command::Demo(demo)) = parsed("demo --for 20s --dir d") else { panic!() };
    assert_eq!((demo.duration, demo.dir), (Some(std::time::Duration::from_secs(20)), Some("d".into())));
}
