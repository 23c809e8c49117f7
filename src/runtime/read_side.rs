//! The reading side of a node: the present connection to read from, and what it brought so far.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::clock;
use super::records::{NodeMessage, Records};
use super::transport::{Look, ReadHalf, is_slice};
use crate::proto::cluster::Event;
use crate::proto::maintenance::{Moving, Notice};
use crate::proto::redirect::Redirect;
use crate::proto::resp::decode::Decoder;
use crate::proto::value::Value;
use crate::proto::verdict::{Answer, Reply};
use crate::reply::{Home, Settler};

/// How long a read blocks while callers may want to read by themselves.
const READ_SLICE: Duration = Duration::from_millis(10);

/// Whoever holds this is the only one who reads.
#[derive(Default)]
pub(crate) struct ReadSide {
    link: Option<Link>,
    replies: VecDeque<Reply>,
    answers: Vec<Answer<Settler>>,
    /// Of those, what is settled after the lock is released.
    settled: Vec<Answer<Settler>>,
    /// Why the connection is over; told to the write loop by the reading thread.
    fault: Option<String>,
    /// The last replies belonged to one unit and left nothing on the wire: perhaps its caller
    /// comes back and reads by itself.
    pub(super) was_solo: bool,
}

struct Link {
    stream: Box<dyn ReadHalf>,
    decoder: Decoder,
    generation: u64,
    /// Reads block for ever, not for a slice.
    patient: bool,
    /// It is to be replaced; the reading thread takes care of that.
    moving: Option<Moving>,
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Something.
    Bytes,
    /// Nothing within the slice.
    Silence,
    /// The end of the connection.
    End,
}

impl ReadSide {
    /// Begins a connection.
    pub(super) fn open(
        &mut self,
        mut stream: Box<dyn ReadHalf>,
        decoder: Decoder,
        generation: u64,
    ) -> io::Result<()> {
        stream.set_timeout(Some(READ_SLICE))?;
        self.link = Some(Link {
            stream,
            decoder,
            generation,
            patient: false,
            moving: None,
        });
        (self.fault, self.was_solo) = (None, false);
        Ok(())
    }

    /// Closes the reading half for good.
    pub(super) fn close(&mut self) {
        self.link = None;
        self.replies.clear();
    }

    /// What was pushed during the handshake.
    pub(super) fn hear(&mut self, pushes: &[Vec<Value>], records: &Records) {
        if let Some(link) = &mut self.link {
            pushes.iter().for_each(|push| link.hear(push, records));
        }
    }

    /// Whether the connection is to be replaced, and its number; told once.
    pub(super) fn take_moving(&mut self) -> Option<(Moving, u64)> {
        let link = self.link.as_mut()?;
        Some((link.moving.take()?, link.generation))
    }

    /// Whether this connection is left to a lone caller that may come back and read by itself: not
    /// if something has come that nobody else looks at, such as its end.
    pub(super) fn is_left_to_callers(&mut self) -> bool {
        let link = self.link.as_mut().filter(|_| self.was_solo);
        link.is_some_and(|link| link.stream.look() == Look::Quiet)
    }

    /// Why the connection is over, if it is.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Lets reads block for ever, or for a slice.
    pub(super) fn set_patient(&mut self, patient: bool) {
        let Some(link) = &mut self.link else { return };
        if link.patient != patient {
            let timeout = if patient { None } else { Some(READ_SLICE) };
            match link.stream.set_timeout(timeout) {
                Ok(()) => link.patient = patient,
                Err(error) => self.fault = Some(error.to_string()),
            }
        }
    }

    /// Reads once and hands on what came. After the end of the connection nothing more comes.
    pub(super) fn read(&mut self, records: &Records) -> Progress {
        let Some(link) = self.link.as_mut().filter(|_| self.fault.is_none()) else {
            return Progress::End;
        };
        match link.stream.read(link.decoder.spare()) {
            Ok(0) => self.fault = Some("closed by the server".to_owned()),
            Ok(count) => {
                records
                    .stats
                    .bytes_in
                    .fetch_add(count as u64, Ordering::Relaxed);
                link.decoder.filled(count);
                self.digest(records);
            }
            Err(error) if is_slice(&error) => return Progress::Silence,
            Err(error) => self.fault = Some(error.to_string()),
        }
        if self.fault.is_some() {
            Progress::End
        } else {
            Progress::Bytes
        }
    }

    /// Hands on what was received and is complete.
    pub(super) fn digest(&mut self, records: &Records) {
        let Some(link) = &mut self.link else { return };
        let generation = link.generation;
        let fault = loop {
            match link.decoder.take_replies(&mut self.replies) {
                Ok(Some(push)) => link.hear(&push, records),
                Ok(None) => break None,
                // What came before the fault is good.
                Err(error) => break Some(error.to_string()),
            }
        };
        let taken = self.take(records, generation);
        self.fault = fault.or(taken.err().map(str::to_owned));
    }

    /// Hands replies to their units.
    fn take(&mut self, records: &Records, generation: u64) -> Result<(), &'static str> {
        if self.replies.is_empty() {
            return Ok(());
        }
        let mut state = records.state.lock();
        let result = state.inflight.accept(&mut self.replies, &mut self.answers);
        // Under the lock, although it is a send: whoever asks for a barrier from now on must find
        // these reported before the barrier is.
        for answer in self.answers.drain(..) {
            match answer {
                Answer::Settled(..) | Answer::Run(..) => self.settled.push(answer),
                _ => pass_on(records, answer, generation),
            }
        }
        records.report_cleared(&mut state);
        records.load.set_sent(state.sent());
        let is_empty = state.inflight.is_empty();
        let tell = state.tell_when_idle && is_empty;
        drop(state);
        if tell {
            records.tell(NodeMessage::Idle);
        }
        self.was_solo = is_empty && self.settled.len() <= 1;
        for answer in self.settled.drain(..) {
            settle(records, answer);
        }
        result
    }
}

impl Link {
    /// Notes an announcement, and passes it on.
    fn hear(&mut self, push: &[Value], records: &Records) {
        let Some(relax) = &records.relax else { return };
        let Some(notice) = Notice::parse(push) else {
            return;
        };
        log::info!("node {}: announced: {notice}", records.addr);
        relax.hear(records.key, &records.addr, &notice, clock::now());
        if let Notice::Moving(moving) = &notice {
            self.moving = Some(moving.clone());
            records.rest.call();
        }
        let from = records.key;
        records.report(Event::Announced { from, notice });
    }
}

/// Reports an answer that is for the coordinator.
fn pass_on(records: &Records, answer: Answer<Settler>, generation: u64) {
    let from = records.key;
    match answer {
        Answer::Redirected(unit, redirect) => {
            count(records, &redirect);
            unit.ticket.set_home(Home::Coordinator);
            records.report(Event::Redirected {
                from,
                generation,
                unit,
                redirect,
            });
        }
        Answer::Learned(redirect) => {
            count(records, &redirect);
            records.report(Event::Learned { from, redirect });
        }
        Answer::Confused => records.report(Event::Confused { from }),
        Answer::Settled(..) | Answer::Run(..) => settle(records, answer),
    }
}

fn settle(records: &Records, answer: Answer<Settler>) {
    match answer {
        Answer::Settled(ticket, outcome) => records.settle(ticket, outcome),
        Answer::Run(ticket, outcomes) => {
            records.stats.settled_run(&outcomes);
            ticket.settle_run(outcomes);
        }
        Answer::Redirected(..) | Answer::Learned(_) | Answer::Confused => {}
    }
}

fn count(records: &Records, redirect: &Redirect) {
    let counter = match redirect {
        Redirect::Moved(..) => &records.stats.moved,
        Redirect::Ask(..) => &records.stats.ask,
        Redirect::TryAgain => &records.stats.tryagain,
        _ => &records.stats.not_serving,
    };
    counter.fetch_add(1, Ordering::Relaxed);
}
