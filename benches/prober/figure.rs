//! A figure that criprobe has to reach, and what was found.

use crate::table::Table;

/// One figure.
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) limit: Limit,
    /// None if it could not be measured.
    pub(crate) found: Option<f64>,
    pub(crate) unit: &'static str,
}

/// What it has to be.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
    /// Shown for what it is.
    Open,
}

/// Figures as a table.
pub(crate) fn table(title: &str, figures: &[Figure]) -> Table<4> {
    let head = ["", "limit", "found", "verdict"];
    Table { title: title.to_owned(), head, rows: figures.iter().map(Figure::cells).collect() }
}

/// Whether all were reached that had to be.
pub(crate) fn are_reached(figures: &[Figure]) -> bool {
    !figures.iter().any(Figure::is_missed)
}

impl Figure {
    /// One for all that could not be measured, named by the reason.
    pub(crate) fn unmeasured(error: &anyhow::Error) -> Self {
        Self { name: format!("{error:#}"), limit: Limit::AtLeast(0.0), found: None, unit: "" }
    }

    /// Whether it has to be reached and was not; what could not be measured was not.
    fn is_missed(&self) -> bool {
        match (self.limit, self.found) {
            (Limit::Open, _) => false,
            (_, None) => true,
            (Limit::AtLeast(limit), Some(found)) => found < limit,
            (Limit::AtMost(limit), Some(found)) => found > limit,
            (Limit::Below(limit), Some(found)) => found >= limit,
        }
    }

    /// Name, limit, found, verdict.
    fn cells(&self) -> [String; 4] {
        let unit = self.unit;
        let limit = match self.limit {
            Limit::AtLeast(limit) => format!("at least {limit}{unit}"),
            Limit::AtMost(limit) => format!("at most {limit}{unit}"),
            Limit::Below(limit) => format!("below {limit}{unit}"),
            Limit::Open => String::new(),
        };
        let digits = if self.unit == " %" { 3 } else { 2 };
        let found = self.found.map_or_else(|| "-".to_owned(), |found| format!("{found:.digits$}{unit}"));
        let verdict = match (self.limit, self.found) {
            (Limit::Open, _) => "",
            (_, None) => "not measured",
            _ if self.is_missed() => "MISSED",
            _ => "ok",
        };
        [self.name.clone(), limit, found, verdict.to_owned()]
    }
}
