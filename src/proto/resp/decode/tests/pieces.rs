//! The same frames come out, however a stream is cut.

use super::*;

/// A stream with every type, attributes and pushes.
pub(super) fn fixture() -> Vec<u8> {
    let stream = "+OK\r\n+PONG\r\n-ERR no\r\n:42\r\n:-9223372036854775809\r\n$-1\r\n*-1\r\n_\r\n\
        $12\r\nwith\r\n\r\r\n:1\0\r\n$0\r\n\r\n*0\r\n*3\r\n:1\r\n*2\r\n$1\r\na\r\n-E x\r\n$-1\r\n\
        >2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n|1\r\n+ttl\r\n:3600\r\n%2\r\n+a\r\n~2\r\n#t\r\n#f\r\n\
        $1\r\nb\r\n|0\r\n,1.5e3\r\n,-inf\r\n(3492890328409238509324850943850943825024385\r\n\
        !10\r\nERR a\r\nbcd\r\n=8\r\ntxt:a\r\nb\r\n>0\r\n|1\r\n$4\r\na\r\nb\r\n:1\r\n%1\r\n+x\r\n\
        *-1\r\n+end\r\n";
    stream.as_bytes().to_vec()
}

#[test]
fn every_split_gives_the_same_frames() {
    let stream = fixture();
    let whole = decode(&stream);
    assert_eq!(whole.1, None);
    assert_eq!(whole.0.len(), 21);
    assert_eq!(whole.0.last(), Some(&Frame::Reply(Ok(simple("end")))));
    let limits = DecodeLimits::default();
    for cut in 0..stream.len() {
        let (first, second) = stream.split_at(cut);
        assert_eq!(
            decode_pieces(limits, [first, second]),
            whole,
            "cut at {cut}"
        );
    }
    for size in 1..20 {
        assert_eq!(
            decode_pieces(limits, stream.chunks(size)),
            whole,
            "pieces of {size}"
        );
    }
}

#[test]
fn strings_of_any_size_arrive_in_their_own_buffer_or_not() {
    let limits = DecodeLimits::default();
    for len in [
        4095,
        LARGE - 1,
        LARGE,
        LARGE + 1,
        600 * 1024,
        5 * 1024 * 1024,
    ] {
        let content: Vec<u8> = b"ab\r\n$3\r\n".iter().copied().cycle().take(len).collect();
        let header = format!("+first\r\n${len}\r\n");
        let stream = [header.as_bytes(), &content, b"\r\n:7\r\n"].concat();
        let wanted = [simple("first"), Value::Bulk(content), Integer(7)];
        let wanted = wanted.map(|value| Frame::Reply(Ok(value)));
        for size in [1000, 16 * 1024, 99_999, usize::MAX] {
            let (frames, end) = decode_pieces(limits, stream.chunks(size));
            assert!(
                frames == wanted && end.is_none(),
                "{len} in pieces of {size}"
            );
        }
        for cut in header.len()..header.len() + 4 {
            for end in [cut + len - 3, cut + len - 2, cut + len - 1] {
                let pieces = [&stream[..cut], &stream[cut..end], &stream[end..]];
                assert!(
                    decode_pieces(limits, pieces).0 == wanted,
                    "{len} cut at {cut}"
                );
            }
        }
    }
    let bad = [b"$40000\r\n", &[b'x'; 40_000][..], b"\rx"].concat();
    let result = decode_pieces(limits, bad.chunks(1000));
    assert_eq!(result, (vec![], Some(ProtocolError::StringEnd)));
}
