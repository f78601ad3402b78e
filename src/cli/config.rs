//! `criprobe config`: the commented file of all defaults, or the configuration in effect and where each value comes from.

use super::{
    Context, Error, Exit,
    describe::definition,
    format::{self, Format},
    screen::{Paint, Screen, print},
    table::{Cell, Column, Table, Tight},
};
use crate::{
    config::example,
    report::view::{ConfigurationView, MatchView, RuleView, SettingValue},
};

/// What is to be shown.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Copy, Debug, clap::Subcommand)]
enum What {
    /// Print a commented configuration file with every setting and its default
    Default,
    /// Show the configuration of the running daemon, and where each value and each rule comes from
    Show,
}

const EXAMPLES: &str = "\
Examples:
  criprobe config default > /etc/criprobe/config.yaml
  criprobe config show
  criprobe config show -o json | jq '.rules[].name'

'criprobe check FILE' checks files without a daemon. Values of HTTP headers are never shown.";

impl ConfigArgs {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, Error> {
        match self.what {
            What::Default if context.format != Format::Table => {
                return Err(Error::Usage(
                    "'config default' does not support -o: it prints YAML with comments".to_owned(),
                ));
            }
            What::Default => print(example::TEXT)?,
            What::Show => {
                let shown: ConfigurationView =
                    context.client.get("/v1/config").await.map_err(Error::without_daemon)?;
                print(&match context.format {
                    Format::Json => format::json(&shown),
                    Format::Yaml => format::yaml(&shown),
                    Format::Table => text(&shown, context.screen, Some(context.screen.width)),
                    Format::Wide => text(&shown, context.screen, None),
                })?;
            }
        }
        Ok(Exit::Fine)
    }
}

impl Error {
    /// Adds a hint for users who have no daemon.
    fn without_daemon(self) -> Self {
        match self {
            Self::Unreachable { endpoint, reason } => {
                let reason = format!("{reason}; 'criprobe check FILE' checks files without a daemon");
                Self::Unreachable { endpoint, reason }
            }
            other => other,
        }
    }
}

fn text(shown: &ConfigurationView, screen: Screen, limit: Option<usize>) -> String {
    let column = |name, tight| Column { name, tight };
    let plain = |text: &str| Cell::new(text, Paint::Plain);
    let mut settings = Table::new(vec![
        column("SETTING", Tight::Stays),
        column("VALUE", Tight::Shrinks),
        column("FROM", Tight::Shrinks),
    ]);
    for setting in &shown.settings {
        let value = match &setting.value {
            SettingValue::One(text) if text.is_empty() => "\"\"".to_owned(),
            SettingValue::One(text) => text.clone(),
            SettingValue::Many(items) => format!("[{}]", items.join(", ")),
        };
        let paint = if setting.from == "default" { Paint::Faint } else { Paint::Plain };
        settings.row(vec![plain(&setting.key), plain(&value), Cell::new(&setting.from, paint)]);
    }
    let mut lines = settings.render(screen, limit);
    if !shown.rules.is_empty() {
        let mut rules = Table::new(vec![
            column("RULE", Tight::Stays),
            column("FOR", Tight::Shrinks),
            column("FROM", Tight::Shrinks),
        ]);
        for rule in &shown.rules {
            let name = if rule.enforce { format!("{} (enforced)", rule.name) } else { rule.name.clone() };
            rules.row(vec![plain(&name), plain(&matched(&rule.matcher)), plain(&rule.from)]);
            probes(rule).iter().for_each(|probe| rules.note(plain(probe)));
        }
        lines.push(String::new());
        lines.extend(rules.render(screen, limit));
    }
    lines.join("\n") + "\n"
}

/// Only the criteria that restrict it: `namespace shop-*, label tier=front`.
fn matched(matcher: &MatchView) -> String {
    let named = [
        ("namespace", &matcher.namespace),
        ("pod", &matcher.pod),
        ("container", &matcher.container),
        ("image", &matcher.image),
    ];
    let named =
        named.into_iter().filter(|(_, glob)| *glob != "*").map(|(name, glob)| format!("{name} {glob}"));
    let labels = matcher.labels.iter().map(|(key, value)| format!("label {key}={value}"));
    let parts: Vec<_> = named.chain(labels).collect();
    if parts.is_empty() { "all containers".to_owned() } else { parts.join(", ") }
}

fn probes(rule: &RuleView) -> Vec<String> {
    let probes = [("startup", &rule.startup), ("readiness", &rule.readiness), ("liveness", &rule.liveness)];
    let lines = probes.into_iter().filter_map(|(kind, probe)| {
        let probe = probe.as_ref()?;
        let act = (probe.on_failure != "report").then(|| format!(", on failure {}", definition::act(probe)));
        let mode = probe.exec_mode.as_ref().map(|mode| format!(", execMode {mode}"));
        let (handler, timing) = (definition::handler(&probe.handler), definition::timing(probe));
        Some(format!("{kind}: {handler}, {timing}{}{}", mode.unwrap_or_default(), act.unwrap_or_default()))
    });
    let healthcheck = rule.healthcheck.as_ref();
    let healthcheck = healthcheck.map(|said| format!("healthcheck: {}", definition::healthcheck(said)));
    let history = rule.history.map(|history| {
        let attempts = history.attempts.map(|attempts| format!("{attempts} attempts"));
        let output = history.output_bytes.map(|bytes| format!("{bytes} bytes of the output of each"));
        format!("history: {}", attempts.into_iter().chain(output).collect::<Vec<_>>().join(", "))
    });
    lines.chain(healthcheck).chain(history).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::view::sample;

    #[test]
    fn settings_and_rules_are_told_with_their_origin() {
        let shown = sample::configuration();
        insta::assert_snapshot!("config_wide", text(&shown, Screen::plain(200), None));
        for width in [40, 80, 140] {
            insta::assert_snapshot!(
                format!("config_{width}"),
                text(&shown, Screen::plain(width), Some(width))
            );
        }
        insta::assert_snapshot!("config_yaml", format::yaml(&shown));
        let mut asking = shown.clone();
        let rule = &mut asking.rules[0];
        rule.liveness.as_mut().unwrap().exec_mode = Some("session".to_owned());
        rule.healthcheck.as_mut().unwrap().exec_mode = Some("sync".to_owned());
        let wide = text(&asking, Screen::plain(200), None);
        assert!(wide.contains(", no start delay, execMode session\n"), "{wide}");
        assert!(wide.contains("healthcheck: execMode sync, on failure stop, after"), "{wide}");
        let no_rules = ConfigurationView { rules: Vec::new(), ..shown };
        assert!(!text(&no_rules, Screen::plain(200), None).contains("RULE"));
    }
}
