//! Rows that compare clients: each measured in turn, round by round, of which the medians count.

use std::collections::HashMap;

use crate::contender::{Contender, Session};
use crate::keys::{Keys, Size};
use crate::measure::{How, Load, Measured, measure};
use crate::options::Options;
use crate::table::{Line, Table, median, verdict};

/// The clients' connections, by client: one session per thread.
pub(crate) type Sessions = HashMap<Contender, Vec<Box<dyn Session>>>;

/// One row of a table.
pub(crate) struct Row {
    /// What it is.
    pub(crate) what: &'static str,
    /// The part it belongs to.
    pub(crate) part: &'static str,
    /// How many threads.
    pub(crate) threads: usize,
    /// Commands at once.
    pub(crate) batch: usize,
    /// How they go together.
    pub(crate) how: How<'static>,
    /// Which keys are used.
    pub(crate) size: Size,
    /// What reslot must reach: so many times the speed of another client.
    pub(crate) targets: &'static [(f64, Contender)],
}

/// What all rows have in common.
pub(crate) const ROW: Row = Row {
    what: "",
    part: "",
    threads: 1,
    batch: 1,
    how: How::Read,
    size: Size::Small,
    targets: &[],
};

/// Measures the rows, prints speed and CPU time, and returns the table of the speeds. A client
/// without sessions enough for a row is left out of it.
pub(crate) fn compare(
    options: &Options,
    title: &str,
    rows: &[&Row],
    sessions: &mut Sessions,
    keys: &Keys,
) -> Table {
    let mut results: HashMap<(usize, Contender), Vec<Measured>> = HashMap::new();
    for round in 1..=options.rounds {
        eprintln!("{title}: round {round} of {}", options.rounds);
        for (at, row) in rows.iter().enumerate() {
            for &contender in &options.only {
                let own = sessions.get_mut(&contender);
                let Some(own) = own.and_then(|own| own.get_mut(..row.threads)) else {
                    continue;
                };
                let measured = results.entry((at, contender)).or_default();
                if measured.iter().all(|before| !before.rate.is_nan()) {
                    measured.push(row.measure(contender, own, keys, options));
                }
            }
        }
    }
    let medians = |of: fn(&Measured) -> f64| -> Vec<Vec<Option<f64>>> {
        let cell = |at, contender| {
            let measured: &Vec<Measured> = results.get(&(at, contender))?;
            Some(median(&measured.iter().map(of).collect::<Vec<_>>()))
        };
        let line = |at| options.only.iter().map(move |&who| cell(at, who)).collect();
        (0..rows.len()).map(line).collect()
    };
    let table = |title: String, cells: Vec<Vec<Option<f64>>>, judge: bool| {
        let line = |(row, cells): (&&Row, Vec<_>)| Line {
            what: row.what.to_owned(),
            verdict: match judge {
                true => row.verdict(&options.only, &cells),
                false => String::new(),
            },
            cells,
        };
        Table {
            title,
            clients: options.only.clone(),
            rows: rows.iter().zip(cells).map(line).collect(),
        }
    };
    let speeds = table(
        format!("{title}, commands/s"),
        medians(|measured| measured.rate),
        true,
    );
    speeds.print(0);
    let cpu = medians(|measured| measured.cpu * 1e6);
    table(format!("{title}, client CPU µs per command"), cpu, false).print(2);
    speeds
}

impl Row {
    /// One measurement. A failure is told and marked, so that it does not end a long run.
    fn measure(
        &self,
        contender: Contender,
        sessions: &mut [Box<dyn Session>],
        keys: &Keys,
        options: &Options,
    ) -> Measured {
        let load = Load {
            keys: keys.of(self.size),
            batch: self.batch,
            how: self.how,
            length: options.length,
        };
        measure(sessions, load).unwrap_or_else(|error| {
            eprintln!("{}: {}: {error}", contender.name(), self.what);
            let (rate, cpu) = (f64::NAN, f64::NAN);
            Measured { rate, cpu }
        })
    }

    fn verdict(&self, clients: &[Contender], cells: &[Option<f64>]) -> String {
        let cell = |wanted| {
            let at = clients.iter().position(|&client| client == wanted)?;
            cells[at]
        };
        let judge = |&(target, other): &(f64, Contender)| {
            let ratio = cell(Contender::Reslot)? / cell(other)?;
            let (name, verdict) = (other.name(), verdict(ratio >= target));
            Some(format!("{ratio:.2} × {name} (≥ {target}: {verdict})"))
        };
        let judged: Vec<String> = self.targets.iter().filter_map(judge).collect();
        judged.join(", ")
    }
}
