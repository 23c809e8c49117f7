//! Bytes to replies: incremental, without recursion, in bounded memory.

use std::collections::VecDeque;

use super::body::{LARGE, LargeBody};
use super::fault::{ProtocolError, ReplyLimit};
use super::input::Input;
use super::level::{Closed, Level};
use super::token::{Aggregate, Text, Token};
use crate::proto::limits;
use crate::proto::value::Value;

/// What the server sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Frame {
    /// The reply to a command. One that exceeds a limit was read past, and its place is taken by
    /// the limit, so that each later command still gets its own reply.
    Reply(Result<Value, ReplyLimit>),
    /// Data that was pushed, and that answers no command.
    Push(Vec<Value>),
}

/// How large a reply may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecodeLimits {
    /// Aggregates inside each other.
    pub(crate) depth: usize,
    /// Bytes of one string.
    pub(crate) bulk_bytes: usize,
    /// Elements of one reply, over all levels. Keys and values of maps count each.
    pub(crate) elements: usize,
    /// Bytes of one reply as they arrive, over all levels; attributes do not count.
    pub(crate) reply_bytes: usize,
    /// Bytes of a line. A longer one is not RESP.
    pub(crate) line_bytes: usize,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self {
            depth: limits::REPLY_DEPTH,
            bulk_bytes: limits::BULK_BYTES,
            elements: limits::REPLY_ELEMENTS,
            reply_bytes: limits::REPLY_BYTES,
            line_bytes: limits::LINE_BYTES,
        }
    }
}

/// Splits what a server sends into frames.
///
/// Order of calls, in a loop: [`spare`](Self::spare), a read into it, [`filled`](Self::filled),
/// and [`next_frame`](Self::next_frame) until there is none. Memory is taken for what has arrived,
/// never for what a header announces, and what a limit forbids is not kept at all.
pub(crate) struct Decoder {
    limits: DecodeLimits,
    input: Input,
    /// What the next bytes are.
    stage: Stage,
    /// The aggregates around the next value, outermost first. Empty while `skip` reads past a
    /// reply that exceeds a limit; kept while it reads past an attribute.
    stack: Vec<Level>,
    /// Values that the present frame announced so far, over all levels.
    announced: u64,
    /// Bytes of the present frame so far, those of a string from its header on.
    bytes: u64,
    /// What is being read past, if anything.
    skip: Option<Skip>,
    /// The error that ended the stream; it is returned for ever.
    failed: Option<ProtocolError>,
}

/// What the next bytes are.
enum Stage {
    /// A line.
    Line,
    /// A string of this length and its line end.
    String(Text, usize),
    /// The rest of a large string, which goes to its own buffer. `input` is empty meanwhile.
    Large(Text, LargeBody),
    /// This many bytes of a string that is not kept, then its line end.
    Discard(u64),
}

/// Bytes that end a line and a string.
const LINE_END: u64 = 2;

/// Values that are read past. A count suffices, as their nesting does not matter.
#[derive(Default)]
struct Skip {
    /// How many values are still to come.
    left: u64,
    /// What to put in their place: nothing for an attribute or a push.
    then: Option<ReplyLimit>,
}

impl Decoder {
    pub(crate) fn new(limits: DecodeLimits) -> Self {
        Self {
            limits,
            input: Input::default(),
            stage: Stage::Line,
            stack: Vec::new(),
            announced: 0,
            bytes: 0,
            skip: None,
            failed: None,
        }
    }

    /// Limits the bytes of each reply that begins from now on.
    pub(crate) fn limit_reply_bytes(&mut self, bytes: usize) {
        self.limits.reply_bytes = bytes;
    }

    /// Where the next read should go; never empty if there is no frame left to take.
    pub(crate) fn spare(&mut self) -> &mut [u8] {
        match &mut self.stage {
            Stage::Large(_, body) => body.spare(),
            _ => self.input.spare(),
        }
    }

    /// Tells that a read put `count` bytes at the beginning of what `spare` gave.
    pub(crate) fn filled(&mut self, count: usize) {
        match &mut self.stage {
            Stage::Large(_, body) => body.filled(count),
            _ => self.input.filled(count),
        }
    }

    /// The next frame, if all of it has been received.
    ///
    /// An error is final: the same one is returned from then on.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, ProtocolError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = self.advance();
        if let Err(error) = result {
            self.stack = Vec::new();
            self.stage = Stage::Line;
            self.failed = Some(error);
        }
        result
    }

    /// Takes all replies that have been received, up to the next push, which is returned.
    ///
    /// An error is final: the same one is returned from then on.
    pub(crate) fn take_replies(
        &mut self,
        replies: &mut VecDeque<Result<Value, ReplyLimit>>,
    ) -> Result<Option<Vec<Value>>, ProtocolError> {
        loop {
            while let Some(string) = self.whole_reply() {
                replies.push_back(Ok(string));
            }
            match self.next_frame()? {
                Some(Frame::Reply(reply)) => replies.push_back(reply),
                Some(Frame::Push(push)) => return Ok(Some(push)),
                None => return Ok(None),
            }
        }
    }

    /// The next reply, if it is a string that has arrived as a whole.
    #[inline]
    fn whole_reply(&mut self) -> Option<Value> {
        let begins = matches!(self.stage, Stage::Line) && self.stack.is_empty();
        (begins && self.failed.is_none())
            .then(|| self.whole_string())
            .flatten()
    }

    fn advance(&mut self) -> Result<Option<Frame>, ProtocolError> {
        loop {
            let frame = match self.stage {
                Stage::Line => {
                    if let Some(string) = self.whole_string() {
                        if let Some(frame) = self.put(string) {
                            return Ok(Some(frame));
                        }
                        continue;
                    }
                    if let Some(&kind) = self.input.unused().first() {
                        Token::check_kind(kind)?;
                    }
                    let Some(line) = self.input.line(self.limits.line_bytes)? else {
                        return Ok(None);
                    };
                    if self.skip.is_none() {
                        let before = if self.stack.is_empty() { 0 } else { self.bytes };
                        self.bytes = before + line.len() as u64 + LINE_END;
                    }
                    match Token::parse(line)? {
                        Token::Scalar(_) if self.skip.is_some() => self.skipped_value(),
                        Token::Scalar(_) if self.bytes > self.limits.reply_bytes as u64 => {
                            self.give_up(ReplyLimit::Bytes, false);
                            self.skipped_value()
                        }
                        Token::Scalar(scalar) => {
                            let value = scalar.into_value();
                            self.put(value)
                        }
                        Token::Text(text, len) => {
                            self.on_text(text, len);
                            None
                        }
                        Token::Aggregate(kind, length) => self.on_aggregate(kind, length)?,
                    }
                }
                Stage::String(text, len) => {
                    let Some(string) = self.input.string(len)? else {
                        self.separate_if_large(text, len);
                        return Ok(None);
                    };
                    self.stage = Stage::Line;
                    // The usual one is built in place: each move of a value counts here.
                    let value = match text {
                        Text::Bulk => Value::Bulk(string.to_vec()),
                        _ => text.into_value(string.to_vec())?,
                    };
                    self.put(value)
                }
                Stage::Large(_, ref body) if !body.is_whole() => return Ok(None),
                Stage::Large(..) => self.on_large_body()?,
                Stage::Discard(left) => {
                    if !self.discard(left)? {
                        return Ok(None);
                    }
                    self.stage = Stage::Line;
                    self.skipped_value()
                }
            };
            if frame.is_some() {
                return Ok(frame);
            }
        }
    }

    /// What nearly every value is: a string that has arrived as a whole, far from any limit. Any
    /// other one is left to the general way, which decides what is wrong with it or waits for more.
    #[inline]
    fn whole_string(&mut self) -> Option<Value> {
        if self.skip.is_some() {
            return None;
        }
        let before = if self.stack.is_empty() { 0 } else { self.bytes };
        let left = (self.limits.reply_bytes as u64).saturating_sub(before);
        let most = left.min(self.limits.bulk_bytes as u64);
        let (string, bytes) = self.input.whole_string(most as usize)?;
        let value = Value::Bulk(string.to_vec());
        self.bytes = before + bytes as u64;
        Some(value)
    }

    /// The header of a string.
    #[inline]
    fn on_text(&mut self, text: Text, len: u64) {
        if self.skip.is_none() {
            self.bytes = self.bytes.saturating_add(len).saturating_add(LINE_END);
            if len > self.limits.bulk_bytes as u64 {
                self.give_up(ReplyLimit::BulkBytes, false);
            } else if self.bytes > self.limits.reply_bytes as u64 {
                self.give_up(ReplyLimit::Bytes, false);
            }
        }
        self.stage = match self.skip {
            None => Stage::String(text, len as usize),
            Some(_) => Stage::Discard(len),
        };
    }

    /// The header of an aggregate.
    fn on_aggregate(
        &mut self,
        kind: Aggregate,
        length: u64,
    ) -> Result<Option<Frame>, ProtocolError> {
        let push = kind == Aggregate::Push;
        if push && (self.skip.is_some() || !self.stack.is_empty()) {
            return Err(ProtocolError::NestedPush);
        }
        if self.skip.is_none() && kind != Aggregate::Attribute {
            let Some(limit) = self.exceeded_by(kind.values(length)) else {
                self.stack.push(Level::open(kind, length, self.stack.len()));
                return Ok(self.close_complete());
            };
            self.give_up(limit, push);
        }
        self.skip_aggregate(kind, length)
    }

    /// The limit that is exceeded by one more level with so many values, which are counted.
    fn exceeded_by(&mut self, values: u64) -> Option<ReplyLimit> {
        if self.stack.is_empty() {
            self.announced = 0;
        }
        self.announced = self.announced.saturating_add(values);
        if self.announced > self.limits.elements as u64 {
            return Some(ReplyLimit::Elements);
        }
        if self.bytes > self.limits.reply_bytes as u64 {
            return Some(ReplyLimit::Bytes);
        }
        (self.stack.len() >= self.limits.depth).then_some(ReplyLimit::Depth)
    }

    /// Puts a value where it belongs; gives the frame that is complete with it.
    #[inline]
    fn put(&mut self, value: Value) -> Option<Frame> {
        let Some(level) = self.stack.last_mut() else {
            return Some(Frame::Reply(Ok(value)));
        };
        level.put(value);
        self.close_complete()
    }

    /// Closes the innermost levels that are complete.
    fn close_complete(&mut self) -> Option<Frame> {
        while self.stack.last()?.left() == 0 {
            match self.stack.pop()?.close() {
                Closed::Push(values) => return Some(Frame::Push(values)),
                Closed::Value(value) => match self.stack.last_mut() {
                    Some(outer) => outer.put(value),
                    None => return Some(Frame::Reply(Ok(value))),
                },
            }
        }
        None
    }

    /// Gives a large string a buffer of its own, as most of it is still to come.
    fn separate_if_large(&mut self, text: Text, len: usize) {
        if len >= LARGE {
            let body = LargeBody::new(len, self.input.unused());
            self.input.consume(self.input.unused().len());
            self.stage = Stage::Large(text, body);
        }
    }

    fn on_large_body(&mut self) -> Result<Option<Frame>, ProtocolError> {
        match std::mem::replace(&mut self.stage, Stage::Line) {
            Stage::Large(text, body) => {
                let value = text.into_value(body.finish()?)?;
                Ok(self.put(value))
            }
            _ => Ok(None),
        }
    }

    /// Drops the reply (or push) that was being built. The rest of it is read past, from the value
    /// on whose header exceeds the limit.
    fn give_up(&mut self, limit: ReplyLimit, push: bool) {
        let push = push || self.stack.first().is_some_and(Level::is_push);
        // Each level waits for the value that is being received, so that is counted once per level.
        let after: u64 = self.stack.iter().map(|level| level.left() - 1).sum();
        self.stack.clear();
        self.skip = Some(Skip {
            left: after + 1,
            then: (!push).then_some(limit),
        });
    }

    /// Reads past an aggregate. Each attribute comes in addition to what was counted.
    fn skip_aggregate(
        &mut self,
        kind: Aggregate,
        length: u64,
    ) -> Result<Option<Frame>, ProtocolError> {
        let skip = self.skip.get_or_insert(Skip::default());
        let uncounted = kind.values(length) + u64::from(kind == Aggregate::Attribute);
        let left = skip.left.checked_add(uncounted);
        skip.left = left.ok_or(ProtocolError::Countless)?;
        Ok(self.skipped_value())
    }

    /// One value less to read past.
    fn skipped_value(&mut self) -> Option<Frame> {
        let skip = self.skip.as_mut()?;
        skip.left -= 1;
        if skip.left > 0 {
            return None;
        }
        let limit = self.skip.take()?.then?;
        Some(Frame::Reply(Err(limit)))
    }

    /// Drops what has come of a string that is not kept; `true` at its end.
    fn discard(&mut self, left: u64) -> Result<bool, ProtocolError> {
        let here = left.min(self.input.unused().len() as u64);
        self.input.consume(here as usize);
        self.stage = Stage::Discard(left - here);
        Ok(left == here && self.input.string(0)?.is_some())
    }

    /// Bytes of memory held.
    #[cfg(test)]
    fn held(&self) -> usize {
        let body = match &self.stage {
            Stage::Large(_, body) => body.held(),
            _ => 0,
        };
        let stack = self.stack.capacity() * size_of::<Level>();
        self.input.held() + body + stack + self.stack.iter().map(Level::held).sum::<usize>()
    }
}

#[cfg(test)]
pub(super) mod tests;
