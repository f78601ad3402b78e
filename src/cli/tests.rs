//! The command line as people type it: what each line parses to, the errors of wrong ones, and the help texts.

use super::*;

fn parsed(arguments: &str) -> Result<Command, String> {
    let arguments = arguments.split(' ').filter(|word| !word.is_empty());
    read(["criprobe"].into_iter().chain(arguments).map(OsString::from).collect()).map_err(|refused| {
        match refused {
            Refused::Usage(reason) => reason,
            Refused::Help(help) => panic!("{help}"),
        }
    })
}

#[test]
fn the_definition_holds_together() {
    command().debug_assert();
}

#[test]
fn help_teaches() {
    for verb in verbs() {
        insta::assert_snapshot!(format!("help_{verb}"), help(&verb, 100));
    }
    insta::assert_snapshot!("help", help("", 100));
    insta::assert_snapshot!("help_60", help("", 60));
    insta::assert_snapshot!("help_probes_60", help("probes", 60));
}

#[test]
fn help_fits_and_examples_are_whole() {
    for (verb, width) in verbs().into_iter().flat_map(|verb| [(verb.clone(), 60), (verb, 80)]) {
        let help = help(&verb, width);
        let (_, epilogue) = help.split_once("Examples:").unwrap_or_default();
        for line in epilogue.lines().filter(|line| !line.starts_with(' ')) {
            assert!(screen::width_of(line) <= width, "{verb} in {width}: {line}");
        }
    }
}

fn verbs() -> Vec<String> {
    command().get_subcommands().map(|verb| verb.get_name().to_owned()).collect()
}

/// The help of a verb, or of the program, as a terminal of this width shows it.
fn help(verb: &str, width: usize) -> String {
    let mut command = help::marked(command()).term_width(width);
    command.build();
    let of = if verb.is_empty() { Some(&mut command) } else { command.find_subcommand_mut(verb) };
    help::ended(&of.unwrap().render_help().to_string(), &super::command(), width)
}

#[test]
fn what_all_verbs_take_stands_before_or_after_them() {
    for arguments in ["--api /x -o json probes", "probes --api /x -o json", "-o json probes --api /x"] {
        let Ok(Command::Ask(Request { common, .. })) = parsed(arguments) else { panic!("{arguments}") };
        assert_eq!((common.api.as_deref(), common.output), (Some("/x"), Some(Format::Json)));
    }
}

#[test]
fn what_is_wrong_is_said_in_one_line_with_what_to_do() {
    for (arguments, line) in [
        ("probes --nmespace x", "see 'criprobe probes --help'"),
        (
            "probes --type livenes",
            "not a type: write one of startup, readiness, liveness, observed-N; see 'criprobe probes --help'",
        ),
        (
            "probes -o xml",
            "invalid value 'xml' for '--output <FORMAT>': write one of table, wide, json, yaml",
        ),
        (
            "probes -w --check",
            "the argument '--watch' cannot be used with '--check'; see 'criprobe probes --help'",
        ),
        (
            "trace --slower soon",
            "'--slower <DURATION>': not a duration: write one such as 250ms, 5s or 1m30s; see 'criprobe trace --help'",
        ),
        ("-n x trace --slower 5", "unexpected argument '-n' before the verb: write it after 'trace'"),
        (
            "--api /x trace --slower 5",
            "the unit is missing: write a duration such as 250ms, 5s or 1m30s; see 'criprobe",
        ),
        (
            "trace --last -1",
            "'--last <N>': not a number: write a whole number such as 20; see 'criprobe trace --help'",
        ),
        ("events --last many", "not a number: write a whole number such as 20; see 'criprobe events --help'"),
        ("trace --last", "'--last <N>' needs a value; see"),
        (
            "serve --log-level loud",
            "invalid value 'loud' for '--log-level <LEVEL>': write one of error, warn, info, debug, trace",
        ),
        (
            "demo --for ever",
            "not a duration: write one such as 250ms, 5s or 1m30s; see 'criprobe demo --help'",
        ),
        ("serve -o json", "choose the log format with --log-format; see 'criprobe serve --help'"),
        ("-o json demo", "query its daemon from another terminal; see 'criprobe demo --help'"),
        ("demo --api /x", "choose the folder with --dir; see 'criprobe demo --help'"),
        (
            "run a/b/c --exec cat /x",
            "write the command after '--': criprobe run CONTAINER --exec -- CMD...; see 'criprobe run --help'",
        ),
        ("status extra", "unexpected argument 'extra': 'status' takes only options"),
        ("trace a b", "unexpected argument 'b': 'trace' takes NS[/POD[/CONTAINER]] once"),
        ("top --caller x", "'top' has no option --caller; 'trace' has it"),
        ("trace --since 5m", "'trace' has no option --since; 'probes', 'top' and 'events' have it"),
        (
            "pods --container x",
            "'pods' has no option --container; 'probes', 'trace', 'events' and others have it",
        ),
        ("trace --metod ExecSync", "'trace' has no option --metod; did you mean --method?"),
        ("trace --tail 5", "'trace' has no option --tail; see"),
        ("trigger a/b --wait", "'trigger' has no option --wait; see"),
        ("trace -w", "'trace' has no option -w; 'pods' and 'probes' have it"),
        ("--caller x", "there is no option --caller before a verb; write it after a verb"),
        ("tp", "there is no verb 'tp'; did you mean top?; see 'criprobe --help'"),
        ("ps", "there is no verb 'ps'; did you mean pods or probes or pause?"),
        ("evnts", "there is no verb 'evnts'; did you mean events?"),
        ("get pods", "there is no verb 'get'; see 'criprobe --help'"),
        ("config x", "'config' has no verb 'x': write one of default, show"),
        ("top --since 5s", "write a time from 30s to 10m: calls are summed for 10 minutes"),
        ("trace --failed=true", "'--failed' takes no value"),
        ("run a/b/c --exec", "write the command after '--'"),
        (
            "run",
            "missing: <CONTAINER>; one of --probe <TYPE>, --exec, --http-get <URL>, --tcp <PORT>, --grpc <PORT>; see",
        ),
        ("describe", "missing: <POD|CONTAINER|PROBE>"),
        (
            "describe a/b/c/d/e",
            "too many names: write NAMESPACE/POD, NAMESPACE/POD/CONTAINER, NAMESPACE/POD/CONTAINER/TYPE, or the \
             first characters of a container's ID; see 'criprobe describe --help'",
        ),
    ] {
        let error = parsed(arguments).unwrap_err();
        assert!(error.contains(line), "{arguments}: {error}");
        assert!(!error.contains('\n'), "{arguments}: {error}");
    }
}

#[test]
fn flags_of_the_daemon_are_handed_on_as_they_are() {
    let arguments = "serve --config /c --listen l.sock --runtime unix:///r --http :9090 --log-format json --log-level debug";
    let Ok(Command::Serve(serve)) = parsed(arguments) else { panic!() };
    let text = |text: &str| Some(text.to_owned());
    let expected = ServeArgs {
        config: Some("/c".into()),
        listen: text("l.sock"),
        runtime: text("unix:///r"),
        api: None,
        http: text(":9090"),
        log_format: text("json"),
        log_level: text("debug"),
    };
    assert_eq!(serve, expected);
    let Ok(Command::Serve(serve)) = parsed("--api /a serve") else { panic!() };
    assert_eq!(serve.api, text("/a"));
    let Ok(Command::Serve(serve)) = parsed("serve --api /a") else { panic!() };
    assert_eq!(serve.api, text("/a"));
    let Ok(Command::Demo(demo)) = parsed("demo --for 20s --dir d") else { panic!() };
    assert_eq!((demo.duration, demo.dir), (Some(std::time::Duration::from_secs(20)), Some("d".into())));
}
