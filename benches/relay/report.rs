//! Everything that was found, as text for a terminal of 100 columns and as Markdown.

use crate::{
    call::Call,
    figures::Figure,
    measure::{Driver, Load, Sample},
    middle::Via,
    results::Results,
    table::Table,
};

/// What the run comes to.
pub(crate) struct Report {
    pub(crate) machine: String,
    /// How it was run.
    pub(crate) settings: String,
    /// The ways that were measured, with their versions.
    pub(crate) ways: Vec<(Via, String)>,
    /// What was left out and why.
    pub(crate) left_out: Vec<String>,
    /// What was compared, a driver each.
    pub(crate) compared: Vec<(Driver, Results)>,
    pub(crate) figures: Vec<Figure>,
}

impl Report {
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n{}\n{}\n", self.machine, self.versions(), self.settings);
        for note in &self.left_out {
            text += &format!("left out: {note}\n");
        }
        for table in self.tables() {
            text += &format!("\n{}", table.text());
        }
        text + "\n" + &self.figure_table().text()
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("{}.\n\n{}.\n\n{}\n", self.machine, self.versions(), self.settings);
        for note in &self.left_out {
            text += &format!("\nLeft out: {note}\n");
        }
        for table in self.tables() {
            text += &format!("\n{}", table.markdown());
        }
        text + "\n" + &self.figure_table().markdown()
    }

    fn versions(&self) -> String {
        let versions = self.ways.iter().filter(|(_, version)| !version.is_empty());
        let versions: Vec<String> =
            versions.map(|(via, version)| format!("{} {version}", via.name())).collect();
        versions.join(", ")
    }

    fn tables(&self) -> impl Iterator<Item = Table<9>> {
        self.compared.iter().flat_map(|(driver, results)| {
            let calls = Call::MEASURED.into_iter().filter(|call| results.has(*call));
            let all = calls.flat_map(|call| Load::ALL.map(|load| (call, load)));
            all.map(|(call, load)| self.table(*driver, results, call, load))
        })
    }

    fn table(&self, driver: Driver, results: &Results, call: Call, load: Load) -> Table<9> {
        let connections = if load.connections == 1 { "connection" } else { "connections" };
        Table {
            title: format!(
                "{}, driver {}: {} {connections} x {} in flight",
                call.title(),
                driver.name(),
                load.connections,
                load.in_flight
            ),
            head: [
                "",
                "p50 us",
                "p99 us",
                "calls/s",
                "CPU us/call",
                "p50/direct",
                "p50/socat",
                "calls/direct",
                "calls/socat",
            ],
            rows: self.ways.iter().map(|(via, _)| row(results, call, load, *via)).collect(),
        }
    }

    fn figure_table(&self) -> Table<3> {
        Table {
            title: "Figures to reach".into(),
            head: ["criprobe", "found", "verdict"],
            rows: self.figures.iter().map(Figure::cells).collect(),
        }
    }
}

fn row(results: &Results, call: Call, load: Load, via: Via) -> [String; 9] {
    let figure = |digits: usize, of: fn(&Sample) -> f64| number(digits, results.median(call, load, via, of));
    let ratio = |other, of: fn(&Sample) -> f64| number(2, results.ratio(call, load, via, other, of));
    [
        via.name().into(),
        figure(1, |sample| sample.p50),
        figure(1, |sample| sample.p99),
        figure(0, |sample| sample.rate),
        number(1, results.cpu(call, load, via)),
        ratio(Via::Direct, |sample| sample.p50),
        ratio(Via::Socat, |sample| sample.p50),
        ratio(Via::Direct, |sample| sample.rate),
        ratio(Via::Socat, |sample| sample.rate),
    ]
}

fn number(digits: usize, value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
}
