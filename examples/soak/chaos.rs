//! What is done to the cluster: slots move, primaries are replaced, killed and frozen.
//!
//! One thing happens at a time, and the cluster is whole again before the next one. Before a
//! primary is killed or frozen its replica is waited for, so that it is known which acknowledged
//! writes cannot be lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::arena::Arena;
use crate::blows::Blow;
use crate::keys;
use crate::local_cluster::{LocalCluster, PATIENCE, poll_until};
use crate::random::Random;

/// A frozen node that goes on may still be voted out: a replica begins an election up to a second
/// after its primary was found to be gone.
const AFTER_FREEZE: Duration = Duration::from_millis(1_500);

/// A failover that takes longer did not go well: servers pause their clients for up to five seconds
/// while they try.
const IN_GOOD_ORDER: Duration = Duration::from_secs(3);

/// What happens to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Move,
    Failover,
    Kill,
    Freeze,
}

/// The one who does it.
#[derive(Debug)]
pub(crate) struct Chaos<'a> {
    cluster: &'a LocalCluster,
    arena: &'a Arena,
    random: Random,
    atomic: bool,
    /// How often each thing was done.
    done: BTreeMap<&'static str, u64>,
}

impl<'a> Chaos<'a> {
    pub(crate) fn new(cluster: &'a LocalCluster, arena: &'a Arena, random: Random) -> Self {
        Self {
            cluster,
            arena,
            random,
            atomic: cluster.supports_atomic_migration(),
            done: BTreeMap::new(),
        }
    }

    /// Goes on until then; says what was done.
    pub(crate) fn run(mut self, until: Instant) -> String {
        // Each thing happens early, so that short runs see all of them.
        let mut first = vec![Act::Move, Act::Failover, Act::Kill, Act::Freeze];
        while Instant::now() < until {
            let act = match first.len() {
                0 => match self.random.below(20) {
                    0..14 => Act::Move,
                    14 | 15 => Act::Failover,
                    16 | 17 => Act::Kill,
                    _ => Act::Freeze,
                },
                left => first.swap_remove(self.random.below(left)),
            };
            match act {
                Act::Move => self.move_slots(),
                Act::Failover => self.failover(),
                Act::Kill => self.kill(),
                Act::Freeze => self.freeze(),
            }
            std::thread::park_timeout(self.random.millis(0, 300));
        }
        let done = self
            .done
            .iter()
            .map(|(what, count)| format!("{count} {what}"));
        done.collect::<Vec<_>>().join(", ")
    }

    fn note(&mut self, what: &'static str, count: usize) {
        *self.done.entry(what).or_default() += count as u64;
    }

    /// Nodes that serve slots.
    fn primaries(&self) -> Vec<usize> {
        poll_until(PATIENCE, "three primaries", || {
            let node = *self.cluster.running().first().ok_or("no node runs")?;
            let members = self.cluster.members(node)?;
            let serving = members.iter().filter(|member| !member.slots.is_empty());
            let found: Vec<usize> = serving
                .filter_map(|member| self.cluster.node_at(member.port))
                .collect();
            (found.len() == 3)
                .then_some(found)
                .ok_or_else(|| format!("{members:?}"))
        })
    }

    /// A primary, its slots, and its replica.
    fn shard(&mut self) -> (usize, Vec<(u16, u16)>, usize) {
        let primary = *self.random.pick(&self.primaries());
        poll_until(PATIENCE, "the replica of a primary", || {
            let members = self.cluster.members(primary)?;
            let own = members.iter().find(|member| member.has("myself"));
            let slots = own.ok_or("no entry of its own")?.slots.clone();
            let replicas = self.cluster.replicas_of(primary);
            let replica = *replicas.first().ok_or("none")?;
            Ok((primary, slots, replica))
        })
    }

    /// Some slots of one primary go to another one.
    fn move_slots(&mut self) {
        let all = keys::slots();
        let slot = *self.random.pick(&all);
        let from = self.cluster.primary_of(slot);
        let others = self.primaries().into_iter().filter(|&node| node != from);
        let to = *self.random.pick(&others.collect::<Vec<_>>());
        if self.atomic && self.random.chance(50) {
            let moved = self.announce_move("moves atomically", &[slot], from, to);
            self.cluster.move_slot_atomic(slot..=slot, from, to);
            moved.over();
            return self.note("atomic moves", 1);
        }
        let mut slots = vec![slot];
        for _ in 0..self.random.below(5) {
            let more = *self.random.pick(&all);
            if !slots.contains(&more) && self.cluster.primary_of(more) == from {
                slots.push(more);
            }
        }
        let moved = self.announce_move("moves", &slots, from, to);
        let open: Vec<_> = slots
            .iter()
            .map(|&slot| (slot, self.cluster.begin_move(slot, from, to)))
            .collect();
        std::thread::park_timeout(self.random.millis(0, 100));
        // Half of the keys: commands with several keys find them on two nodes.
        for (slot, moving) in &open {
            let slot = slot.to_string();
            let keys = ["CLUSTER", "GETKEYSINSLOT", &slot, "1000"];
            let keys = self.cluster.command(from, &keys);
            let keys: Vec<String> = keys.items().iter().map(|key| key.text()).collect();
            let some: Vec<&String> = keys.iter().filter(|_| self.random.chance(50)).collect();
            if !some.is_empty() {
                moving.migrate_keys(&some);
            }
        }
        std::thread::park_timeout(self.random.millis(0, 150));
        for (_, moving) in open {
            moving.migrate_all();
            moving.finish();
        }
        moved.over();
        self.note("moves", slots.len());
    }

    /// A move explains nothing, but belongs into the report.
    fn announce_move(&self, how: &str, slots: &[u16], from: usize, to: usize) -> Arc<Blow> {
        let what = format!("{slots:?} {how} from node {from} to node {to}");
        let ranges = slots.iter().map(|&slot| (slot, slot)).collect();
        let blow = Blow::new(what, ranges, Instant::now()).harmless(Duration::MAX);
        self.arena.blows.announce(blow)
    }

    /// A replica takes over in good order, which loses nothing.
    fn failover(&mut self) {
        let (primary, slots, replica) = self.shard();
        let what = format!("node {replica} takes over from {}", self.name(primary));
        let blow = Blow::new(what, slots, Instant::now()).harmless(IN_GOOD_ORDER);
        let blow = self.arena.blows.announce(blow);
        self.cluster.failover(replica);
        self.cluster.wait_ready();
        blow.over();
        self.note("failovers", 1);
    }

    fn kill(&mut self) {
        let (primary, slots, replica) = self.shard();
        let safe = self.caught_up(primary, replica);
        let what = format!("{} is killed", self.name(primary));
        let blow = self.arena.blows.announce(Blow::new(what, slots, safe));
        self.cluster.kill(primary);
        self.judge(blow.no_loss_from(Some(Instant::now())));
        self.cluster.wait_promoted(replica);
        std::thread::park_timeout(self.random.millis(0, 500));
        self.cluster.restart(primary);
        self.cluster.wait_ready();
        blow.over();
        self.note("kills", 1);
    }

    /// Freezes a primary for so long that its replica may take over or not.
    fn freeze(&mut self) {
        let (primary, slots, replica) = self.shard();
        // Nobody takes over before some 3.5 s.
        let time = match self.random.chance(30) {
            true => self.random.millis(4_000, 5_000),
            false => self.random.millis(200, 3_000),
        };
        let safe = self.caught_up(primary, replica);
        let what = format!("{} is frozen for {time:.1?}", self.name(primary));
        let blow = self.arena.blows.announce(Blow::new(what, slots, safe));
        self.cluster.pause(primary);
        std::thread::park_timeout(time);
        self.cluster.resume(primary);
        std::thread::park_timeout(AFTER_FREEZE);
        self.cluster.wait_ready();
        // Until it learned of its successor it may have acknowledged writes that are gone.
        let replaced = !self.primaries().contains(&primary);
        let end = replaced.then(Instant::now);
        self.judge(blow.no_loss_from(end));
        blow.over();
        self.note("freezes", 1);
        self.note("freezes with takeover", usize::from(replaced));
    }

    fn judge(&self, result: Result<(), String>) {
        if let Err(text) = result {
            self.arena.violation(&text);
        }
    }

    fn name(&self, node: usize) -> String {
        format!("node {node} ({})", self.cluster.addr(node))
    }

    /// Waits until a replica has all that its primary had at the moment that is given back.
    fn caught_up(&self, primary: usize, replica: usize) -> Instant {
        let safe = Instant::now();
        let offset = |node, field| poll_until(PATIENCE, field, || self.offset(node, field));
        let wanted = offset(primary, "master_repl_offset");
        poll_until(PATIENCE, "a replica to catch up", || {
            match self.offset(replica, "slave_repl_offset")? {
                own if own >= wanted => Ok(()),
                own => Err(format!("{own} of {wanted}")),
            }
        });
        safe
    }

    fn offset(&self, node: usize, field: &str) -> Result<u64, String> {
        let reply = self.cluster.try_command(node, &["INFO", "replication"]);
        let text = reply.map_err(|error| error.to_string())?.text();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let number = line.and_then(|number| number.trim().parse().ok());
        number.ok_or_else(|| format!("node {node}: no {field} in {text}"))
    }
}
