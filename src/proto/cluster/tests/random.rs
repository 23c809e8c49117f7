//! Random histories of a whole cluster: slots move, nodes die, maps are stale.

use std::time::Duration;

use super::sim::{Sim, Wish};
use super::world::{KEYS, Mode, USED, World};
use crate::proto::backoff::Random;
use crate::proto::cluster::{NodeKey, Settings};
use crate::proto::testing::for_each_seed;
use crate::proto::testing::wire::{ANY, Command};

const SERVERS: usize = 5;
const OWNERS: usize = 3;
const THREADS: usize = 3;

fn settings(random: &mut Random) -> Settings {
    let seeds = (0..1 + random.below(2))
        .map(|at| crate::proto::addr::NodeAddr::new(&format!("s{at}"), 7000));
    Settings {
        seeds: seeds.collect(),
        max_redirects: [1, 4, 16][random.below(3)],
        follow_redirects: true,
        strict_order: false,
        replica_reads: false,
        lazy: random.below(2) == 0,
        refresh_least: Duration::from_millis(20),
        refresh_most: Duration::from_millis(500),
        refresh_period: Some(Duration::from_secs(2)),
        drain_limit: Duration::from_millis(40),
    }
}

/// How likely each kind of trouble is.
struct Chaos {
    moves: usize,
    failures: usize,
    stalls: usize,
}

fn command(random: &mut Random, slot: u16) -> Command {
    let keys = if random.below(6) == 0 {
        (0..KEYS).collect()
    } else {
        vec![random.below(KEYS.into()) as u8]
    };
    Command {
        slot,
        keys,
        write: random.below(3) > 0,
    }
}

fn wish(random: &mut Random) -> Wish {
    // One slot is used more than others.
    let slot = |random: &mut Random| random.below(USED + 3).saturating_sub(3) as u16;
    match random.below(7) {
        6 => Wish::Single(command(random, ANY)),
        0 => {
            let slot = slot(random);
            let length = 1 + random.below(2);
            Wish::Chain((0..length).map(|_| command(random, slot)).collect())
        }
        1..3 => {
            let length = 1 + random.below(6);
            let commands = (0..length).map(|_| {
                let slot = slot(random);
                command(random, slot)
            });
            Wish::Pipeline(commands.collect())
        }
        _ => {
            let slot = slot(random);
            Wish::Single(command(random, slot))
        }
    }
}

fn trouble(sim: &mut Sim, chaos: &Chaos, random: &mut Random) {
    let server = random.below(SERVERS);
    let slot = random.below(USED + 2).saturating_sub(2);
    let dice = random.below(100);
    let up = sim.world.servers[server].up && sim.world.servers[server].mode == Mode::Well;
    let may_take = up && server != sim.world.owner[slot] && sim.may_take(server);
    let owner = sim.world.owner[slot];
    let moving = sim.world.migrations[slot].is_some();
    let alive = sim.world.servers[owner].up && sim.world.servers[owner].mode == Mode::Well;
    if dice < chaos.moves {
        let step = random.below(4);
        if moving {
            sim.note(|| format!("--- slot {slot} goes on migrating"));
            sim.world.go_on_migrating(slot);
        } else if may_take && alive && step == 0 {
            sim.note(|| format!("--- slot {slot} moves from s{owner} to s{server}"));
            sim.world.move_slot(slot, server);
        } else if may_take && alive && step == 1 {
            sim.note(|| format!("--- slot {slot} begins to migrate from s{owner} to s{server}"));
            sim.world.start_migration(slot, server);
        } else {
            let heard = sim.world.servers[server].up;
            if heard {
                sim.note(|| format!("--- s{server} hears the news"));
                sim.world.gossip(server);
            }
        }
    } else if dice < chaos.moves + chaos.failures {
        match random.below(6) {
            0 if up && !sim.world.is_migrating(server) => {
                sim.note(|| format!("--- s{server} dies"));
                sim.world.kill(server);
            }
            1 | 2 => fail_over(sim, random),
            3 if !sim.world.servers[server].up => {
                sim.note(|| format!("--- s{server} comes back"));
                sim.world.restart(server);
            }
            4 => {
                sim.note(|| format!("--- connections of s{server} are reset"));
                sim.world.reset(server);
            }
            5 if up => {
                let loading = random.below(2) == 0;
                let mode = if loading { Mode::Loading } else { Mode::Lost };
                sim.note(|| format!("--- s{server} is {mode:?}"));
                sim.world.servers[server].mode = mode;
            }
            _ if sim.world.servers[server].up => sim.world.gossip(server),
            _ => {}
        }
    } else if dice < chaos.moves + chaos.failures + chaos.stalls {
        let frozen = &mut sim.world.servers[server].frozen;
        *frozen = !*frozen;
        let frozen = *frozen;
        sim.note(|| format!("--- s{server} is frozen: {frozen}"));
    }
}

/// Somebody else takes the slots of a dead server.
fn fail_over(sim: &mut Sim, random: &mut Random) {
    let to = random.below(SERVERS);
    if !sim.world.servers[to].up || sim.world.servers[to].mode != Mode::Well || !sim.may_take(to) {
        return;
    }
    for slot in 0..USED {
        let owner = sim.world.owner[slot];
        if !sim.world.servers[owner].up {
            sim.note(|| format!("--- s{to} takes slot {slot} of dead s{owner}"));
            sim.world.owner[slot] = to;
            sim.world.servers[to].view[slot] = Some(to);
        }
    }
}

fn step(sim: &mut Sim, chaos: &Chaos, random: &mut Random) {
    sim.advance(Duration::from_micros(random.below(200) as u64));
    let keys: Vec<NodeKey> = sim.nodes.keys().copied().collect();
    match random.below(100) {
        0..26 => {
            let eager = random.below(3) == 0;
            for _ in 0..1 + random.below(8) {
                sim.coordinate(eager);
            }
        }
        26..58 if !keys.is_empty() => {
            let key = keys[random.below(keys.len())];
            let most = [1, 7, 30, usize::MAX][random.below(4)];
            match random.below(8) {
                0 => sim.with_node(key, |node, now, world, report| {
                    node.dial(now, world, report)
                }),
                1..3 => sim.with_node(key, |node, _, world, report| node.take(world, report)),
                3 => sim.with_node(key, |node, now, world, report| {
                    while !node.inbox.is_empty() {
                        node.take(world, report);
                    }
                    node.finish(now, world, report);
                }),
                4..6 => sim.with_node(key, |node, now, world, report| {
                    node.write(most, now, world, report);
                }),
                _ => sim.with_node(key, |node, now, world, report| {
                    node.read(most.min(3), now, world, report);
                }),
            }
        }
        58..78 => {
            let ids: Vec<u64> = sim.world.connections.keys().copied().collect();
            if !ids.is_empty() {
                // New connections are busier than old ones.
                let back = random.below(ids.len().min(8));
                let id = ids[ids.len() - 1 - back];
                for _ in 0..1 + random.below(6) {
                    sim.serve(id);
                }
            }
        }
        78..88 => {
            let wish = wish(random);
            let thread = random.below(THREADS);
            let deadline =
                (random.below(6) == 0).then(|| Duration::from_millis(1 + random.below(40) as u64));
            sim.direct = random.below(2) == 0;
            sim.submit(thread, &wish, deadline);
        }
        88..91 => {
            let at = random.next_u64() as usize;
            sim.answer_query(at);
        }
        91..93 => {
            let count = sim.book.submissions.len();
            if count > 0 {
                let at = count - 1 - random.below(count.min(6));
                sim.cancel(at, random);
            }
        }
        93..97 if sim.ready.is_some() => trouble(sim, chaos, random),
        97 => sim.advance(Duration::from_millis(random.below(30) as u64)),
        // Where nothing waits, callers write by themselves.
        98 => keys.into_iter().for_each(|key| sim.run_node(key)),
        _ => {}
    }
}

fn history(seed: u64, chaos: &Chaos) -> usize {
    let mut random = Random::new(seed);
    let settings = settings(&mut random);
    let mut sim = Sim::new(World::new(SERVERS, OWNERS), settings, seed);
    for _ in 0..1500 {
        step(&mut sim, chaos, &mut random);
    }
    sim.finish().successes()
}

#[test]
fn slots_move_while_commands_run() {
    let chaos = Chaos {
        moves: 100,
        failures: 0,
        stalls: 0,
    };
    let mut successes = 0;
    for_each_seed(150, |seed| successes += history(seed, &chaos));
    assert!(successes > 0);
}

#[test]
fn nodes_fail_while_slots_move() {
    let chaos = Chaos {
        moves: 50,
        failures: 30,
        stalls: 20,
    };
    let mut successes = 0;
    for_each_seed(150, |seed| successes += history(seed, &chaos));
    assert!(successes > 0);
}
