//! All short histories of two servers and two slots.

use std::time::Duration;

use super::sim::{Sim, Wish};
use super::world::World;
use crate::proto::addr::NodeAddr;
use crate::proto::backoff::Random;
use crate::proto::cluster::{NodeKey, Settings};
use crate::proto::testing::rounds;
use crate::proto::testing::wire::Command;

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// One thread writes to slot 0.
    Write,
    /// The same thread writes to both slots.
    WriteBoth,
    /// A chain on slot 0.
    Chain,
    /// Slot 0 changes its owner at once.
    Move,
    /// Slot 0 begins to migrate, or goes on.
    Migrate,
    /// The other server hears of everything.
    Gossip,
    /// The node that owned slot 0 at first, and the other: they write, are served, and read.
    Node(usize),
    /// They take what is in their inboxes, and no more.
    Inbox(usize),
    /// The coordinator does one thing, or everything that it can.
    Coordinate,
    Coordinator,
    /// A server answers the topology query.
    Answer,
    /// Connections of a server are reset.
    Reset(usize),
    /// The last command is cancelled.
    Cancel,
    /// So much time passes that pauses end.
    Wait,
}

fn settings() -> Settings {
    Settings {
        seeds: vec![NodeAddr::new("s0", 7000)],
        max_redirects: 8,
        follow_redirects: true,
        strict_order: false,
        replica_reads: false,
        lazy: false,
        refresh_least: Duration::from_millis(20),
        refresh_most: Duration::from_millis(500),
        refresh_period: None,
        drain_limit: Duration::from_millis(40),
    }
}

fn run_coordinator(sim: &mut Sim) {
    while sim.coordinate(false) {}
}

/// Everybody is connected, and everything is published.
fn begin() -> Sim {
    let mut sim = Sim::new(World::new(2, 2), settings(), 1);
    run_coordinator(&mut sim);
    sim.answer_query(0);
    run_coordinator(&mut sim);
    let keys: Vec<NodeKey> = sim.nodes.keys().copied().collect();
    for _ in 0..2 {
        keys.iter().for_each(|&key| sim.run_node(key));
        run_coordinator(&mut sim);
    }
    sim
}

fn node_of(sim: &Sim, server: usize) -> Option<NodeKey> {
    let addr = &sim.world.servers[server].addr;
    let mut nodes = sim.nodes.values().rev();
    nodes.find(|node| node.addr == *addr).map(|node| node.key)
}

/// Does a step; `false` if it changes nothing, so that a shorter history covers it.
fn act(sim: &mut Sim, step: Step) -> bool {
    sim.note(|| format!("--- {step:?}"));
    let write = Command::write;
    match step {
        Step::Write => sim.submit(0, &Wish::Single(write(0, 0)), None),
        Step::WriteBoth => sim.submit(0, &Wish::Pipeline(vec![write(0, 0), write(1, 0)]), None),
        Step::Chain => sim.submit(0, &Wish::Chain(vec![write(0, 0), write(0, 0)]), None),
        Step::Move => {
            let to = 1 - sim.world.owner[0];
            let may = sim.world.migrations[0].is_none() && sim.may_take(to);
            if may {
                sim.world.move_slot(0, to);
            }
            may
        }
        Step::Migrate => {
            let to = 1 - sim.world.owner[0];
            let started = sim.world.migrations[0].is_some();
            let may = started || sim.may_take(to);
            if started {
                sim.world.go_on_migrating(0);
            } else if may {
                sim.world.start_migration(0, to);
            }
            may
        }
        Step::Gossip => {
            let before = sim.world.servers[2].view;
            sim.world.gossip(2);
            before != sim.world.servers[2].view
        }
        Step::Node(server) => {
            let Some(key) = node_of(sim, server) else {
                return false;
            };
            let before = (sim.reported(), sim.nodes[&key].is_quiet());
            sim.run_node(key);
            before != (sim.reported(), true)
        }
        Step::Inbox(server) => {
            let key = node_of(sim, server);
            let Some(key) = key.filter(|key| !sim.nodes[key].inbox.is_empty()) else {
                return false;
            };
            sim.with_node(key, |node, now, world, report| {
                while !node.inbox.is_empty() {
                    node.take(world, report);
                }
                node.write(usize::MAX, now, world, report);
            });
            true
        }
        Step::Coordinate => sim.coordinate(false),
        Step::Coordinator => {
            let busy = sim.coordinate(false);
            run_coordinator(sim);
            busy
        }
        Step::Answer => {
            let asked = sim.is_asking();
            sim.answer_query(0);
            asked
        }
        Step::Reset(server) => {
            let connections = sim.world.connections.values();
            let mut open = connections.filter(|it| it.server == server && !it.closed);
            let open = open.any(|it| !it.parser.is_empty() || !it.replies.is_empty());
            sim.world.reset(server);
            open
        }
        Step::Cancel => {
            let Some(last) = sim.book.submissions.len().checked_sub(1) else {
                return false;
            };
            let open = sim.book.is_open(&sim.ledger, &sim.book.submissions[last]);
            sim.cancel(last, &mut Random::new(1));
            open
        }
        Step::Wait => {
            sim.advance(Duration::from_millis(50));
            sim.cluster.next_tick().is_some_and(|at| at <= sim.now)
        }
    }
}

/// Runs every history of `depth` steps out of these, with callers that leave the writing to the
/// write loop, and with some that do not; gives their number.
fn all_histories(steps: &[Step], depth: usize) -> usize {
    let ways = [false, true].into_iter();
    ways.map(|direct| histories(steps, depth, direct)).sum()
}

fn histories(steps: &[Step], depth: usize, direct: bool) -> usize {
    let mut history = vec![0; depth];
    let mut count = 0;
    loop {
        let mut sim = begin();
        sim.direct = direct;
        // The position of the first step that changed nothing, if there is one.
        let idle = history.iter().position(|&at| !act(&mut sim, steps[at]));
        if idle.is_none() {
            count += 1;
        }
        sim.finish_soon();
        // The next history; all that begin with the same idle step are skipped.
        let mut at = idle.unwrap_or(depth - 1);
        history[at + 1..].fill(0);
        loop {
            history[at] += 1;
            if history[at] < steps.len() {
                break;
            }
            history[at] = 0;
            if at == 0 {
                return count;
            }
            at -= 1;
        }
    }
}

/// Deeper by one step for each factor of ten in `RESLOT_TEST_ROUNDS`.
fn depth(usual: usize) -> usize {
    usual + rounds(1).ilog10() as usize
}

#[test]
fn a_slot_moves_at_once() {
    use Step::{Coordinate, Coordinator, Inbox, Move, Node, Write, WriteBoth};
    let steps = [
        Write,
        Move,
        Node(0),
        Node(1),
        Coordinator,
        Inbox(0),
        WriteBoth,
        Coordinate,
    ];
    assert!(all_histories(&steps, depth(4)) > 100);
}

#[test]
fn a_slot_moves_key_by_key() {
    use Step::{Chain, Coordinator, Inbox, Migrate, Node, Write};
    let steps = [
        Write,
        Migrate,
        Node(0),
        Node(1),
        Coordinator,
        Inbox(0),
        Chain,
    ];
    assert!(all_histories(&steps, depth(4)) > 100);
}

#[test]
fn connections_break_and_callers_go() {
    use Step::{Answer, Cancel, Coordinator, Gossip, Inbox, Move, Node, Reset, Wait, Write};
    let steps = [
        Write,
        Move,
        Node(0),
        Inbox(0),
        Reset(0),
        Coordinator,
        Cancel,
        Answer,
        Gossip,
        Wait,
    ];
    assert!(all_histories(&steps, depth(4)) > 100);
}
