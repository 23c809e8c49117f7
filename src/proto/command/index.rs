//! Finding a command by name: a hash index over the table that is built at compile time.

use super::spec::Spec;
use super::table;

/// All commands, in the table's order.
pub(super) static COMMANDS: [Spec; COUNT] = flatten();

/// Positions in `COMMANDS` by hash of name and subcommand, with linear probing. At most half full,
/// so that a search ends soon and always ends.
static INDEX: [u16; SIZE] = build_index();

const COUNT: usize = count();
const SIZE: usize = (COUNT * 2).next_power_of_two();
const EMPTY: u16 = u16::MAX;

/// Longest name or subcommand; what is longer need not be hashed.
const LONGEST: usize = 24;

/// Looks up the command that these arguments begin with; case does not matter. Argument 1 counts
/// only where the command is a container of subcommands.
///
/// `None` for a command that is not in the table, or a subcommand that its container does not list.
pub(crate) fn find<'a>(mut args: impl Iterator<Item = &'a [u8]>) -> Option<&'static Spec> {
    let name = args.next()?;
    let command = probe(name, b"")?;
    if !command.container {
        return Some(command);
    }
    match args.next() {
        Some(sub) if !sub.is_empty() => probe(name, sub),
        _ => Some(command),
    }
}

/// Looks up a command that is no container of subcommands.
pub(crate) fn find_plain(name: &[u8]) -> Option<&'static Spec> {
    probe(name, b"").filter(|spec| !spec.container)
}

fn probe(name: &[u8], sub: &[u8]) -> Option<&'static Spec> {
    if name.len() > LONGEST || sub.len() > LONGEST {
        return None;
    }
    let mut at = hash(name, sub) as usize % SIZE;
    while INDEX[at] != EMPTY {
        let spec = &COMMANDS[usize::from(INDEX[at])];
        if is(spec.name, name) && is(spec.sub, sub) {
            return Some(spec);
        }
        at = (at + 1) % SIZE;
    }
    None
}

/// Whether it is this word of the table, in any case. Words are short: nothing is faster.
fn is(word: &str, text: &[u8]) -> bool {
    let mut pairs = word.bytes().zip(text);
    word.len() == text.len() && pairs.all(|(a, b)| a == b.to_ascii_uppercase())
}

/// FNV-1a over the letters without their case; other bytes may collide, which only costs time.
const fn hash(name: &[u8], sub: &[u8]) -> u32 {
    add(add(0x811c_9dc5, name) ^ 0x5a, sub)
}

const fn add(mut hash: u32, text: &[u8]) -> u32 {
    let mut at = 0;
    while at < text.len() {
        hash = (hash ^ (text[at] & 0xdf) as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash
}

const fn count() -> usize {
    let mut count = 0;
    let mut group = 0;
    while group < table::GROUPS.len() {
        count += table::GROUPS[group].len();
        group += 1;
    }
    count
}

const fn flatten() -> [Spec; COUNT] {
    let mut commands = [table::GROUPS[0][0]; COUNT];
    let (mut next, mut group) = (0, 0);
    while group < table::GROUPS.len() {
        let mut at = 0;
        while at < table::GROUPS[group].len() {
            commands[next] = table::GROUPS[group][at];
            next += 1;
            at += 1;
        }
        group += 1;
    }
    commands
}

const fn build_index() -> [u16; SIZE] {
    let commands = flatten();
    let mut index = [EMPTY; SIZE];
    let mut next = 0;
    while next < COUNT {
        let (name, sub) = (
            commands[next].name.as_bytes(),
            commands[next].sub.as_bytes(),
        );
        assert!(name.len() <= LONGEST && sub.len() <= LONGEST);
        let mut at = hash(name, sub) as usize % SIZE;
        while index[at] != EMPTY {
            at = (at + 1) % SIZE;
        }
        index[at] = next as u16;
        next += 1;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn lookup(name: &[u8], sub: Option<&[u8]>) -> Option<&'static Spec> {
        find([name].into_iter().chain(sub))
    }

    #[test]
    fn every_command_is_found_in_any_case_and_once() {
        let mut names = HashSet::new();
        for spec in &COMMANDS {
            assert!(names.insert(spec.full_name()), "{} twice", spec.full_name());
            for change in [str::to_ascii_uppercase, str::to_ascii_lowercase] {
                let (name, sub) = (change(spec.name), change(spec.sub));
                let found = lookup(name.as_bytes(), Some(sub.as_bytes())).unwrap();
                assert_eq!(found.full_name(), spec.full_name());
            }
            let container = lookup(spec.name.as_bytes(), None).unwrap();
            assert!(spec.sub.is_empty() || container.container, "{}", spec.name);
        }
    }

    #[test]
    fn what_is_not_a_command_is_not_found() {
        let long = [b'G'; 300];
        for name in [
            &b""[..],
            b"GETT",
            b"GE",
            b"G\xd4\xc5",
            b"CLIENT LIST",
            &long,
        ] {
            assert!(lookup(name, None).is_none());
        }
        assert!(lookup(b"CLIENT", Some(b"NOSUCH")).is_none());
        assert!(lookup(b"CLIENT", Some(&long)).is_none());
        let bare = lookup(b"client", Some(b"")).unwrap();
        assert_eq!(bare.full_name(), "CLIENT");
        let not_a_container = lookup(b"get", Some(b"LIST")).unwrap();
        assert_eq!(not_a_container.full_name(), "GET");
    }

    #[test]
    fn searches_are_short() {
        let longest = COMMANDS.iter().zip(0u16..).map(|(spec, position)| {
            let home = hash(spec.name.as_bytes(), spec.sub.as_bytes()) as usize % SIZE;
            let place = INDEX.iter().position(|&entry| entry == position);
            (place.unwrap() + SIZE - home) % SIZE
        });
        assert!(longest.max() < Some(16));
    }
}
