//! Threads that append growing numbers to lists: in pipelines, in windows of sent commands, and in
//! all ways that can be cancelled.

use std::collections::VecDeque;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use reslot::{CancelToken, Cancelled, Cmd, Pending, Result, cmd};

use crate::arena::{Arena, Excuse, Fate, PATIENCE};
use crate::blows::Span;
use crate::journal::Journal;
use crate::keys::Key;
use crate::random::Random;
use crate::tally::{Kind, Outcome};

/// How many lists a thread has at a time.
const LISTS: usize = 8;

/// When a list has so many numbers, another one is begun.
const LONGEST: usize = 400;

/// How many commands are under way at most in a window.
const WINDOW: usize = 64;

/// A thread: its lists.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    arena: &'a Arena,
    kind: Kind,
    thread: usize,
    random: Random,
    lists: Vec<Journal>,
    full: Vec<Journal>,
    made: usize,
}

/// An append under way: the list, the number, and since when.
type Sent = (Pending<usize>, usize, usize, Instant);

impl<'a> Writer<'a> {
    pub(crate) fn new(arena: &'a Arena, thread: usize, kind: Kind, random: Random) -> Self {
        let mut writer = Self {
            arena,
            kind,
            thread,
            random,
            lists: Vec::new(),
            full: Vec::new(),
            made: 0,
        };
        for _ in 0..LISTS {
            let list = writer.list();
            writer.lists.push(list);
        }
        writer
    }

    fn list(&mut self) -> Journal {
        self.made += 1;
        let name = format!("list:{}:{}", self.thread, self.made);
        Journal::new(Key::anywhere(&mut self.random, &name))
    }

    /// Writes until all is over; gives all lists.
    pub(crate) fn run(mut self) -> Vec<Journal> {
        match self.kind {
            Kind::Window => self.windows(),
            Kind::Cancel => self.cancels(),
            _ => {
                while !self.arena.is_over() {
                    let count = 1 + self.random.below(100);
                    self.pipeline(count, None);
                    self.tidy();
                }
            }
        }
        self.full.extend(self.lists);
        self.full
    }

    /// Compares a list from time to time, and replaces full ones.
    fn tidy(&mut self) {
        for at in 0..self.lists.len() {
            let is_full = self.lists[at].len() >= LONGEST;
            if is_full || self.random.chance(1) {
                check(self.arena, &self.lists[at]);
            }
            if is_full {
                let next = self.list();
                self.full.push(std::mem::replace(&mut self.lists[at], next));
            }
        }
        if self.random.chance(50) {
            std::thread::park_timeout(self.random.millis(0, 5));
        }
    }

    /// The next number of some list, and the command that appends it.
    fn next(&mut self) -> (usize, usize, Cmd) {
        let list = self.random.below(self.lists.len());
        let number = self.lists[list].begin();
        let command = cmd("RPUSH").arg(self.lists[list].key.name()).arg(number);
        (list, number, command)
    }

    fn end<T>(&mut self, at: (usize, usize), span: Span, excuse: Excuse, result: &Result<T>) {
        let (list, number) = at;
        let slot = Some(self.lists[list].key.slot());
        let fate = self.arena.fate(self.kind, span, slot, excuse, result);
        self.lists[list].end(number, fate, span);
    }

    fn pipeline(&mut self, count: usize, cancel: Option<&CancelToken>) {
        let mut pipeline = self.arena.client.pipeline();
        let mut places = Vec::with_capacity(count);
        for _ in 0..count {
            let (list, number, command) = self.next();
            pipeline.add(command);
            places.push((list, number));
        }
        let limit = match self.random.chance(4) {
            true => self.random.millis(1, 200),
            false => PATIENCE,
        };
        pipeline.timeout(limit);
        if let Some(token) = cancel {
            pipeline.cancel_token(token);
        }
        let (results, span) = self
            .arena
            .timed(self.kind, limit, || pipeline.execute().unwrap_or_default());
        if results.len() != count {
            let text = format!("{} results of {count} commands", results.len());
            self.arena.violation(&text);
        }
        let excuse = Excuse {
            short: limit < PATIENCE,
            cancel: cancel.is_some(),
            ..Excuse::default()
        };
        for (place, result) in places.into_iter().zip(results) {
            self.end(place, span, excuse, &result);
        }
    }

    fn windows(&mut self) {
        let mut sent: VecDeque<Sent> = VecDeque::new();
        while !self.arena.is_over() {
            let room = 1 + self.random.below(WINDOW);
            while sent.len() < room {
                let (list, number, command) = self.next();
                let asked = Instant::now();
                let send = || self.arena.client.send(command);
                match self.arena.timed(self.kind, PATIENCE, send) {
                    (Ok(pending), _) => sent.push_back((pending, list, number, asked)),
                    (result, span) => self.end((list, number), span, Excuse::default(), &result),
                }
            }
            let left = self.random.below(room);
            while sent.len() > left {
                if let Some(oldest) = sent.pop_front() {
                    self.wait(oldest);
                }
            }
            let full = self.lists.iter().any(|list| list.len() >= LONGEST);
            if full {
                sent.drain(..).for_each(|each| self.wait(each));
                self.tidy();
            }
        }
        sent.drain(..).for_each(|each| self.wait(each));
    }

    fn wait(&mut self, (pending, list, number, asked): Sent) {
        let limit = PATIENCE.saturating_sub(asked.elapsed());
        let mut pending = pending;
        if self.random.chance(20) {
            let part = self.random.millis(0, 4);
            let wait = || pending.wait_timeout(part);
            pending = match self.arena.timed(self.kind, part, wait) {
                (Ok(result), span) => {
                    let span = Span { asked, ..span };
                    return self.end((list, number), span, Excuse::default(), &result);
                }
                (Err(pending), _) => pending,
            };
        }
        let (result, span) = self.arena.timed(self.kind, limit, || pending.wait());
        let span = Span { asked, ..span };
        self.end((list, number), span, Excuse::default(), &result);
    }

    fn cancels(&mut self) {
        let (tokens, later) = channel::<(CancelToken, Duration)>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for (token, delay) in later {
                    std::thread::park_timeout(delay);
                    token.cancel();
                }
            });
            while !self.arena.is_over() {
                self.cancel_one(&tokens);
                self.tidy();
            }
            drop(tokens);
        });
    }

    fn cancel_one(&mut self, tokens: &Sender<(CancelToken, Duration)>) {
        let token = CancelToken::new();
        let delay = match self.random.chance(50) {
            true => self.random.millis(0, 1),
            false => self.random.millis(0, 20),
        };
        match self.random.below(6) {
            0 => {
                let _ = tokens.send((token.clone(), delay));
                self.cancel_single(&token);
            }
            1 => {
                token.cancel();
                self.cancel_single(&token);
            }
            2 => {
                let _ = tokens.send((token.clone(), delay));
                // Sometimes so large that much of it is on the wire.
                let most = if self.random.chance(5) { 3_000 } else { 300 };
                let count = 1 + self.random.below(most);
                self.pipeline(count, Some(&token));
            }
            3 => {
                let _ = tokens.send((token.clone(), delay));
                self.cancel_transaction(&token);
            }
            _ => {
                let count = 1 + self.random.below(20);
                self.cancel_pending(count, delay);
            }
        }
    }

    fn cancel_single(&mut self, token: &CancelToken) {
        let (list, number, command) = self.next();
        let was_cancelled = token.is_cancelled();
        let command = command.cancel_token(token);
        let call = || self.arena.client.query::<usize>(command);
        let (result, span) = self.arena.timed(self.kind, PATIENCE, call);
        self.end((list, number), span, CANCELLED, &result);
        let not_sent = reslot::Certainty::NotSent;
        let right = result.is_err_and(|error| error.certainty() == not_sent);
        if was_cancelled && !right {
            let text = "a call with a cancelled token was sent";
            self.arena.violation(text);
        }
    }

    /// Two numbers of one list, both or none.
    fn cancel_transaction(&mut self, token: &CancelToken) {
        let list = self.random.below(self.lists.len());
        let journal = &mut self.lists[list];
        let (one, two) = (journal.begin(), journal.begin());
        let name = journal.key.name();
        let call = || {
            self.arena.client.transaction::<(usize, usize)>(|t| {
                t.add(cmd("RPUSH").arg(name).arg(one));
                t.add(cmd("RPUSH").arg(name).arg(two));
                t.cancel_token(token);
            })
        };
        let (result, span) = self.arena.timed(self.kind, PATIENCE, call);
        self.end((list, one), span, CANCELLED, &result);
        self.end((list, two), span, CANCELLED, &result);
    }

    /// Sends some commands, waits a moment, then cancels or drops them.
    fn cancel_pending(&mut self, count: usize, delay: Duration) {
        let mut sent = Vec::new();
        for _ in 0..count {
            let (list, number, command) = self.next();
            let asked = Instant::now();
            let send = || self.arena.client.send::<usize>(command);
            match self.arena.timed(self.kind, PATIENCE, send) {
                (Ok(pending), _) => sent.push((pending, list, number, asked)),
                (result, span) => self.end((list, number), span, CANCELLED, &result),
            }
        }
        if self.random.chance(50) {
            std::thread::park_timeout(delay);
        }
        for (pending, list, number, asked) in sent {
            let (fate, outcome) = match self.random.chance(10) {
                true => {
                    drop(pending);
                    (Fate::Unknown, Outcome::CancelledUnknown)
                }
                false => match pending.cancel() {
                    Cancelled::NotSent => (Fate::Absent, Outcome::CancelledAbsent),
                    Cancelled::Unknown => (Fate::Unknown, Outcome::CancelledUnknown),
                    // It ended, nobody asked how.
                    Cancelled::AlreadySettled => (Fate::Unknown, Outcome::Ok),
                },
            };
            self.arena.tallies.count(self.kind, outcome);
            let told = Instant::now();
            self.lists[list].end(number, fate, Span { asked, told });
        }
    }
}

const CANCELLED: Excuse = Excuse {
    short: false,
    cancel: true,
    read: false,
    code: None,
};

/// Compares a list with what the servers have.
pub(crate) fn check(arena: &Arena, list: &Journal) {
    let read = || {
        let command = cmd("LRANGE").arg(list.key.name()).arg(0).arg(-1);
        arena.client.query::<Vec<usize>>(command)
    };
    let (numbers, span) = arena.timed(Kind::Single, PATIENCE, read);
    let excuse = Excuse {
        read: true,
        ..Excuse::default()
    };
    arena.fate(Kind::Single, span, Some(list.key.slot()), excuse, &numbers);
    if let Ok(numbers) = numbers {
        list.check(&numbers, arena);
    }
}
