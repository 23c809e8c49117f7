//! Refreshing the map: whom to ask, what to believe, which nodes begin and end.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use super::{Cluster, Dial, Effect, Health, NodeAddr, NodeKey, QueryError, QueryId, Role, Source};
use crate::proto::outcome::Reason;
use crate::proto::refresh::RefreshCause;
use crate::proto::slot::{Slot, SlotSet};
use crate::proto::topology::{NodeInfo, Topology};
use crate::proto::unit::{Target, Ticket, Unit};

/// The queries of the running refresh.
#[derive(Debug, Default)]
pub(super) struct Queries {
    next: u64,
    /// Queries without an answer yet: all seeds at the start, one at a time afterwards.
    open: Vec<QueryId>,
    /// Whom to ask if the present one fails.
    candidates: VecDeque<Source>,
    /// The node to ask first: it is known to know more than others.
    hint: Option<NodeKey>,
    /// Why the seeds failed.
    errors: Vec<String>,
    ready: Ready,
}

/// Whether the one who made the client was told.
#[derive(Debug, Default, PartialEq, Eq)]
enum Ready {
    /// No map yet.
    #[default]
    NoMap,
    /// A map, but not every primary was tried.
    Connecting,
    Told,
}

/// The most queries at the start.
const SEEDS_AT_ONCE: usize = 16;

impl<T: Ticket> Cluster<T> {
    pub(super) fn ask_seeds(&mut self, now: Instant) {
        self.gate.request(RefreshCause::Start);
        if let Some(cause) = self.gate.start(now) {
            self.effects.push(Effect::Refresh(cause));
            let seeds: Vec<_> = self
                .settings
                .seeds
                .iter()
                .take(SEEDS_AT_ONCE)
                .cloned()
                .collect();
            for seed in seeds {
                self.ask_source(Source::Seed(seed));
            }
        }
        self.schedule_period(now);
    }

    pub(super) fn want_refresh(&mut self, cause: RefreshCause, hint: Option<NodeKey>) {
        if self.query.ready == Ready::NoMap {
            return;
        }
        self.gate.request(cause);
        self.query.hint = hint.or(self.query.hint);
    }

    pub(super) fn schedule_period(&mut self, now: Instant) {
        self.next_period = self.settings.refresh_period.map(|period| {
            // A fifth of spread keeps many clients from asking at the same moment.
            let spread = self.random.below(1000) as u32;
            now + period * 9 / 10 + period / 5 * spread / 1000
        });
    }

    pub(super) fn start_refresh(&mut self, now: Instant) {
        if let Some(cause) = self.gate.start(now) {
            self.effects.push(Effect::Refresh(cause));
            self.query.candidates = self.candidates();
            self.ask_next();
        }
    }

    /// First the node that was named, then healthy primaries, replicas, everything else, seeds.
    fn candidates(&mut self) -> VecDeque<Source> {
        let mut ranked: Vec<(u8, u64, NodeAddr)> = Vec::new();
        let hint = self.query.hint.take();
        let nodes: Vec<_> = self
            .nodes
            .iter()
            .map(|(key, node)| (key, node.role, node.health, node.addr.clone()))
            .collect();
        for (key, role, health, addr) in nodes {
            let rank = match (health, role) {
                (Health::Failing, _) => continue,
                _ if Some(key) == hint => 0,
                (Health::Up, Role::Primary) => 1,
                (Health::Up, _) | (Health::Unknown, Role::Primary) => 2,
                (Health::Unknown, _) => 3,
            };
            ranked.push((rank, self.random.next_u64(), addr));
        }
        ranked.sort();
        let nodes = ranked.into_iter().map(|(_, _, addr)| Source::Node(addr));
        nodes
            .chain(self.settings.seeds.iter().cloned().map(Source::Seed))
            .collect()
    }

    fn ask_next(&mut self) {
        match self.query.candidates.pop_front() {
            Some(source) => {
                self.gate.sent();
                self.ask_source(source);
            }
            None => self.gate.fail(),
        }
    }

    fn ask_source(&mut self, source: Source) {
        let id = QueryId(self.query.next);
        self.query.next += 1;
        self.query.open.push(id);
        self.effects.push(Effect::Query(id, source));
    }

    /// An answer to a query; one that nobody waits for any more is dropped.
    pub(super) fn topology(
        &mut self,
        query: QueryId,
        result: Result<Topology, QueryError>,
        now: Instant,
    ) {
        let Some(at) = self.query.open.iter().position(|&open| open == query) else {
            return;
        };
        self.query.open.swap_remove(at);
        match result {
            Ok(topology) => self.adopt(&topology, now),
            Err(QueryError::NotACluster(addr, _)) if self.may_be_standalone() => {
                self.standalone = true;
                self.adopt(&Topology::standalone(addr), now);
            }
            Err(QueryError::NotACluster(_, text) | QueryError::Failed(text)) => {
                self.query_failed(text);
            }
        }
    }

    /// A single server is meant if it is all that the user named, and was no cluster before: one
    /// node that lost its configuration must not take over everything.
    fn may_be_standalone(&self) -> bool {
        let first = self.standalone || self.query.ready == Ready::NoMap;
        self.settings.seeds.len() == 1 && first
    }

    fn query_failed(&mut self, text: String) {
        if self.query.ready != Ready::NoMap {
            return self.ask_next();
        }
        self.query.errors.push(text);
        if self.query.open.is_empty() {
            let errors = std::mem::take(&mut self.query.errors);
            self.query.ready = Ready::Told;
            self.effects.push(Effect::Ready(Err(errors)));
        }
    }

    /// Installs a map as a difference to the present one.
    fn adopt(&mut self, topology: &Topology, now: Instant) {
        // The seeds that did not answer yet are not needed any more.
        self.query.open.clear();
        let sent = self.gate.sent_at().unwrap_or(0);
        let wanted = self.list_nodes(topology);
        let mut holes = SlotSet::new();
        let mut changed = false;
        for slot in Slot::all() {
            if self
                .patched
                .get(slot)
                .is_some_and(|&patched| patched > sent)
            {
                continue;
            }
            let to = wanted[slot.index()];
            if to.is_none() && self.owner(slot).is_some() && !self.holes.contains(slot) {
                // One map that leaves a slot out may come from a node that knows too little.
                holes.insert(slot);
                continue;
            }
            if self.owner(slot) != to {
                changed = true;
                self.change_owner(slot, to);
            }
        }
        self.patched.retain(|&patched| patched > sent);
        let unsure = !holes.is_empty();
        self.holes = holes;
        self.gate.finish(changed);
        if self.query.ready == Ready::NoMap {
            self.query.ready = Ready::Connecting;
        }
        if unsure || self.has_trouble() {
            self.want_refresh(RefreshCause::Uncovered, None);
        }
        self.reap(now);
        self.check_ready();
    }

    /// Whether commands wait for a better map.
    fn has_trouble(&self) -> bool {
        let failing = |key: &NodeKey| {
            self.nodes
                .get(*key)
                .is_some_and(|node| node.health == Health::Failing)
        };
        let uncovered = self.holds.waiting().any(|slot| self.owner(slot).is_none());
        let mut owners: Vec<NodeKey> = self.owners.iter().flatten().copied().collect();
        owners.dedup();
        uncovered || owners.iter().any(failing)
    }

    /// Brings the list of nodes up to date and gives the owner of each slot.
    fn list_nodes(&mut self, topology: &Topology) -> Vec<Option<NodeKey>> {
        self.nodes
            .iter_mut()
            .for_each(|(_, node)| node.role = Role::Unlisted);
        let mut wanted = vec![None; self.owners.len()];
        let mut replicas: HashMap<NodeKey, Vec<NodeKey>> = HashMap::new();
        for range in &topology.ranges {
            let Some(primary) = &range.primary else {
                continue;
            };
            let key = self.list_node(primary, Role::Primary);
            wanted[usize::from(range.first)..=usize::from(range.last)].fill(Some(key));
            for replica in &range.replicas {
                let replica = self.list_node(replica, Role::Replica);
                let listed = replicas.entry(key).or_default();
                if replica != key && !listed.contains(&replica) {
                    listed.push(replica);
                }
            }
        }
        // The order differs from node to node and means nothing.
        replicas.values_mut().for_each(|list| list.sort());
        if self.replicas != replicas {
            self.replicas = replicas;
            self.dirty = true;
        }
        wanted
    }

    fn list_node(&mut self, info: &NodeInfo, role: Role) -> NodeKey {
        let known = self.nodes.find(&info.addr);
        let known = known.or_else(|| info.aliases.iter().find_map(|alias| self.nodes.find(alias)));
        let key = known.unwrap_or_else(|| self.nodes.get_or_create(&info.addr));
        self.nodes.add_alias(key, &info.addr);
        for alias in &info.aliases {
            self.nodes.add_alias(key, alias);
        }
        if let Some(node) = self.nodes.get_mut(key) {
            node.linger_until = None;
            // Who is the primary of one range and a replica of another is a primary.
            if node.role != Role::Primary {
                node.role = role;
            }
        }
        match role {
            Role::Primary => {
                let dial = if self.settings.lazy {
                    Dial::OnDemand
                } else {
                    Dial::Now
                };
                self.spawn(key, dial);
            }
            Role::Replica if self.settings.replica_reads => self.spawn(key, Dial::OnDemand),
            Role::Replica | Role::Unlisted => {}
        }
        key
    }

    pub(super) fn spawn(&mut self, key: NodeKey, dial: Dial) {
        if let Some(node) = self.nodes.get_mut(key) {
            if !node.spawned {
                node.spawned = true;
                self.dirty = true;
                self.effects
                    .push(Effect::Spawn(key, node.addr.clone(), dial));
            }
        }
    }

    /// The client is ready when each primary of the first map was tried once.
    pub(super) fn check_ready(&mut self) {
        if self.query.ready != Ready::Connecting {
            return;
        }
        let untried = self.nodes.iter().any(|(_, node)| {
            node.role == Role::Primary && node.spawned && node.health == Health::Unknown
        });
        if self.settings.lazy || !untried {
            self.query.ready = Ready::Told;
            self.effects.push(Effect::Ready(Ok(())));
        }
    }

    /// Finds the nodes that are of no use any more; they end with the next commit.
    pub(super) fn reap(&mut self, now: Instant) {
        for (_, node) in self.nodes.iter_mut() {
            if node.avoid_until.is_some_and(|until| until <= now) {
                node.avoid_until = None;
                self.dirty = true;
            }
        }
        for key in self.unneeded(now) {
            // What ASK sent there comes back first, with all that must not overtake it.
            for slot in self.asked_of(key) {
                self.collect(slot, self.owner(slot), None);
            }
            self.dirty = true;
        }
        for (_, node) in self.nodes.iter_mut() {
            node.linger_until = node.linger_until.filter(|&until| until > now);
        }
    }

    /// Nodes that the map has no use for, with the time until which they are kept all the same:
    /// those that it does not name, and primaries that became replicas if nobody reads there.
    fn unlisted(&self) -> impl Iterator<Item = (NodeKey, Option<Instant>)> + '_ {
        let replica_reads = self.settings.replica_reads;
        let is_of_use = move |role| match role {
            Role::Primary => true,
            Role::Replica => replica_reads,
            Role::Unlisted => false,
        };
        let spawned = self.nodes.iter().filter(|(_, node)| node.spawned);
        let unlisted = spawned.filter(move |(_, node)| !is_of_use(node.role));
        unlisted.map(|(key, node)| (key, node.linger_until))
    }

    fn unneeded(&self, now: Instant) -> Vec<NodeKey> {
        self.unlisted()
            .filter(|&(key, until)| until.is_none_or(|until| until <= now) && !self.is_needed(key))
            .map(|(key, _)| key)
            .collect()
    }

    /// The slots of which ASK sent units to a node that it was not told to give up since.
    fn asked_of(&self, key: NodeKey) -> Vec<Slot> {
        let asked = self.asked.iter().filter(|(_, nodes)| nodes.contains(&key));
        let mut slots: Vec<Slot> = asked
            .map(|(slot, _)| slot)
            .filter(|&slot| !self.holds.was_drained(slot, key))
            .collect();
        slots.sort();
        slots
    }

    fn is_needed(&self, key: NodeKey) -> bool {
        self.owners.contains(&Some(key))
            || self.routes.contains(&Some(key))
            || self
                .nodes
                .get(key)
                .is_some_and(|node| node.giving_up.is_some())
            || self.barriers.values().any(|barrier| barrier.node == key)
    }

    pub(super) fn next_reap(&self) -> Option<Instant> {
        // A node that is needed without being listed is looked at again with the next commit.
        let linger = self.unlisted().filter_map(|(_, until)| until);
        let avoid = self.nodes.iter().filter_map(|(_, node)| node.avoid_until);
        linger.chain(avoid).min()
    }

    /// From this commit on nothing is sent to these nodes.
    pub(super) fn start_retiring(&mut self, now: Instant) -> Vec<NodeKey> {
        let mut retiring = self.unneeded(now);
        retiring.retain(|&key| self.asked_of(key).is_empty());
        for &key in &retiring {
            self.nodes.unname(key);
            if let Some(node) = self.nodes.get_mut(key) {
                node.spawned = false;
            }
        }
        retiring
    }

    /// A node has ended. What it had left goes where it belongs now.
    pub(super) fn retired(&mut self, key: NodeKey, units: Vec<Unit<T>>, now: Instant) {
        let addr = self.nodes.remove(key).map(|node| node.addr);
        // What was published still holds on to it.
        self.dirty = true;
        for unit in units {
            self.divide_by_slot(unit, |cluster, piece| match piece.facts(0).target {
                Target::Node => cluster.fail(piece, Reason::NodeGone, addr.as_ref()),
                Target::Slot(_) | Target::Any => cluster.dispatch(piece, now),
            });
        }
    }
}
