//! Random bytes in random pieces never panic and take no more memory than they may.
//!
//! `RESLOT_FUZZ_BYTES` sets how many bytes `ten_million_random_bytes` uses instead.

use super::limits::SMALL;
use super::pieces::fixture;
use super::round_trip::Server;
use super::*;

/// A generator of pseudo-random numbers (xorshift64*), so that failures can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 33) as usize) % bound
    }

    fn byte(&mut self) -> u8 {
        (self.next() >> 56) as u8
    }
}

/// Bytes that occur in headers, line ends more often than others.
const HEADERS: &[u8] = b"+-:$*_,#!(=%~>|\r\n\r\n\r\n\r\n01234567890123456789tfk?inf.";

fn fuzz_bytes() -> usize {
    match std::env::var("RESLOT_FUZZ_BYTES") {
        Ok(count) => count.parse().expect("RESLOT_FUZZ_BYTES is a number"),
        Err(_) => 10_000_000,
    }
}

/// A third each of: any bytes, bytes of headers, valid streams with a few bytes changed.
#[test]
fn ten_million_random_bytes() {
    let bytes = fuzz_bytes();
    let mut random = Random(0x5eed);
    let valid = valid_stream(&mut random);
    let (mut used, mut frames, mut errors) = (0, 0, 0);
    while used < bytes {
        let mut stream = valid.clone();
        match used * 3 / bytes {
            0 => stream = (0..5000).map(|_| random.byte()).collect(),
            1 => stream = (0..300).map(|_| header_byte(&mut random)).collect(),
            _ => (0..random.below(4)).for_each(|_| mutate(&mut stream, &mut random)),
        }
        used += stream.len();
        let limits = [SMALL, DecodeLimits::default()][random.below(2)];
        let (more_frames, more_errors) = decode_bounded(&stream, limits, &mut random);
        frames += more_frames;
        errors += more_errors;
    }
    let enough = frames > bytes / 200 && errors > bytes / 200;
    assert!(
        enough || bytes < 1_000_000,
        "only {frames} frames and {errors} errors"
    );
}

/// Decodes a stream in random pieces, checking that what is held is bounded by what was given.
/// After an error, a new decoder goes on with the next piece. Counts frames and errors.
fn decode_bounded(stream: &[u8], limits: DecodeLimits, random: &mut Random) -> (usize, usize) {
    let (mut frames, mut errors) = (Vec::new(), 0);
    let mut decoder = Decoder::new(limits);
    let (mut at, mut given) = (0, 0);
    while at < stream.len() {
        let size = (1 + random.below(99)).min(stream.len() - at);
        let result = feed(&mut decoder, &stream[at..at + size], &mut frames);
        at += size;
        given += size;
        // A value takes up to 32 bytes where the wire took 3, in a vector at most half empty.
        let held = decoder.held();
        assert!(
            held < 1_400_000 + 64 * given,
            "{held} bytes held of {given}"
        );
        if result.is_err() {
            assert_eq!(decoder.next_frame().err(), result.err());
            errors += 1;
            decoder = Decoder::new(limits);
            given = 0;
        }
    }
    (frames.len(), errors)
}

/// However a stream is cut, the frames and the error are the same.
#[test]
fn pieces_do_not_matter_for_broken_streams() {
    let mut random = Random(0xcafe);
    let valid = valid_stream(&mut random);
    for _ in 0..300 {
        let mut stream = valid.clone();
        (0..random.below(4)).for_each(|_| mutate(&mut stream, &mut random));
        for limits in [SMALL, DecodeLimits::default()] {
            let whole = format!("{:?}", decode_pieces(limits, [&stream[..]]));
            let size = 1 + random.below(40);
            let cut = format!("{:?}", decode_pieces(limits, stream.chunks(size)));
            assert_eq!(whole, cut);
        }
    }
}

fn header_byte(random: &mut Random) -> u8 {
    HEADERS[random.below(HEADERS.len())]
}

/// Changes, doubles or removes a random byte.
fn mutate(stream: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(stream.len());
    match random.below(3) {
        0 => stream[at] = header_byte(random),
        1 => stream.insert(at, stream[at]),
        _ => drop(stream.remove(at)),
    }
}

/// Replies with every type, attributes and pushes.
fn valid_stream(random: &mut Random) -> Vec<u8> {
    let mut noise = || random.byte();
    let mut server = Server {
        wire: fixture(),
        noise: &mut noise,
    };
    let parts = [
        Null,
        bulk("payload\r\n"),
        verbatim(b"txt", "text"),
        Integer(12),
        Double(0.5),
        error("ERR line\r\nline"),
    ];
    let map = parts.clone().map(|part| (part, simple("value")));
    let reply = Array(vec![Set(parts.into()), Map(map.into()), Array(vec![])]);
    let mut frames = Vec::new();
    (0..4).for_each(|_| server.reply(&reply, &mut frames));
    server.wire
}
