//! Collects the findings for one file, up to a bound, and sorts them.

use crate::{
    document::{Place, fault::FieldError},
    report::view::{Finding, Grade},
};

/// 1,000: the most findings that are reported for one file. The rest are counted, and reported as one more.
const MAX_FINDINGS: usize = 1_000;

/// What is wrong with one file.
#[derive(Debug, Default)]
pub(super) struct Findings {
    found: Vec<Finding>,
    omitted: usize,
}

impl Findings {
    /// A node would not do what is written.
    pub(super) fn error(&mut self, place: Option<Place>, message: impl Into<String>) {
        self.add(Grade::Error, place, message.into());
    }

    /// It would, but that is hardly what was meant.
    pub(super) fn warning(&mut self, place: Option<Place>, message: impl Into<String>) {
        self.add(Grade::Warning, place, message.into());
    }

    /// Errors in fields, whose paths say where they are; without a place of their own they take that of the whole.
    pub(super) fn fields(&mut self, errors: &[FieldError], whole: Option<Place>) {
        for error in errors {
            self.error(error.place.or(whole), error.to_string());
        }
    }

    fn add(&mut self, severity: Grade, place: Option<Place>, message: String) {
        let (line, column) = (place.map(|place| place.line), place.map(|place| place.column));
        let finding = Finding { severity, line, column, message };
        match () {
            () if self.found.contains(&finding) => {}
            () if self.found.len() < MAX_FINDINGS => self.found.push(finding),
            () => self.omitted += 1,
        }
    }

    /// In the order of their places.
    pub(super) fn into_sorted(mut self) -> Vec<Finding> {
        self.found.sort_by_key(|finding| (finding.line, finding.column));
        if self.omitted > 0 {
            let message = format!("and {} more findings: fix these first", self.omitted);
            self.found.push(Finding { severity: Grade::Error, line: None, column: None, message });
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_come_in_order_once_each_and_are_bounded() {
        let mut findings = Findings::default();
        for line in (1..=1_002).rev() {
            findings.warning(Some(Place { line, column: 1 }), "x");
            findings.warning(Some(Place { line: 1_002, column: 1 }), "x");
        }
        let sorted = findings.into_sorted();
        assert_eq!((sorted.len(), sorted[0].line, sorted[999].line), (1_001, Some(3), Some(1_002)));
        assert_eq!(sorted[1_000].message, "and 2 more findings: fix these first");
    }
}
