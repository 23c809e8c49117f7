//! The reading thread of a node: makes connections, matches replies to written units.
//!
//! It never waits for the write loop: it takes the lock of the in-flight list for a moment, and
//! every channel that it sends to is unbounded. It alone declares a connection lost, so no reply
//! can arrive after that was said.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, select};

use super::clock;
use super::dial::{Dialer, Open};
use super::notices::Notices;
use super::transport::{ReadHalf, is_slice, is_stopped};
use super::wire::{NodeMessage, Wire};
use crate::proto::backoff::{Backoff, Random};
use crate::proto::cluster::{Event, NodeKey};
use crate::proto::redirect::Redirect;
use crate::proto::resp::decode::{Decoder, Frame};
use crate::proto::verdict::{Answer, Reply};
use crate::reply::Settler;

/// Pauses between attempts to connect.
const RECONNECT: Backoff = Backoff {
    first: Duration::from_millis(20),
    most: Duration::from_secs(1),
};

/// A connection that ends sooner counts as a failed attempt: the node is not well.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// What the reading thread owns.
pub(super) struct Reader {
    pub(super) key: NodeKey,
    pub(super) wire: Arc<Wire>,
    pub(super) dialer: Arc<Dialer>,
    pub(super) inbox: Sender<NodeMessage>,
    pub(super) events: Sender<Event<Settler>>,
    /// A first unit came: connect.
    pub(super) orders: Receiver<()>,
    /// Disconnected when the node ends.
    pub(super) stop: Receiver<()>,
    /// `None` if announcements are not asked for.
    pub(super) notices: Option<Notices>,
}

/// Whatever ends the thread, a panic included: its write loop must not wait for it for ever.
impl Drop for Reader {
    fn drop(&mut self) {
        self.tell(NodeMessage::ReaderEnded);
    }
}

impl Reader {
    /// Keeps one connection at a time until it is stopped.
    pub(super) fn run(self, on_demand: bool) {
        if on_demand && !self.await_order() {
            return;
        }
        let mut random = Random::new(clock::seed());
        let (mut failures, mut generation, mut successor) = (0, 0, None);
        loop {
            let made = successor.take().map(Ok);
            match made.unwrap_or_else(|| self.dialer.open_shared(&self.wire.addr, &self.stop)) {
                Ok(open) => {
                    failures = if self.serve(open, &mut generation) {
                        0
                    } else {
                        failures + 1
                    };
                }
                Err(error) => {
                    log::warn!("node {}: cannot connect: {error}", self.wire.addr);
                    failures += 1;
                }
            }
            if is_stopped(&self.stop, Duration::ZERO) {
                return;
            }
            let notices = self.notices.as_ref();
            successor = notices.and_then(|notices| notices.successor(generation));
            if successor.is_some() {
                continue;
            }
            self.report(Event::NodeDown { node: self.key });
            if failures > 0 && is_stopped(&self.stop, RECONNECT.pause(failures, &mut random)) {
                return;
            }
        }
    }

    fn await_order(&self) -> bool {
        select! {
            recv(self.orders) -> order => order.is_ok(),
            recv(self.stop) -> _ => false,
        }
    }

    /// Reads until the connection ends. `true` if it lived long enough to be called well.
    fn serve(&self, open: Open, generation: &mut u64) -> bool {
        let begun = clock::now();
        *generation += 1;
        self.wire.stats.connects.fetch_add(1, Ordering::Relaxed);
        let Open {
            connection,
            decoder,
            pushes,
        } = open;
        let write = connection.write;
        self.tell(NodeMessage::Connected {
            generation: *generation,
            write,
        });
        self.report(Event::NodeUp { node: self.key });
        if let Some(notices) = &self.notices {
            notices.connected(*generation, &pushes);
        }
        let why = self.read(connection.read, decoder, *generation);
        log::info!("node {}: connection ended: {why}", self.wire.addr);
        self.tell(NodeMessage::Lost {
            generation: *generation,
        });
        clock::now() >= begun + SHORT_LIFE
    }

    fn read(&self, mut stream: Box<dyn ReadHalf>, mut decoder: Decoder, generation: u64) -> String {
        let mut replies = VecDeque::new();
        let mut answers = Vec::new();
        loop {
            loop {
                match decoder.next_frame() {
                    Ok(Some(Frame::Reply(reply))) => replies.push_back(reply),
                    Ok(Some(Frame::Push(push))) => {
                        if let Some(notices) = &self.notices {
                            notices.hear(&push, generation);
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        // What came before the fault is good.
                        self.take(&mut replies, &mut answers, generation).ok();
                        return error.to_string();
                    }
                }
            }
            if let Err(why) = self.take(&mut replies, &mut answers, generation) {
                return why.to_owned();
            }
            match stream.read(decoder.spare()) {
                Ok(0) => return "closed by the server".to_owned(),
                Ok(count) => {
                    self.wire
                        .stats
                        .bytes_in
                        .fetch_add(count as u64, Ordering::Relaxed);
                    decoder.filled(count);
                }
                Err(error) if is_slice(&error) => {}
                Err(error) => return error.to_string(),
            }
        }
    }

    /// Hands replies to their units.
    fn take(
        &self,
        replies: &mut VecDeque<Reply>,
        answers: &mut Vec<Answer<Settler>>,
        generation: u64,
    ) -> Result<(), &'static str> {
        if replies.is_empty() {
            return Ok(());
        }
        let mut wire = self.wire.state.lock();
        let result = wire.inflight.accept(replies, answers);
        // Under the lock, although it is a send: whoever asks for a barrier from now on must find
        // these reported before the barrier is.
        let mut settled = Vec::with_capacity(answers.len());
        for answer in answers.drain(..) {
            match answer {
                Answer::Settled(..) | Answer::Run(..) => settled.push(answer),
                _ => self.pass_on(answer, generation),
            }
        }
        for id in wire.inflight.cleared() {
            self.report(Event::Cleared { id });
        }
        self.wire.load.set_sent(wire.sent());
        let idle = wire.tell_when_idle && wire.inflight.is_empty();
        drop(wire);
        if idle {
            self.tell(NodeMessage::Idle);
        }
        for answer in settled {
            self.settle(answer);
        }
        result
    }

    /// Reports an answer that is for the coordinator.
    fn pass_on(&self, answer: Answer<Settler>, generation: u64) {
        let from = self.key;
        match answer {
            Answer::Redirected(unit, redirect) => {
                self.count(&redirect);
                self.report(Event::Redirected {
                    from,
                    generation,
                    unit,
                    redirect,
                });
            }
            Answer::Learned(redirect) => {
                self.count(&redirect);
                self.report(Event::Learned { from, redirect });
            }
            Answer::Confused => self.report(Event::Confused { from }),
            Answer::Settled(..) | Answer::Run(..) => self.settle(answer),
        }
    }

    fn settle(&self, answer: Answer<Settler>) {
        match answer {
            Answer::Settled(ticket, outcome) => {
                self.wire.stats.settled(&outcome);
                ticket.settle(outcome);
            }
            Answer::Run(ticket, outcomes) => {
                outcomes
                    .iter()
                    .for_each(|outcome| self.wire.stats.settled(outcome));
                ticket.settle_run(outcomes);
            }
            Answer::Redirected(..) | Answer::Learned(_) | Answer::Confused => {}
        }
    }

    fn count(&self, redirect: &Redirect) {
        let stats = &self.wire.stats;
        let counter = match redirect {
            Redirect::Moved(..) => &stats.moved,
            Redirect::Ask(..) => &stats.ask,
            Redirect::TryAgain => &stats.tryagain,
            _ => &stats.not_serving,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn tell(&self, message: NodeMessage) {
        // The write loop ends after this thread, so it always hears.
        drop(self.inbox.send(message));
    }

    fn report(&self, event: Event<Settler>) {
        // Without a coordinator nobody waits for what is dropped here.
        drop(self.events.send(event));
    }
}
