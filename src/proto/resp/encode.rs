//! Commands in wire form, encoded while their arguments are added.

use std::fmt;
use std::io::Write;

/// Room in front of the first argument, in which the header `*N\r\n` stands right-aligned. It
/// holds 13 digits, which is more arguments than any memory holds.
const HEADROOM: usize = 16;

/// First allocation beyond the name: a key and a short value, as most commands have.
const FIRST_ARGS: usize = 112;

/// Most bytes that surround an argument: `$`, the length, and two line ends.
const FRAMING: usize = 1 + DIGITS + 4;

/// Most decimal digits of a `u64`, or of an `i64` and its sign.
const DIGITS: usize = 20;

/// A command in wire form.
///
/// It is complete at all times: each argument added also counts the header up in place, so nothing
/// is moved or written twice.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Encoded {
    /// Unused room, the header up to `HEADROOM`, then the arguments.
    bytes: Vec<u8>,
    /// Where the header begins: its `*`.
    start: usize,
    /// Number of arguments, the name included.
    count: usize,
}

impl Encoded {
    /// A command that has only a name so far.
    pub(crate) fn new(name: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(HEADROOM + name.len() + FRAMING + FIRST_ARGS);
        if let short @ 1..10 = name.len() {
            // Nearly all names: the same, in fewer steps.
            let mut header = *b"            *1\r\n$0\r\n";
            header[HEADROOM + 1] += short as u8;
            bytes.extend_from_slice(&header);
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(b"\r\n");
            let (start, count) = (HEADROOM - 4, 1);
            return Self {
                bytes,
                start,
                count,
            };
        }
        bytes.extend_from_slice(b"            *0\r\n");
        let mut command = Self {
            bytes,
            start: HEADROOM - 4,
            count: 0,
        };
        command.push(name);
        command
    }

    /// Adds an argument.
    pub(crate) fn push(&mut self, arg: &[u8]) {
        self.bytes.reserve(arg.len() + FRAMING);
        self.push_length(arg.len());
        self.bytes.extend_from_slice(arg);
        self.bytes.extend_from_slice(b"\r\n");
        self.count_up();
    }

    /// Adds an integer as its decimal digits.
    pub(crate) fn push_int(&mut self, number: i64) {
        let mut room = [0; DIGITS];
        let mut at = write_digits(number.unsigned_abs(), &mut room);
        if number < 0 {
            at -= 1;
            room[at] = b'-';
        }
        self.push(&room[at..]);
    }

    /// Adds an unsigned integer as its decimal digits.
    pub(crate) fn push_uint(&mut self, number: u64) {
        let mut room = [0; DIGITS];
        let at = write_digits(number, &mut room);
        self.push(&room[at..]);
    }

    /// Adds what `arg` displays, for short texts whose length is not known before, such as floats.
    ///
    /// What the type's own formatting refuses to write is left out; the command stays well formed.
    pub(crate) fn push_display(&mut self, arg: &dyn fmt::Display) {
        let from = self.bytes.len();
        let _ = write!(self.bytes, "{arg}");
        let len = self.bytes.len() - from;
        self.push_length(len);
        self.bytes[from..].rotate_left(len);
        self.bytes.extend_from_slice(b"\r\n");
        self.count_up();
    }

    /// Number of arguments, the name included.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// All arguments in order, the name first.
    pub(crate) fn args(&self) -> Args<'_> {
        Args {
            rest: &self.bytes[HEADROOM..],
            left: self.count,
        }
    }

    /// One argument; the name is number 0.
    pub(crate) fn arg(&self, index: usize) -> Option<&[u8]> {
        self.args().nth(index)
    }

    /// The complete wire form.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The buffer itself, and where in it the wire form begins; it goes on to the end.
    pub(crate) fn into_bytes(self) -> (Vec<u8>, usize) {
        (self.bytes, self.start)
    }

    /// Appends the complete wire form.
    pub(crate) fn append_to(&self, buffer: &mut Vec<u8>) {
        buffer.extend_from_slice(self.as_bytes());
    }

    /// Appends `$len\r\n`.
    fn push_length(&mut self, len: usize) {
        let digit = |digit: usize| b'0' + digit as u8;
        match len {
            0..10 => {
                return self
                    .bytes
                    .extend_from_slice(&[b'$', digit(len), b'\r', b'\n']);
            }
            10..100 => {
                let length = [b'$', digit(len / 10), digit(len % 10), b'\r', b'\n'];
                return self.bytes.extend_from_slice(&length);
            }
            _ => {}
        }
        let mut room = [0; 1 + DIGITS + 2];
        room[1 + DIGITS] = b'\r';
        room[1 + DIGITS + 1] = b'\n';
        let at = write_digits(len as u64, &mut room[1..=DIGITS]);
        room[at] = b'$';
        self.bytes.extend_from_slice(&room[at..]);
    }

    /// Counts the header up by one, digit by digit as an odometer does.
    fn count_up(&mut self) {
        self.count += 1;
        let mut at = HEADROOM - 3;
        while self.bytes[at] == b'9' {
            self.bytes[at] = b'0';
            at -= 1;
        }
        if self.bytes[at] == b'*' {
            self.bytes[at] = b'1';
            self.start = at - 1;
            self.bytes[self.start] = b'*';
        } else {
            self.bytes[at] += 1;
        }
    }
}

/// Shows the name and the sizes only: arguments may be passwords.
impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.arg(0).unwrap_or_default();
        f.debug_struct("Encoded")
            .field("name", &String::from_utf8_lossy(name))
            .field("args", &self.count)
            .field("bytes", &self.as_bytes().len())
            .finish()
    }
}

/// The arguments of a command, in order.
#[derive(Clone, Debug)]
pub(crate) struct Args<'a> {
    /// What is not yet walked: whole arguments, each with its header.
    rest: &'a [u8],
    /// How many those are.
    left: usize,
}

impl<'a> Iterator for Args<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (_dollar, mut rest) = self.rest.split_first()?;
        let mut len = 0;
        while let [digit @ b'0'..=b'9', tail @ ..] = rest {
            len = len * 10 + usize::from(digit - b'0');
            rest = tail;
        }
        let arg = &rest[2..2 + len];
        self.rest = &rest[2 + len + 2..];
        self.left -= 1;
        Some(arg)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Args<'_> {}

/// Writes the decimal digits to the end of `room`; gives where they begin.
fn write_digits(mut number: u64, room: &mut [u8]) -> usize {
    let mut at = room.len();
    loop {
        at -= 1;
        room[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_wire_form_is_complete_after_each_argument() {
        let mut set = Encoded::new(b"SET");
        assert_eq!(set.as_bytes(), b"*1\r\n$3\r\nSET\r\n");
        set.push(b"a\r\n$3\r\n");
        assert_eq!(set.as_bytes(), b"*2\r\n$3\r\nSET\r\n$7\r\na\r\n$3\r\n\r\n");
        set.push(b"");
        assert_eq!(set.arg(1), Some(&b"a\r\n$3\r\n"[..]));
        assert_eq!(set.arg(2), Some(&b""[..]));
        assert_eq!(set.arg(3), None);
        let whole = set.as_bytes().to_vec();
        let mut buffer = b"before".to_vec();
        set.append_to(&mut buffer);
        assert_eq!(buffer, [b"before", &whole[..]].concat());
        let (bytes, start) = set.into_bytes();
        assert_eq!(bytes[start..], whole);
    }

    #[test]
    fn names_and_arguments_of_any_length() {
        for len in (0..=110).chain([999, 1000, 12_345]) {
            let text = "x".repeat(len);
            let mut command = Encoded::new(text.as_bytes());
            command.push(text.as_bytes());
            let arg = format!("${len}\r\n{text}\r\n");
            let wire = format!("*2\r\n{arg}{arg}");
            assert_eq!(String::from_utf8_lossy(command.as_bytes()), wire);
        }
    }

    #[test]
    fn the_header_counts_over_every_carry() {
        let mut command = Encoded::new(b"DEL");
        for count in 1..=10_001 {
            assert_eq!(command.len(), count);
            let header = format!("*{count}\r\n$3\r\nDEL\r\n");
            assert!(command.as_bytes().starts_with(header.as_bytes()));
            command.push(b"k");
        }
        assert_eq!(command.args().len(), 10_002);
        assert_eq!(command.args().count(), 10_002);
    }

    #[test]
    fn numbers_and_displayed_arguments() {
        let mut command = Encoded::new(b"X");
        let ints = [0, 7, -1, 10, 1234567890, i64::MAX, i64::MIN];
        ints.iter().for_each(|&int| command.push_int(int));
        command.push_uint(u64::MAX);
        command.push_display(&0.1);
        command.push_display(&f64::MAX);
        command.push_display(&"");
        let mut wanted = vec!["X".to_string()];
        wanted.extend(ints.iter().map(i64::to_string));
        wanted.extend([u64::MAX.to_string(), "0.1".into(), f64::MAX.to_string()]);
        wanted.push(String::new());
        let args: Vec<_> = command.args().map(String::from_utf8_lossy).collect();
        assert_eq!(args, wanted);
    }

    #[test]
    fn usual_commands_take_one_allocation_and_debug_shows_no_argument() {
        let mut set = Encoded::new(b"SET");
        let capacity = set.bytes.capacity();
        set.push(b"a:key:of:20:letters:");
        set.push(&[b'v'; 64]);
        assert_eq!(set.bytes.capacity(), capacity);
        assert!(!format!("{set:?}").contains("key"));
    }

    proptest! {
        #[test]
        fn args_are_what_was_pushed(args: Vec<Vec<u8>>) {
            let mut command = Encoded::new(b"NAME");
            args.iter().for_each(|arg| command.push(arg));
            prop_assert_eq!(command.len(), args.len() + 1);
            prop_assert_eq!(command.args().skip(1).collect::<Vec<_>>(), args);
        }
    }
}
