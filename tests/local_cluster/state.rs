//! Roles and agreement: who owns what, and do all nodes say the same.

use std::time::{Duration, Instant};

use super::view::{Member, parse_members};
use super::wire::Reply;
use super::{LocalCluster, PATIENCE, poll_until};

/// When servers have given a failover up for certain; they do after five seconds.
const FAILOVER_LIMIT: Duration = Duration::from_secs(7);

/// A range of `CLUSTER SLOTS`: first and last slot, then the ports of its nodes, primary first and
/// replicas in ascending order.
type SlotRange = (i64, i64, Vec<i64>);

impl LocalCluster {
    /// The cluster as a node sees it, ordered by port.
    pub fn members(&self, node: usize) -> Result<Vec<Member>, String> {
        match self.try_command(node, &["CLUSTER", "NODES"]) {
            Ok(Reply::Bulk(text)) => parse_members(&String::from_utf8_lossy(&text)),
            Ok(other) => Err(format!("node {node} answers {other:?}")),
            Err(error) => Err(format!("node {node}: {error}")),
        }
    }

    /// The node that owns a slot, as the running nodes agree.
    ///
    /// # Panics
    ///
    /// If they do not agree in time, or nobody owns it.
    #[track_caller]
    pub fn primary_of(&self, slot: u16) -> usize {
        poll_until(PATIENCE, "agreement about the owner of a slot", || {
            let owner = self.agreed_owner(slot)?;
            owner.ok_or_else(|| format!("nobody owns slot {slot}"))
        })
    }

    /// The replicas of a node, as that node sees them.
    #[track_caller]
    pub fn replicas_of(&self, node: usize) -> Vec<usize> {
        let members = self.members(node).unwrap_or_else(|error| self.fail(&error));
        let own = Some(self.id(node));
        let replicas = members.iter().filter(|m| m.primary.as_deref() == own);
        replicas.filter_map(|m| self.node_at(m.port)).collect()
    }

    /// Whether a node sees itself as a primary.
    pub fn is_primary(&self, node: usize) -> bool {
        self.myself(node).is_ok_and(|own| own.has("master"))
    }

    /// Makes a replica the primary of its shard (`CLUSTER FAILOVER`) and waits until all running
    /// nodes see it.
    #[track_caller]
    pub fn failover(&self, replica: usize) {
        self.failover_with(replica, &[]);
    }

    /// As [`Self::failover`], with `FORCE` or `TAKEOVER`. Servers give one up after five seconds
    /// if it does not come to its end; then it is ordered again.
    #[track_caller]
    pub fn failover_with(&self, replica: usize, options: &[&str]) {
        let args = [&["CLUSTER", "FAILOVER"], options].concat();
        let order = || {
            let reply = self.command(replica, &args);
            if !reply.is_ok() {
                self.fail(&format!("failover to node {replica}: {reply:?}"));
            }
            Instant::now()
        };
        let mut ordered = order();
        poll_until(PATIENCE, "a failover", || {
            let promoted = self.check_promoted(replica);
            if ordered.elapsed() > FAILOVER_LIMIT && !self.is_primary(replica) {
                ordered = order();
            }
            promoted
        });
    }

    /// Waits until a node is a primary with slots, in its own eyes and in those of all running
    /// nodes.
    #[track_caller]
    pub fn wait_promoted(&self, node: usize) {
        poll_until(PATIENCE, "a replica to be promoted", || {
            self.check_promoted(node)
        });
    }

    fn check_promoted(&self, node: usize) -> Result<(), String> {
        let own = self.myself(node)?;
        if !own.has("master") || own.slots.is_empty() {
            return Err(format!("node {node} is {own:?}"));
        }
        for other in self.running() {
            let seen = self.members(other)?.into_iter().find(|m| m.id == own.id);
            let same = seen.is_some_and(|m| m.slots == own.slots && m.epoch == own.epoch);
            if !same {
                return Err(format!("node {other} has not noticed"));
            }
        }
        Ok(())
    }

    /// Waits until all running nodes name the same owner of a slot, in the same epoch. Moving it
    /// on before that can leave two nodes that name each other.
    #[track_caller]
    pub fn wait_owner(&self, slot: u16, owner: usize) {
        let what = format!("slot {slot} to belong to node {owner} everywhere");
        poll_until(PATIENCE, &what, || match self.agreed_owner(slot)? {
            Some(node) if node == owner => Ok(()),
            other => Err(format!("all say {other:?}")),
        });
    }

    /// Waits until all running nodes serve (`cluster_state:ok`), give the same `CLUSTER SLOTS` as
    /// the roles demand, and all replicas follow their primary.
    #[track_caller]
    pub fn wait_ready(&self) {
        poll_until(PATIENCE, "the cluster to be ready", || {
            let nodes = self.running();
            let expected = self.expected_slots(*nodes.first().ok_or("no node runs")?)?;
            for node in nodes {
                self.check_serving(node)?;
                let slots = self.slots(node)?;
                if slots != expected {
                    return Err(format!("node {node} says {slots:?}, not {expected:?}"));
                }
            }
            Ok(())
        });
    }

    /// Waits until the state of a node is `ok` or `fail`.
    #[track_caller]
    pub fn wait_state(&self, node: usize, state: &str, limit: Duration) {
        poll_until(limit, "the state of a node", || {
            let now = self.info_field(node, &["CLUSTER", "INFO"], "cluster_state")?;
            (now == state).then_some(()).ok_or(now)
        });
    }

    /// The line of `CLUSTER NODES` about the node itself.
    pub(super) fn myself(&self, node: usize) -> Result<Member, String> {
        let members = self.members(node)?;
        let own = members.into_iter().find(|member| member.has("myself"));
        own.ok_or_else(|| format!("node {node} does not list itself"))
    }

    /// The owner on which all running nodes agree, epoch included.
    fn agreed_owner(&self, slot: u16) -> Result<Option<usize>, String> {
        let mut agreed: Option<Option<(u16, u64)>> = None;
        for node in self.running() {
            let members = self.members(node)?;
            let owner = members.iter().find(|m| m.owns(slot));
            let claim = owner.map(|m| (m.port, m.epoch));
            if *agreed.get_or_insert(claim) != claim {
                return Err(format!("{agreed:?} against {claim:?} on node {node}"));
            }
        }
        let claim = agreed.ok_or("no node runs")?;
        Ok(claim.and_then(|(port, _)| self.node_at(port)))
    }

    fn check_serving(&self, node: usize) -> Result<(), String> {
        let state = self.info_field(node, &["CLUSTER", "INFO"], "cluster_state")?;
        if state != "ok" {
            return Err(format!("the state of node {node} is {state}"));
        }
        if self.myself(node)?.has("master") {
            return Ok(());
        }
        match self.info_field(node, &["INFO", "replication"], "master_link_status")? {
            link if link == "up" => Ok(()),
            link => Err(format!("the link of replica {node} is {link}")),
        }
    }

    /// What `CLUSTER SLOTS` should say by the roles in one node's view.
    fn expected_slots(&self, node: usize) -> Result<Vec<SlotRange>, String> {
        let members = self.members(node)?;
        let mut ranges = Vec::new();
        for primary in members.iter().filter(|m| !m.slots.is_empty()) {
            let replicas = members.iter().filter(|m| {
                let follows = m.primary.as_ref() == Some(&primary.id);
                follows && !m.has("fail")
            });
            let mut ports = vec![i64::from(primary.port)];
            ports.extend(replicas.map(|m| i64::from(m.port)));
            for &(first, last) in &primary.slots {
                ranges.push((i64::from(first), i64::from(last), ports.clone()));
            }
        }
        ranges.sort();
        Ok(ranges)
    }

    fn slots(&self, node: usize) -> Result<Vec<SlotRange>, String> {
        let reply = self.try_command(node, &["CLUSTER", "SLOTS"]);
        let reply = reply.map_err(|error| error.to_string())?;
        let ranges: Option<Vec<SlotRange>> = reply.items().iter().map(slot_range).collect();
        let mut ranges = ranges.ok_or_else(|| format!("node {node} answers {reply:?}"))?;
        ranges.sort();
        Ok(ranges)
    }
}

fn slot_range(range: &Reply) -> Option<SlotRange> {
    let [Reply::Int(first), Reply::Int(last), nodes @ ..] = range.items() else {
        return None;
    };
    let ports: Option<Vec<i64>> = nodes
        .iter()
        .map(|node| match node.items() {
            [_, Reply::Int(port), ..] => Some(*port),
            _ => None,
        })
        .collect();
    let mut ports = ports?;
    ports.get_mut(1..)?.sort_unstable();
    Some((*first, *last, ports))
}
