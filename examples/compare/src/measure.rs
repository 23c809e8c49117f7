//! One measurement: threads that run the same for a while.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::choice::Choice;
use crate::contender::{Answer, Failure, Session, Work};
use crate::usage;

/// What each thread runs.
#[derive(Clone, Copy)]
pub(crate) struct Load<'a> {
    /// Which keys.
    pub(crate) keys: &'a [String],
    /// Commands at once.
    pub(crate) batch: usize,
    /// How they go together.
    pub(crate) how: How<'a>,
    /// How long.
    pub(crate) length: Duration,
}

/// How the commands of a batch go together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How<'a> {
    /// `GET`, as a pipeline if there are several.
    Read,
    /// `SET` to this value, as a pipeline if there are several.
    Write(&'a [u8]),
    /// `GET`, each handed over by itself, then all waited for.
    Send,
    /// `GET`, as a transaction.
    Transact,
}

/// What came out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Commands per second, of all threads together.
    pub(crate) rate: f64,
    /// Seconds of CPU that this process used for a command.
    pub(crate) cpu: f64,
}

/// Runs all sessions, each on a thread of its own.
pub(crate) fn measure(
    sessions: &mut [Box<dyn Session>],
    load: Load<'_>,
) -> Result<Measured, Failure> {
    let start = Barrier::new(sessions.len());
    let before = usage::cpu();
    let ran: Result<Vec<(usize, f64)>, Failure> = thread::scope(|scope| {
        let mut running = Vec::new();
        for (number, session) in sessions.iter_mut().enumerate() {
            let start = &start;
            running.push(scope.spawn(move || {
                let mut choice = Choice::new(load.keys, number);
                start.wait();
                let (begin, mut count) = (Instant::now(), 0);
                while begin.elapsed() < load.length {
                    load.run(session.as_mut(), &mut choice)?;
                    count += load.batch;
                }
                Ok((count, count as f64 / begin.elapsed().as_secs_f64()))
            }));
        }
        let results = running.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        results.collect()
    });
    let (ran, used) = (ran?, usage::cpu() - before);
    let count: usize = ran.iter().map(|(count, _)| count).sum();
    Ok(Measured {
        rate: ran.iter().map(|(_, rate)| rate).sum(),
        cpu: used.as_secs_f64() / count as f64,
    })
}

impl Load<'_> {
    fn run(&self, session: &mut dyn Session, choice: &mut Choice<'_>) -> Answer {
        let value = match self.how {
            How::Read => None,
            How::Write(value) => Some(value),
            How::Send => return session.send(choice.next(self.batch), None),
            How::Transact => return session.transact(choice.repeat(self.batch)),
        };
        let keys = choice.next(self.batch);
        session.run(Work { keys, value })
    }
}
