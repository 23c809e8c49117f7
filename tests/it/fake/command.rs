//! What the fake knows about commands: arity, keys, whether they write.

/// Where the keys of a command are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    None,
    First,
    All,
    /// Keys and values in turn.
    Alternate,
    AllButLast,
}

/// Facts about a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// Exact number of words if positive, the least number if negative (as servers tell it).
    arity: i32,
    pub(super) keys: Keys,
    pub(super) writes: bool,
}

impl Facts {
    /// The facts about a command by its name in upper case; `None` if it is unknown.
    pub(super) fn of(name: &str) -> Option<Self> {
        let (arity, keys, writes) = match name {
            "HELLO" | "COMMAND" | "PING" => (-1, Keys::None, false),
            "AUTH" | "CLIENT" | "CLUSTER" => (-2, Keys::None, false),
            "READONLY" | "READWRITE" | "ASKING" => (1, Keys::None, false),
            "MULTI" | "EXEC" | "DISCARD" | "UNWATCH" => (1, Keys::None, false),
            "SELECT" | "ECHO" => (2, Keys::None, false),
            "WATCH" | "MGET" | "EXISTS" => (-2, Keys::All, false),
            "GET" | "STRLEN" => (2, Keys::First, false),
            "LRANGE" => (4, Keys::First, false),
            "SET" | "RPUSH" => (-3, Keys::First, true),
            "INCR" => (2, Keys::First, true),
            "INCRBY" | "APPEND" => (3, Keys::First, true),
            "DEL" => (-2, Keys::All, true),
            "MSET" => (-3, Keys::Alternate, true),
            "BLPOP" => (-3, Keys::AllButLast, true),
            _ => return None,
        };
        Some(Self {
            arity,
            keys,
            writes,
        })
    }

    /// Whether the number of words is right.
    pub(super) fn accepts(&self, words: usize) -> bool {
        let arity = self.arity.unsigned_abs() as usize;
        let pairs = self.keys != Keys::Alternate || words % 2 == 1;
        pairs
            && if self.arity < 0 {
                words >= arity
            } else {
                words == arity
            }
    }

    /// The keys among the words of a command.
    pub(super) fn keys<'a>(&self, argv: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
        let args = argv[1..].iter().map(Vec::as_slice);
        match self.keys {
            Keys::None => Vec::new(),
            Keys::First => args.take(1).collect(),
            Keys::All => args.collect(),
            Keys::Alternate => args.step_by(2).collect(),
            Keys::AllButLast => args.take(argv.len() - 2).collect(),
        }
    }
}
