//! Replies beyond a limit are read past in constant memory, and their neighbours stay intact.

use super::*;

pub(super) const SMALL: DecodeLimits = DecodeLimits {
    depth: 3,
    bulk_bytes: 10,
    elements: 8,
    reply_bytes: 1000,
    line_bytes: 100,
};

#[test]
fn a_reply_beyond_a_limit_is_read_past() {
    use ReplyLimit::{BulkBytes, Depth, Elements};
    let eleven = "$11\r\n01234\r\n6789\r\n";
    let table = [
        (eleven.to_owned(), BulkBytes),
        (format!("*3\r\n:1\r\n{eleven}*1\r\n:2\r\n"), BulkBytes),
        (
            format!("%2\r\n+k\r\n*2\r\n{eleven}{eleven}+k\r\n%1\r\n+k\r\n+v\r\n"),
            BulkBytes,
        ),
        (
            format!("*2\r\n!{}={}", &eleven[1..], &eleven[1..]),
            BulkBytes,
        ),
        ("*1\r\n*1\r\n*1\r\n*0\r\n".into(), Depth),
        (
            "*2\r\n*2\r\n*2\r\n*1\r\n+a\r\n~0\r\n%0\r\n*1\r\n+b\r\n".into(),
            Depth,
        ),
        (format!("*9\r\n{}", "_\r\n".repeat(9)), Elements),
        (format!("%5\r\n{}", "*1\r\n:1\r\n".repeat(10)), Elements),
        (format!("*5\r\n{}", "*1\r\n:1\r\n".repeat(5)), Elements),
        (
            format!("*2\r\n{eleven}|1\r\n+k\r\n{eleven}|0\r\n:1\r\n"),
            BulkBytes,
        ),
    ];
    for (bytes, limit) in table {
        let stream = format!("+before\r\n{bytes}>1\r\n+x\r\n{bytes}+after\r\n");
        let frames = vec![
            Frame::Reply(Ok(simple("before"))),
            Frame::Reply(Err(limit)),
            Frame::Push(vec![simple("x")]),
            Frame::Reply(Err(limit)),
            Frame::Reply(Ok(simple("after"))),
        ];
        let wanted = (frames, None);
        for size in [1, 2, 3, 7, usize::MAX] {
            let pieces = stream.as_bytes().chunks(size);
            assert_eq!(decode_pieces(SMALL, pieces), wanted, "{bytes:?}");
        }
    }
}

#[test]
fn limits_are_inclusive_and_count_each_reply_anew() {
    let stream = [
        "*1\r\n*1\r\n*1\r\n:1\r\n",
        "$10\r\n0123456789\r\n",
        "%4\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
        "*7\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n*1\r\n:1\r\n",
    ];
    for bytes in stream {
        let (frames, end) = decode_pieces(SMALL, [bytes.repeat(3).as_bytes()]);
        assert!(frames.len() == 3 && end.is_none(), "{bytes:?}");
        assert!(matches!(frames[2], Frame::Reply(Ok(_))), "{bytes:?}");
    }
}

#[test]
fn bytes_of_a_reply_count_over_all_levels_up_to_the_limit() {
    let replies = [
        "+0123456789\r\n".to_owned(),
        "-ERR 0123456789\r\n".to_owned(),
        "$10\r\n0123456789\r\n".to_owned(),
        "*2\r\n$3\r\nabc\r\n%1\r\n+k\r\n*1\r\n=6\r\ntxt:ab\r\n".to_owned(),
        "*3\r\n*0\r\n*0\r\n*0\r\n".to_owned(),
        format!("*2\r\n$40000\r\n{}\r\n:1\r\n", "x".repeat(40_000)),
    ];
    for bytes in replies {
        for (limit, fits) in [(bytes.len(), true), (bytes.len() - 1, false), (1, false)] {
            let limits = DecodeLimits {
                reply_bytes: limit,
                ..DecodeLimits::default()
            };
            let attribute = "|1\r\n+key\r\n+value that is not counted\r\n";
            let push = ">2\r\n+a push counts for itself\r\n:1\r\n";
            let stream = format!("{bytes}{attribute}{bytes}{push}{bytes}");
            for size in [1, 3, 7, usize::MAX] {
                let (frames, end) = decode_pieces(limits, stream.as_bytes().chunks(size));
                assert_eq!(end, None);
                let replies = frames.iter().filter(|frame| match frame {
                    Frame::Reply(Ok(_)) => fits,
                    Frame::Reply(Err(limit)) => !fits && *limit == ReplyLimit::Bytes,
                    Frame::Push(_) => false,
                });
                assert_eq!(replies.count(), 3, "{bytes:.60?}, {limit}: {frames:.60?}");
            }
        }
    }
}

#[test]
fn attributes_and_pushes_beyond_a_limit_leave_nothing() {
    let wide = "_\r\n".repeat(20);
    let deep = "*1\r\n".repeat(20);
    let streams = [
        format!("|1\r\n+k\r\n*20\r\n{wide}"),
        format!("|1\r\n+k\r\n{deep}$20\r\n01234567890123456789\r\n"),
        format!(">20\r\n{wide}"),
        format!(">2\r\n+x\r\n{deep}+y\r\n"),
        ">1\r\n$11\r\n01234567890\r\n".to_owned(),
    ];
    for stream in streams {
        let stream = format!("{stream}+OK\r\n");
        let wanted = (vec![Frame::Reply(Ok(Okay))], None);
        assert_eq!(
            decode_pieces(SMALL, [stream.as_bytes()]),
            wanted,
            "{stream:?}"
        );
    }
}

#[test]
fn any_nesting_is_read_past_in_constant_memory() {
    let ok = Frame::Reply(Ok(Okay));
    for level in [
        "*1\r\n",
        "%1\r\n$1\r\nk\r\n",
        "~1\r\n",
        "|1\r\n+k\r\n*1\r\n",
    ] {
        let mut decoder = Decoder::new(DecodeLimits::default());
        let mut frames = Vec::new();
        let nested = level.repeat(100_000);
        assert_eq!(feed(&mut decoder, nested.as_bytes(), &mut frames), Ok(()));
        assert!(
            frames.is_empty() && decoder.held() < 2 * 256 * 1024,
            "{level:?}"
        );
        let end = if level.starts_with('|') {
            format!(":1\r\n{}", ":1\r\n".repeat(100_000))
        } else {
            ":1\r\n".to_owned()
        };
        assert_eq!(feed(&mut decoder, end.as_bytes(), &mut frames), Ok(()));
        assert_eq!(feed(&mut decoder, b"+OK\r\n", &mut frames), Ok(()));
        assert_eq!(frames.last(), Some(&ok), "{level:?}");
    }
    let pushes = decode(">1\r\n".repeat(100_000).as_bytes());
    assert_eq!(pushes, (vec![], Some(ProtocolError::NestedPush)));
}

#[test]
fn the_deepest_value_that_is_kept_can_be_cloned_compared_and_printed() {
    let depth = DecodeLimits::default().depth;
    let deepest = reply("*1\r\n".repeat(depth) + ":1\r\n");
    assert_eq!(deepest.clone(), deepest);
    assert!(format!("{deepest:?}").len() > depth);
    let deeper = decode(("*1\r\n".repeat(depth + 1) + ":1\r\n").as_bytes());
    assert_eq!(deeper.0, [Frame::Reply(Err(ReplyLimit::Depth))]);
}

#[test]
fn headers_alone_take_no_memory() {
    let mut streams: Vec<String> = [
        "*1000000000\r\n",
        "*60000000\r\n",
        "%30000000\r\n",
        ">60000000\r\n",
        "|1000000000\r\n",
        "*9223372036854775807\r\n",
        "$9223372036854775807\r\n",
        "$536870912\r\n",
        "!536870912\r\n",
    ]
    .map(String::from)
    .into();
    streams.push("*400000\r\n".repeat(128));
    streams.push("*400000\r\n".repeat(127) + "$536870912\r\nx");
    for stream in streams {
        let mut decoder = Decoder::new(DecodeLimits::default());
        let mut frames = Vec::new();
        assert_eq!(feed(&mut decoder, stream.as_bytes(), &mut frames), Ok(()));
        let held = decoder.held() + decoder.spare().len();
        assert!(
            frames.is_empty() && held < 2 * 1024 * 1024,
            "{stream:?}: {held}"
        );
    }
    let endless = "*9223372036854775807\r\n".repeat(4);
    assert_eq!(decode(endless.as_bytes()).1, Some(ProtocolError::Countless));
}
