//! The receive buffer: where the next read goes, and what has been received and not yet used.

use super::fault::ProtocolError;

/// Size at first.
const FIRST: usize = 16 * 1024;

/// Size up to which it grows while reads fill it.
const MOST: usize = 256 * 1024;

/// Least room offered to a read.
const LEAST_ROOM: usize = 4 * 1024;

/// Received bytes that are not yet used.
///
/// Invariant: `start + scanned <= end <= buffer.len()`.
#[derive(Default)]
pub(super) struct Input {
    /// Initialised as a whole, so that reads can go to any part of it. Empty until first used.
    buffer: Vec<u8>,
    /// Where the unused bytes begin.
    start: usize,
    /// Where they end.
    end: usize,
    /// How many of them are known not to end the present line.
    scanned: usize,
    /// The last read filled the room that it was offered: more was probably waiting.
    was_full: bool,
}

impl Input {
    /// Where the next read should go.
    ///
    /// Unused bytes are moved only when little room is left. There are few of them if all frames
    /// were taken first: part of a line, or of a short string.
    pub(super) fn spare(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        if self.buffer.is_empty() {
            self.buffer = vec![0; FIRST];
        } else if self.was_full && self.buffer.len() < MOST {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        self.was_full = false;
        if self.start > 0 && self.buffer.len() - self.end < self.buffer.len() / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.end < LEAST_ROOM {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Tells that a read put `count` bytes into the spare room.
    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
        assert!(
            self.end <= self.buffer.len(),
            "filled beyond the spare room"
        );
        self.was_full = self.end == self.buffer.len();
    }

    /// The unused bytes.
    pub(super) fn unused(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Marks the first `count` unused bytes as used.
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
    }

    /// Takes a whole line, without its end. Bytes once looked at are not looked at again.
    #[inline]
    pub(super) fn line(&mut self, longest: usize) -> Result<Option<&[u8]>, ProtocolError> {
        let from = self.start + self.scanned;
        let fresh = &self.buffer[from..self.end];
        let found = fresh.iter().position(|&byte| matches!(byte, b'\r' | b'\n'));
        let len = self.scanned + found.unwrap_or(fresh.len());
        if len > longest {
            return Err(ProtocolError::LineTooLong);
        }
        self.scanned = len;
        // A carriage return may be the last byte so far; then it is looked at once more.
        match &self.buffer[self.start + len..self.end] {
            [] | [b'\r'] => Ok(None),
            [b'\r', b'\n', ..] => {
                let start = self.start;
                self.scanned = 0;
                self.start += len + 2;
                Ok(Some(&self.buffer[start..start + len]))
            }
            _ => Err(ProtocolError::LineEnd),
        }
    }

    /// Takes a string of this length and the line end after it, once all of it has been received.
    #[inline]
    pub(super) fn string(&mut self, len: usize) -> Result<Option<&[u8]>, ProtocolError> {
        let start = self.start;
        if self.end - start < len + 2 {
            return Ok(None);
        }
        if self.buffer[start + len..start + len + 2] != *b"\r\n" {
            return Err(ProtocolError::StringEnd);
        }
        self.start += len + 2;
        Ok(Some(&self.buffer[start..start + len]))
    }

    /// Takes a bulk string with its header, if all of it has been received, nothing is wrong with
    /// it, and it has at most `most` bytes, all together; gives the string, and how many those are.
    #[inline]
    pub(super) fn whole_string(&mut self, most: usize) -> Option<(&[u8], usize)> {
        let unused = self.unused();
        // A longer length is for large strings, for which no short way is needed.
        let (digits, from) = match unused {
            [b'$', digits @ b'0'..=b'9', b'\r', b'\n', ..] => (&[*digits][..], 4),
            [b'$', b'1'..=b'9', _, b'\r', b'\n', ..] => (&unused[1..3], 5),
            [b'$', b'1'..=b'9', _, _, b'\r', b'\n', ..] => (&unused[1..4], 6),
            [b'$', b'1'..=b'9', _, _, _, b'\r', b'\n', ..] => (&unused[1..5], 7),
            _ => return None,
        };
        let mut len = 0;
        for digit in digits {
            if !digit.is_ascii_digit() {
                return None;
            }
            len = len * 10 + usize::from(digit - b'0');
        }
        let (to, end) = (from + len, from + len + 2);
        let is_whole = end <= unused.len().min(most) && unused[to..end] == *b"\r\n";
        if !is_whole {
            return None;
        }
        let start = self.start;
        self.start += end;
        self.scanned = 0;
        Some((&self.buffer[start + from..start + to], end))
    }

    /// Bytes of memory held.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.buffer.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_reads_grow_it_up_to_the_most_and_others_do_not() {
        let mut input = Input::default();
        let mut sizes = Vec::new();
        for _ in 0..7 {
            let room = input.spare().len();
            input.filled(room);
            input.consume(room);
            sizes.push(room / 1024);
        }
        assert_eq!(sizes, [16, 32, 64, 128, 256, 256, 256]);
        let mut input = Input::default();
        for _ in 0..100 {
            let room = input.spare().len();
            assert_eq!(room, FIRST);
            input.filled(room - 1);
            input.consume(room - 1);
        }
    }

    #[test]
    fn there_is_always_room_also_when_nothing_is_used() {
        let mut input = Input::default();
        for count in 0..2000 {
            assert_eq!(input.unused().len(), count * 1000);
            assert!(input.spare().len() >= LEAST_ROOM);
            input.filled(1000);
        }
        assert!(input.held() < 8 * 1000 * 1000);
    }

    #[test]
    fn a_line_is_as_long_as_allowed_in_any_pieces() {
        for longest in [9, 10] {
            for cut in 0..12 {
                let mut input = Input::default();
                let mut result = Ok(false);
                for piece in [&b"0123456789\r\n"[..cut], &b"0123456789\r\n"[cut..]] {
                    input.spare()[..piece.len()].copy_from_slice(piece);
                    input.filled(piece.len());
                    result = result.and_then(|_| Ok(input.line(longest)?.is_some()));
                }
                let whole = longest == 10;
                assert_eq!(
                    result,
                    whole.then_some(true).ok_or(ProtocolError::LineTooLong)
                );
            }
        }
    }
}
