//! Banks: the accounts of each are in one slot, and what they hold together never changes.

use reslot::{Client, Result, Watched, cmd};

use crate::arena::{Arena, Excuse, PATIENCE};
use crate::keys::Key;
use crate::random::Random;
use crate::tally::Kind;

/// How many banks there are.
const BANKS: usize = 10;

/// Accounts of a bank.
const ACCOUNTS: usize = 5;

/// What an account holds at first.
const BALANCE: i64 = 1_000;

/// What a bank holds.
const TOTAL: i64 = BALANCE * ACCOUNTS as i64;

/// One bank: the keys of its accounts.
#[derive(Clone, Debug)]
pub(crate) struct Bank(Vec<Key>);

/// A move of money: from one account, to another, how much.
type Transfer = (usize, usize, i64);

impl Bank {
    fn slot(&self) -> u16 {
        self.0[0].slot()
    }

    fn name(&self, account: usize) -> &str {
        self.0[account].name()
    }

    fn read(&self) -> reslot::Cmd {
        let read = cmd("MGET");
        self.0.iter().fold(read, |read, key| read.arg(key.name()))
    }
}

/// All banks.
pub(crate) fn banks() -> Vec<Bank> {
    let account = |bank, account| Key::new(bank, &format!("account:{account}"));
    let bank = |bank| Bank((0..ACCOUNTS).map(|each| account(bank, each)).collect());
    (0..BANKS).map(bank).collect()
}

/// Gives every account its balance.
pub(crate) fn open(client: &Client) -> Result<()> {
    for bank in banks() {
        let set = bank
            .0
            .iter()
            .fold(cmd("MSET"), |set, key| set.arg(key.name()).arg(BALANCE));
        client.query::<()>(set)?;
    }
    Ok(())
}

/// Moves money by transactions, or in watched sessions, until all is over.
pub(crate) fn run(arena: &Arena, kind: Kind, mut random: Random) {
    let banks = banks();
    while !arena.is_over() {
        let bank = random.pick(&banks);
        let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
        let transfer = (from, to, random.below(100) as i64);
        match random.below(10) {
            0 => look(arena, bank),
            _ if kind == Kind::Watch => watch(arena, bank, transfer),
            _ => transact(arena, bank, transfer),
        }
        if random.chance(10) {
            std::thread::park_timeout(random.millis(0, 3));
        }
    }
}

fn transact(arena: &Arena, bank: &Bank, (from, to, amount): Transfer) {
    let call = || {
        arena.client.transaction::<(i64, i64, Vec<i64>)>(|t| {
            t.add(cmd("DECRBY").arg(bank.name(from)).arg(amount));
            t.add(cmd("INCRBY").arg(bank.name(to)).arg(amount));
            t.add(bank.read());
        })
    };
    let (result, span) = arena.timed(Kind::Transaction, PATIENCE, call);
    let slot = Some(bank.slot());
    arena.fate(Kind::Transaction, span, slot, Excuse::default(), &result);
    if let Ok((_, _, balances)) = result {
        compare(arena, "a transaction", bank, &balances);
    }
}

fn watch(arena: &Arena, bank: &Bank, transfer: Transfer) {
    let names: Vec<&str> = bank.0.iter().map(Key::name).collect();
    let call = || {
        let session = |session: &mut Watched<'_>| session_of(session, arena, bank, transfer);
        arena.client.watch(&names, session)
    };
    let (result, span) = arena.timed(Kind::Watch, PATIENCE, call);
    let slot = Some(bank.slot());
    arena.fate(Kind::Watch, span, slot, Excuse::default(), &result);
    if let Ok(balances) = result {
        compare(arena, "a watched session", bank, &balances);
    }
}

/// Reads the balances, changes two of them, and writes these.
fn session_of(
    session: &mut Watched<'_>,
    arena: &Arena,
    bank: &Bank,
    (from, to, amount): Transfer,
) -> Result<Vec<i64>> {
    let mut balances: Vec<i64> = session.query(bank.read())?;
    compare(arena, "what a session read", bank, &balances);
    if balances.len() != ACCOUNTS {
        return Ok(balances);
    }
    balances[from] -= amount;
    balances[to] += amount;
    let (_, _, after): (String, String, Vec<i64>) = session.transaction(|t| {
        t.add(cmd("SET").arg(bank.name(from)).arg(balances[from]));
        t.add(cmd("SET").arg(bank.name(to)).arg(balances[to]));
        t.add(bank.read());
    })?;
    if after != balances {
        let text = format!("a watched session wrote {balances:?} and found {after:?}");
        arena.violation(&text);
    }
    Ok(after)
}

/// Reads a bank and compares.
pub(crate) fn look(arena: &Arena, bank: &Bank) {
    let read = || arena.client.query::<Vec<i64>>(bank.read());
    let (result, span) = arena.timed(Kind::Single, PATIENCE, read);
    let excuse = Excuse {
        read: true,
        ..Excuse::default()
    };
    arena.fate(Kind::Single, span, Some(bank.slot()), excuse, &result);
    if let Ok(balances) = result {
        compare(arena, "a read", bank, &balances);
    }
}

fn compare(arena: &Arena, what: &str, bank: &Bank, balances: &[i64]) {
    if balances.len() != ACCOUNTS || balances.iter().sum::<i64>() != TOTAL {
        let (name, slot) = (bank.name(0), bank.slot());
        arena.violation(&format!(
            "the bank of {name} (slot {slot}) by {what}: {balances:?}, not {TOTAL} together"
        ));
    }
}
