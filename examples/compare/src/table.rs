//! Results by row and client, as Markdown.

use crate::contender::Contender;

/// Numbers by row and client.
#[derive(Debug)]
pub(crate) struct Table {
    /// What the numbers are.
    pub(crate) title: String,
    /// Whose they are.
    pub(crate) clients: Vec<Contender>,
    /// The rows.
    pub(crate) rows: Vec<Line>,
}

/// One row.
#[derive(Debug)]
pub(crate) struct Line {
    /// What was measured.
    pub(crate) what: String,
    /// A number for each client. None if it was not measured, not a number if it failed.
    pub(crate) cells: Vec<Option<f64>>,
    /// How reslot did; empty if nothing is demanded.
    pub(crate) verdict: String,
}

impl Table {
    /// Prints it, with so many decimals.
    pub(crate) fn print(&self, decimals: usize) {
        let judged = self.rows.iter().any(|row| !row.verdict.is_empty());
        print!("\n| {} |", self.title);
        for client in &self.clients {
            print!(" {} |", client.name());
        }
        let columns = self.clients.len() + usize::from(judged);
        println!("{}", if judged { " targets |" } else { "" });
        println!("|---|{}", "---|".repeat(columns));
        for row in &self.rows {
            print!("| {} |", row.what);
            for cell in &row.cells {
                print!(" {} |", number(*cell, decimals));
            }
            if judged {
                print!(" {} |", row.verdict);
            }
            println!();
        }
    }
}

/// A cell's text.
pub(crate) fn number(cell: Option<f64>, decimals: usize) -> String {
    match cell {
        None => "–".into(),
        Some(value) if value.is_nan() => "failed".into(),
        Some(value) => format!("{value:.decimals$}"),
    }
}

/// The middle value; not a number if one of them is none, or if there are none.
pub(crate) fn median(values: &[f64]) -> f64 {
    if values.iter().any(|value| value.is_nan()) {
        return f64::NAN;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The word for a result.
pub(crate) fn verdict(pass: bool) -> &'static str {
    if pass { "pass" } else { "miss" }
}
