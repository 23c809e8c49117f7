//! Random values, encoded with random attributes and pushes between them, are decoded as they were.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// Writes values as a RESP3 server may; `noise` decides about attributes, pushes and spellings.
pub(super) struct Server<'a> {
    pub(super) wire: Vec<u8>,
    pub(super) noise: &'a mut dyn FnMut() -> u8,
}

impl Server<'_> {
    /// A reply, and the pushes in front of it.
    pub(super) fn reply(&mut self, value: &Value, frames: &mut Vec<Frame>) {
        while (self.noise)() < 40 {
            self.attribute();
            self.wire.extend_from_slice(b">2\r\n+message\r\n:7\r\n");
            frames.push(Frame::Push(vec![simple("message"), Integer(7)]));
        }
        self.value(value);
        frames.push(Frame::Reply(Ok(value.clone())));
    }

    fn value(&mut self, value: &Value) {
        self.attribute();
        match value {
            Null => {
                let spellings: [&[u8]; 3] = [b"_\r\n", b"$-1\r\n", b"*-1\r\n"];
                let spelling = usize::from((self.noise)()) % 3;
                self.wire.extend_from_slice(spellings[spelling]);
            }
            Okay => self.line("+OK"),
            Value::Simple(text) => self.line(&format!("+{}", String::from_utf8_lossy(text))),
            Value::Bulk(bytes) => self.string('$', bytes),
            Integer(integer) => self.line(&format!(":{integer}")),
            Double(double) => self.line(&format!(",{double:?}")),
            Boolean(boolean) => self.line(if *boolean { "#t" } else { "#f" }),
            BigNumber(digits) => self.line(&format!("({digits}")),
            Value::Verbatim { format, text } => {
                self.string('=', &[format, &b":"[..], text].concat());
            }
            Array(values) => self.values('*', values),
            Set(values) => self.values('~', values),
            Map(pairs) => {
                self.line(&format!("%{}", pairs.len()));
                for (key, value) in pairs {
                    self.value(key);
                    self.value(value);
                }
            }
            Value::Error(error) if error.line().contains(['\r', '\n']) => {
                self.string('!', error.line().as_bytes());
            }
            Value::Error(error) => self.line(&format!("-{}", error.line())),
        }
    }

    fn attribute(&mut self) {
        while (self.noise)() < 20 {
            let attributes: [&[u8]; 3] = [
                b"|0\r\n",
                b"|1\r\n+ttl\r\n:1\r\n",
                b"|1\r\n|1\r\n_\r\n_\r\n$2\r\n\r\n\r\n*1\r\n%1\r\n#t\r\n~0\r\n",
            ];
            let attribute = usize::from((self.noise)()) % 3;
            self.wire.extend_from_slice(attributes[attribute]);
        }
    }

    fn values(&mut self, kind: char, values: &[Value]) {
        self.line(&format!("{kind}{}", values.len()));
        values.iter().for_each(|value| self.value(value));
    }

    fn string(&mut self, kind: char, bytes: &[u8]) {
        self.line(&format!("{kind}{}", bytes.len()));
        self.wire.extend_from_slice(bytes);
        self.line("");
    }

    fn line(&mut self, line: &str) {
        self.wire.extend_from_slice(line.as_bytes());
        self.wire.extend_from_slice(b"\r\n");
    }
}

fn values() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Null),
        Just(Okay),
        "[a-z]{0,9}[^\r\nK]".prop_map(|text| simple(&text)),
        vec(any::<u8>(), 0..50).prop_map(Value::Bulk),
        (any::<u8>(), 40_000..40_010_usize).prop_map(|(byte, len)| Value::Bulk(vec![byte; len])),
        any::<i64>().prop_map(Integer),
        // NaN is not equal to itself.
        any::<f64>()
            .prop_filter("NaN", |x| !x.is_nan())
            .prop_map(Double),
        any::<bool>().prop_map(Boolean),
        "-?[0-9]{1,60}".prop_map(BigNumber),
        ("[a-z]{3}", any::<Vec<u8>>()).prop_map(|(format, text)| Value::Verbatim {
            format: format.as_bytes().try_into().expect("three letters"),
            text,
        }),
        "[A-Z]{1,5} [a-z\r\n]{0,20}".prop_map(|line| error(&line)),
    ];
    scalar.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Array),
            vec(inner.clone(), 0..6).prop_map(Set),
            vec((inner.clone(), inner), 0..4).prop_map(Map),
        ]
    })
}

/// Cuts a stream into pieces of these sizes, over and over.
fn pieces<'a>(mut rest: &'a [u8], sizes: &[usize]) -> impl Iterator<Item = &'a [u8]> + Clone {
    let mut sizes = sizes.iter().cycle();
    std::iter::from_fn(move || {
        let size = rest.len().min(*sizes.next()?);
        let (piece, tail) = rest.split_at(size);
        rest = tail;
        (!piece.is_empty()).then_some(piece)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_a_server_encodes_is_decoded(
        values in vec(values(), 1..8),
        noise in vec(any::<u8>(), 1..100),
        sizes in vec(1_usize..5000, 1..10),
    ) {
        // Three times no in a row end every loop that asks for more noise, whatever its phase.
        let noise = noise.chunks(2).flat_map(|pair| [pair, &[255; 3]].concat());
        let mut noise = noise.collect::<Vec<_>>().into_iter().cycle();
        let mut next = || noise.next().unwrap_or(255);
        let mut server = Server { wire: Vec::new(), noise: &mut next };
        let mut frames = Vec::new();
        values.iter().for_each(|value| server.reply(value, &mut frames));
        let decoded = decode_pieces(DecodeLimits::default(), pieces(&server.wire, &sizes));
        prop_assert_eq!(decoded, (frames, None));
    }

    #[test]
    fn commands_are_arrays_of_strings(args: Vec<Vec<u8>>) {
        let mut command = crate::proto::resp::encode::Encoded::new(b"NAME");
        args.iter().for_each(|arg| command.push(arg));
        let wanted = std::iter::once(b"NAME".to_vec()).chain(args).map(Value::Bulk).collect();
        prop_assert_eq!(reply(command.as_bytes()), Array(wanted));
    }
}
