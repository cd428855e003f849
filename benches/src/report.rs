//! Collects figures and notes and shows them: a table for people, JSON for machines.

use std::fmt::Write;

use serde_json::{Value, json};

/// The bound a figure has to keep.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl Limit {
    fn value(self) -> f64 {
        match self {
            Self::AtLeast(value) | Self::AtMost(value) => value,
        }
    }

    fn is_kept_by(self, measured: f64) -> bool {
        match self {
            Self::AtLeast(value) => measured >= value,
            Self::AtMost(value) => measured <= value,
        }
    }

    fn sign(self) -> &'static str {
        match self {
            Self::AtLeast(_) => ">=",
            Self::AtMost(_) => "<=",
        }
    }
}

struct Figure {
    name: String,
    measured: f64,
    unit: &'static str,
    limit: Limit,
}

struct Note {
    name: String,
    text: String,
}

#[derive(Default)]
pub(crate) struct Report {
    figures: Vec<Figure>,
    notes: Vec<Note>,
}

impl Report {
    pub(crate) fn figure(&mut self, name: &str, measured: f64, unit: &'static str, limit: Limit) {
        self.figures.push(Figure { name: name.to_owned(), measured, unit, limit });
    }

    /// Something worth knowing that has no limit. It is shown at once: a whole run takes minutes.
    pub(crate) fn note(&mut self, name: &str, text: String) {
        println!("{name}: {text}");
        self.notes.push(Note { name: name.to_owned(), text });
    }

    pub(crate) fn missed(&self) -> usize {
        self.figures.iter().filter(|figure| !figure.limit.is_kept_by(figure.measured)).count()
    }

    pub(crate) fn table(&self) -> String {
        let mut rows = vec![["figure", "measured", "limit", "of limit", ""].map(str::to_owned)];
        for figure in &self.figures {
            rows.push(row(figure));
        }
        let mut widths = [0; 5];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut table = String::new();
        for row in &rows {
            let [name, measured, limit, share, verdict] = row;
            let [name_width, measured_width, limit_width, share_width, _] = widths;
            writeln!(
                table,
                "{name:name_width$}  {measured:>measured_width$}  {limit:>limit_width$}  \
                 {share:>share_width$}  {verdict}"
            )
            .expect("writing to memory does not fail");
        }
        table
    }

    pub(crate) fn json(&self) -> Value {
        let figures: Vec<_> = self
            .figures
            .iter()
            .map(|figure| {
                json!({
                    "name": figure.name,
                    "measured": figure.measured,
                    "unit": figure.unit,
                    "limit": figure.limit.value(),
                    "limitKind": figure.limit.sign(),
                    "ok": figure.limit.is_kept_by(figure.measured),
                })
            })
            .collect();
        let notes: Vec<_> = self.notes.iter().map(|note| json!({"name": note.name, "text": note.text})).collect();
        json!({"figures": figures, "notes": notes})
    }
}

fn row(figure: &Figure) -> [String; 5] {
    let Figure { name, measured, unit, limit } = figure;
    let bound = limit.value();
    let share = if bound > 0.0 { format!("{:.2}", measured / bound) } else { "-".to_owned() };
    let verdict = if limit.is_kept_by(*measured) { "ok" } else { "MISS" };
    [
        name.clone(),
        with_unit(*measured, unit),
        format!("{} {}", limit.sign(), with_unit(bound, unit)),
        share,
        verdict.to_owned(),
    ]
}

fn with_unit(value: f64, unit: &str) -> String {
    // Three significant digits are more than the noise of a run allows.
    let decimals = if value.abs() < 10.0 {
        2
    } else if value.abs() < 100.0 {
        1
    } else {
        0
    };
    // Whole numbers such as counts and most limits are shown as such.
    let decimals = if value.fract() == 0.0 { 0 } else { decimals };
    format!("{value:.decimals$} {unit}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_limit_is_called_a_miss_in_both_directions() {
        let mut report = Report::default();
        report.figure("slow", 0.5, "x", Limit::AtLeast(0.55));
        report.figure("fat", 151.0, "MiB", Limit::AtMost(150.0));
        report.figure("exact", 150.0, "MiB", Limit::AtMost(150.0));

        let table = report.table();

        assert_eq!(report.missed(), 2);
        assert_eq!(table.matches("MISS").count(), 2);
        assert!(table.contains(">= 0.55 x"), "{table}");
    }

    #[test]
    fn a_measurement_that_is_not_a_number_is_a_miss() {
        let mut report = Report::default();
        report.figure("broken", f64::NAN, "", Limit::AtLeast(0.0));

        assert_eq!(report.missed(), 1);
    }
}
