//! Model servers: what each believes of the slots, where keys are, and what was executed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::proto::addr::NodeAddr;
use crate::proto::slot::SLOTS;
use crate::proto::testing::wire::{ANY, Command, Line, Parser};
use crate::proto::topology::{NodeInfo, SlotRange, Topology};
use crate::proto::value::{ServerError, Value};
use crate::proto::verdict::Reply;

/// Slots that commands use. All others belong to the last server for ever.
pub(super) const USED: usize = 4;

/// Keys of each slot.
pub(super) const KEYS: u8 = 2;

/// How a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Well,
    /// Answers LOADING to everything.
    Loading,
    /// Answers CLUSTERDOWN to everything: it does not know the others.
    Lost,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) addr: NodeAddr,
    pub(super) up: bool,
    pub(super) mode: Mode,
    /// It has stopped: nothing is read, nothing answered.
    pub(super) frozen: bool,
    /// Whom it believes to own each slot.
    pub(super) view: [Option<usize>; USED],
}

/// A slot whose keys move one by one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Migration {
    pub(super) from: usize,
    pub(super) to: usize,
    /// All keys have moved and the target serves; the source does not know yet.
    pub(super) flipped: bool,
}

/// A connection, as the server sees it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) server: usize,
    pub(super) parser: Parser,
    pub(super) replies: VecDeque<Reply>,
    /// The server has closed it: what it has sent can still be read.
    pub(super) closed: bool,
    /// The client has closed it: what it has sent may still be executed.
    pub(super) abandoned: bool,
    asking: bool,
    /// The members of the chain that is being read, and whether one of them was refused.
    chain: Option<(Vec<Command>, bool, bool)>,
}

/// Everything outside of the client.
#[derive(Debug)]
pub(super) struct World {
    pub(super) servers: Vec<Server>,
    pub(super) owner: [usize; USED],
    pub(super) migrations: [Option<Migration>; USED],
    /// Keys that have moved ahead of their slot.
    moved: BTreeSet<(u16, u8)>,
    pub(super) connections: BTreeMap<u64, Connection>,
    next: u64,
}

/// What a server did, for the books.
#[derive(Clone, Debug)]
pub(super) enum Deed {
    /// It read a command for the first time in this attempt.
    Saw(usize),
    /// It executed a command or a chain.
    Ran(usize),
    /// It answered with this code.
    Refused(usize, String),
}

impl World {
    /// Servers of which the first `owners` share the slots, and one for the rest of them.
    pub(super) fn new(servers: usize, owners: usize) -> Self {
        let owner = std::array::from_fn(|slot| slot % owners);
        let server = |at: usize| Server {
            addr: NodeAddr::new(&format!("s{at}"), 7000),
            up: true,
            mode: Mode::Well,
            frozen: false,
            view: owner.map(Some),
        };
        Self {
            servers: (0..=servers).map(server).collect(),
            owner,
            migrations: [None; USED],
            moved: BTreeSet::new(),
            connections: BTreeMap::new(),
            next: 0,
        }
    }

    pub(super) fn find(&self, addr: &NodeAddr) -> Option<usize> {
        self.servers.iter().position(|server| server.addr == *addr)
    }

    /// A new connection, if the server runs.
    pub(super) fn connect(&mut self, addr: &NodeAddr) -> Option<u64> {
        let server = self.find(addr)?;
        if !self.servers[server].up || self.servers[server].frozen {
            return None;
        }
        self.next += 1;
        let connection = Connection {
            server,
            parser: Parser::default(),
            replies: VecDeque::new(),
            closed: false,
            abandoned: false,
            asking: false,
            chain: None,
        };
        self.connections.insert(self.next, connection);
        Some(self.next)
    }

    /// What a server answers to CLUSTER SLOTS.
    pub(super) fn topology(&self, server: usize) -> Topology {
        let view = &self.servers[server].view;
        let known = view.iter().enumerate();
        let range = |first: usize, last: usize, owner: usize| {
            let addr = self.servers[owner].addr.clone();
            let aliases = Vec::new();
            SlotRange {
                first: first as u16,
                last: last as u16,
                primary: Some(NodeInfo { addr, aliases }),
                replicas: Vec::new(),
            }
        };
        let known = known.filter_map(|(slot, owner)| Some(range(slot, slot, (*owner)?)));
        let rest = range(USED, usize::from(SLOTS) - 1, self.servers.len() - 1);
        Topology {
            ranges: known.chain([rest]).collect(),
        }
    }

    /// The owner changes at once, with all keys; the two concerned know it, others do not yet.
    pub(super) fn move_slot(&mut self, slot: usize, to: usize) {
        let from = self.owner[slot];
        self.owner[slot] = to;
        self.servers[from].view[slot] = Some(to);
        self.servers[to].view[slot] = Some(to);
    }

    pub(super) fn start_migration(&mut self, slot: usize, to: usize) {
        let from = self.owner[slot];
        self.migrations[slot] = Some(Migration {
            from,
            to,
            flipped: false,
        });
        // The target must know whom to send others to meanwhile.
        self.servers[to].view[slot] = Some(from);
    }

    pub(super) fn move_key(&mut self, slot: usize, key: u8) {
        self.moved.insert((slot as u16, key));
    }

    /// The next step of a migration: the last keys, the target's flip, the source's flip.
    pub(super) fn go_on_migrating(&mut self, slot: usize) {
        let Some(migration) = self.migrations[slot] else {
            return;
        };
        let left = (0..KEYS).find(|&key| !self.moved.contains(&(slot as u16, key)));
        if let Some(key) = left {
            return self.move_key(slot, key);
        }
        if !migration.flipped {
            self.owner[slot] = migration.to;
            self.servers[migration.to].view[slot] = Some(migration.to);
            self.migrations[slot] = Some(Migration {
                flipped: true,
                ..migration
            });
            return;
        }
        self.servers[migration.from].view[slot] = Some(migration.to);
        self.migrations[slot] = None;
        for key in 0..KEYS {
            self.moved.remove(&(slot as u16, key));
        }
    }

    /// A server hears what is true.
    pub(super) fn gossip(&mut self, server: usize) {
        let busy = |slot: usize| self.migrations[slot].is_some();
        let view: Vec<_> = (0..USED)
            .map(|slot| {
                if busy(slot) {
                    self.servers[server].view[slot]
                } else {
                    Some(self.owner[slot])
                }
            })
            .collect();
        self.servers[server].view.copy_from_slice(&view);
        self.servers[server].mode = Mode::Well;
    }

    pub(super) fn is_migrating(&self, server: usize) -> bool {
        let parts = self.migrations.iter().flatten();
        parts
            .into_iter()
            .any(|part| part.from == server || part.to == server)
    }

    /// A server dies: its connections end, whatever it had read is gone.
    pub(super) fn kill(&mut self, server: usize) {
        self.servers[server].up = false;
        self.servers[server].frozen = false;
        self.reset(server);
    }

    /// All connections of a server end.
    pub(super) fn reset(&mut self, server: usize) {
        for connection in self.connections.values_mut() {
            if connection.server == server {
                connection.closed = true;
                connection.replies.clear();
            }
        }
    }

    /// It comes back with what it knew; until it hears from the others it serves nothing.
    pub(super) fn restart(&mut self, server: usize) {
        self.servers[server].up = true;
        self.servers[server].mode = Mode::Lost;
    }

    /// Whether a server would run this now, or the error that it gives.
    fn admit(
        &self,
        server: usize,
        command: &Command,
        asking: bool,
        queueing: bool,
    ) -> Result<(), String> {
        let slot = usize::from(command.slot);
        let it = &self.servers[server];
        let at = |server: usize| &self.servers[server].addr;
        match it.mode {
            Mode::Well => {}
            Mode::Loading => return Err("LOADING dataset in memory".to_owned()),
            Mode::Lost => return Err("CLUSTERDOWN The cluster is down".to_owned()),
        }
        if command.slot == ANY {
            return Ok(());
        }
        let away = |key: &&u8| self.moved.contains(&(command.slot, **key));
        let away = command.keys.iter().filter(away).count();
        let migration = self.migrations[slot];
        if let Some(migration) = migration.filter(|part| part.to == server && !part.flipped) {
            return match (asking, away) {
                (true, away) if away == command.keys.len() => Ok(()),
                (true, _) if command.keys.len() > 1 => Err("TRYAGAIN not all keys".to_owned()),
                // EXEC looks at the keys of all members together.
                (true, _) if queueing => Ok(()),
                (true, _) => panic!("s{server}: ASKING for {command:?}, which has not moved"),
                (false, _) => Err(format!("MOVED {slot} {}", at(migration.from))),
            };
        }
        match it.view[slot] {
            None => Err("CLUSTERDOWN Hash slot not served".to_owned()),
            Some(owner) if owner != server => Err(format!("MOVED {slot} {}", at(owner))),
            Some(_) => match migration.filter(|part| part.from == server) {
                Some(part) if away == command.keys.len() => {
                    Err(format!("ASK {slot} {}", at(part.to)))
                }
                Some(_) if away > 0 => Err("TRYAGAIN not all keys".to_owned()),
                _ => {
                    assert_eq!(self.owner[slot], server, "one owner at a time");
                    Ok(())
                }
            },
        }
    }

    /// Executes the next line of a connection, if there is a whole one.
    pub(super) fn serve(&mut self, id: u64, deeds: &mut Vec<Deed>) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        let server = connection.server;
        if connection.closed || !self.servers[server].up || self.servers[server].frozen {
            return false;
        }
        let Some(line) = connection.parser.next_line() else {
            return false;
        };
        let mut chain = connection.chain.take();
        let mut asking = connection.asking;
        let reply = self.answer(server, line, &mut asking, &mut chain, deeds);
        let connection = self.connections.get_mut(&id).expect("looked up above");
        (connection.asking, connection.chain) = (asking, chain);
        if !connection.abandoned {
            connection.replies.push_back(reply);
        }
        true
    }

    fn answer(
        &self,
        server: usize,
        line: Line,
        asking: &mut bool,
        chain: &mut Option<(Vec<Command>, bool, bool)>,
        deeds: &mut Vec<Deed>,
    ) -> Reply {
        let error = |line: &str| Ok(Value::Error(ServerError::new(line)));
        let code = |line: &str| line.split(' ').next().unwrap_or("").to_owned();
        match line {
            Line::Asking => {
                *asking = true;
                Ok(Value::Ok)
            }
            Line::One(place, command) => {
                deeds.push(Deed::Saw(place));
                match self.admit(server, &command, std::mem::take(asking), false) {
                    Ok(()) => {
                        deeds.push(Deed::Ran(place));
                        Ok(Value::Integer(place as i64))
                    }
                    Err(line) => {
                        deeds.push(Deed::Refused(place, code(&line)));
                        error(&line)
                    }
                }
            }
            Line::Multi(place) => {
                deeds.push(Deed::Saw(place));
                *chain = Some((Vec::new(), std::mem::take(asking), false));
                Ok(Value::Ok)
            }
            Line::Member(place, command) => {
                let (members, asked, refused) = chain.as_mut().expect("MULTI came first");
                let admitted = self.admit(server, &command, *asked, true);
                members.push(command);
                match admitted {
                    Ok(()) => Ok(Value::Simple(b"QUEUED".to_vec())),
                    Err(line) => {
                        *refused = true;
                        deeds.push(Deed::Refused(place, code(&line)));
                        error(&line)
                    }
                }
            }
            Line::Exec(place) => {
                let (members, asked, refused) = chain.take().expect("MULTI came first");
                if refused {
                    return error("EXECABORT Transaction discarded");
                }
                let mut all = members[0].clone();
                all.keys = members
                    .iter()
                    .flat_map(|member| member.keys.clone())
                    .collect();
                all.keys.sort();
                all.keys.dedup();
                if let Err(line) = self.admit(server, &all, asked, false) {
                    deeds.push(Deed::Refused(place, code(&line)));
                    return error(&line);
                }
                deeds.push(Deed::Ran(place));
                Ok(Value::Array(vec![Value::Integer(place as i64)]))
            }
        }
    }
}
