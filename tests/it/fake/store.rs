//! The keys that a node holds, and the commands on them.

use std::collections::HashMap;

use super::resp;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_A_NUMBER: &str = "ERR value is not an integer or out of range";

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Data {
    Text(Vec<u8>),
    List(Vec<Vec<u8>>),
}

/// The keys of one node.
#[derive(Debug, Default)]
pub(super) struct Store {
    keys: HashMap<Vec<u8>, (u64, Data)>,
    /// Counts changes; a key carries the count of its last one.
    changes: u64,
}

impl Store {
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.keys.contains_key(key)
    }

    /// A number that differs after every change of the key; 0 if it does not exist.
    pub(super) fn version(&self, key: &[u8]) -> u64 {
        self.keys.get(key).map_or(0, |(version, _)| *version)
    }

    pub(super) fn data(&self, key: &[u8]) -> Option<&Data> {
        self.keys.get(key).map(|(_, data)| data)
    }

    /// All keys.
    pub(super) fn keys(&self) -> Vec<Vec<u8>> {
        self.keys.keys().cloned().collect()
    }

    /// Sets or removes a key.
    pub(super) fn put(&mut self, key: &[u8], data: Option<Data>) {
        self.changes += 1;
        match data {
            Some(data) => self.keys.insert(key.to_vec(), (self.changes, data)),
            None => self.keys.remove(key),
        };
    }

    /// Removes all keys for which this is true and returns them.
    pub(super) fn take(&mut self, mut fits: impl FnMut(&[u8]) -> bool) -> Vec<(Vec<u8>, Data)> {
        let keys: Vec<Vec<u8>> = self.keys.keys().filter(|key| fits(key)).cloned().collect();
        let taken = keys.into_iter().filter_map(|key| {
            let (_, data) = self.keys.remove(&key)?;
            Some((key, data))
        });
        taken.collect()
    }

    /// Runs a command of known arity. `None`: it has to wait (`BLPOP` of empty lists).
    pub(super) fn run(&mut self, protocol: u8, name: &str, argv: &[Vec<u8>]) -> Option<Vec<u8>> {
        let args = &argv[1..];
        let result = match name {
            "GET" => self.get(&args[0], protocol),
            "STRLEN" => self
                .text(&args[0])
                .map(|text| length(text.map_or(0, <[u8]>::len))),
            "LRANGE" => self.lrange(args),
            "MGET" => {
                let get = |key: &Vec<u8>| {
                    self.get(key, protocol)
                        .unwrap_or_else(|_| resp::null(protocol))
                };
                Ok(resp::array(&args.iter().map(get).collect::<Vec<_>>()))
            }
            "EXISTS" => Ok(length(args.iter().filter(|key| self.contains(key)).count())),
            "SET" if args.len() > 2 => Err("ERR syntax error"),
            "SET" | "MSET" => {
                for pair in args.chunks(2) {
                    self.put(&pair[0], Some(Data::Text(pair[1].clone())));
                }
                Ok(resp::simple("OK"))
            }
            "DEL" => Ok(length(
                self.take(|key| args.iter().any(|arg| arg == key)).len(),
            )),
            "INCR" => self.increment(&args[0], 1),
            "INCRBY" => number(&args[1]).and_then(|by| self.increment(&args[0], by)),
            "APPEND" => self.append(&args[0], &args[1]),
            "RPUSH" => self.rpush(&args[0], &args[1..]),
            "BLPOP" => return self.pop(&args[..args.len() - 1]),
            _ => Err("ERR unknown command"),
        };
        Some(result.unwrap_or_else(resp::error))
    }

    fn get(&self, key: &[u8], protocol: u8) -> Result<Vec<u8>, &'static str> {
        let text = self.text(key)?;
        Ok(text.map_or_else(|| resp::null(protocol), resp::bulk))
    }

    fn text(&self, key: &[u8]) -> Result<Option<&[u8]>, &'static str> {
        match self.data(key) {
            None => Ok(None),
            Some(Data::Text(text)) => Ok(Some(text)),
            Some(Data::List(_)) => Err(WRONG_TYPE),
        }
    }

    fn list(&self, key: &[u8]) -> Result<&[Vec<u8>], &'static str> {
        match self.data(key) {
            None => Ok(&[]),
            Some(Data::List(list)) => Ok(list),
            Some(Data::Text(_)) => Err(WRONG_TYPE),
        }
    }

    fn increment(&mut self, key: &[u8], by: i64) -> Result<Vec<u8>, &'static str> {
        let now = self.text(key)?.map_or(Ok(0), number)?;
        let sum = now.checked_add(by).ok_or(NOT_A_NUMBER)?;
        self.put(key, Some(Data::Text(sum.to_string().into_bytes())));
        Ok(resp::integer(sum))
    }

    fn append(&mut self, key: &[u8], more: &[u8]) -> Result<Vec<u8>, &'static str> {
        let text = [self.text(key)?.unwrap_or(&[]), more].concat();
        let reply = length(text.len());
        self.put(key, Some(Data::Text(text)));
        Ok(reply)
    }

    fn rpush(&mut self, key: &[u8], more: &[Vec<u8>]) -> Result<Vec<u8>, &'static str> {
        let list = [self.list(key)?, more].concat();
        let reply = length(list.len());
        self.put(key, Some(Data::List(list)));
        Ok(reply)
    }

    fn lrange(&self, args: &[Vec<u8>]) -> Result<Vec<u8>, &'static str> {
        let list = self.list(&args[0])?;
        let count = i64::try_from(list.len()).expect("lists are short");
        let place = |arg: &[u8]| {
            let index = number(arg)?;
            Ok(if index < 0 { index + count } else { index })
        };
        let (first, last) = (place(&args[1])?.max(0), place(&args[2])?);
        let inside = (0..count).zip(list);
        let items = inside.filter(|(index, _)| (first..=last).contains(index));
        Ok(resp::array(
            &items.map(|(_, item)| resp::bulk(item)).collect::<Vec<_>>(),
        ))
    }

    fn pop(&mut self, keys: &[Vec<u8>]) -> Option<Vec<u8>> {
        for key in keys {
            let (first, rest) = match self.list(key) {
                Err(wrong) => return Some(resp::error(wrong)),
                Ok([]) => continue,
                Ok([first, rest @ ..]) => (first.clone(), rest.to_vec()),
            };
            self.put(key, (!rest.is_empty()).then_some(Data::List(rest)));
            return Some(resp::array(&[resp::bulk(key), resp::bulk(first)]));
        }
        None
    }
}

fn number(text: &[u8]) -> Result<i64, &'static str> {
    let text = std::str::from_utf8(text).map_err(|_| NOT_A_NUMBER)?;
    text.parse().map_err(|_| NOT_A_NUMBER)
}

fn length(length: usize) -> Vec<u8> {
    resp::integer(i64::try_from(length).expect("lengths fit"))
}
