//! Moving slots between nodes: key by key with stops in between, or at once.

use std::ops::RangeInclusive;

use super::{LocalCluster, PATIENCE, Reply, ServerKind, poll_until};

/// Keys that one `MIGRATE` takes along.
const BATCH: &str = "100";

impl LocalCluster {
    /// Moves a slot with all its keys, key by key, and waits until all running nodes agree.
    #[track_caller]
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        let moving = self.begin_move(slot, from, to);
        moving.migrate_all();
        moving.finish();
    }

    /// Opens a slot on both sides (`IMPORTING`, `MIGRATING`): from now on the source answers `ASK`
    /// for keys that it does not have.
    #[track_caller]
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) -> SlotMove<'_> {
        let moving = SlotMove {
            cluster: self,
            slot,
            from,
            to,
        };
        moving.set_slot(to, &["IMPORTING", self.id(from)]);
        moving.set_slot(from, &["MIGRATING", self.id(to)]);
        moving
    }

    /// Whether [`Self::move_slot_atomic`] works: Valkey from version 9 on.
    #[track_caller]
    pub fn supports_atomic_migration(&self) -> bool {
        self.server_kind() == ServerKind::Valkey && self.server_version() >= (9, 0, 0)
    }

    /// Moves slots by the server's own atomic migration, and waits until all running nodes agree.
    #[track_caller]
    pub fn move_slot_atomic(&self, slots: RangeInclusive<u16>, from: usize, to: usize) {
        let (first, last) = (slots.start().to_string(), slots.end().to_string());
        let (command, target) = ("MIGRATESLOTS", self.id(to));
        let args = [
            "CLUSTER",
            command,
            "SLOTSRANGE",
            &first,
            &last,
            "NODE",
            target,
        ];
        let reply = self.command(from, &args);
        if !reply.is_ok() {
            self.fail(&format!("{args:?} on node {from}: {reply:?}"));
        }
        poll_until(PATIENCE, "an atomic slot migration", || {
            let jobs = self.command(from, &["CLUSTER", "GETSLOTMIGRATIONS"]);
            let own = self.myself(to)?;
            if own.owns(*slots.start()) && own.owns(*slots.end()) {
                return Ok(());
            }
            Err(format!("{jobs:?}"))
        });
        for slot in [*slots.start(), *slots.end()] {
            self.wait_owner(slot, to);
        }
    }
}

/// A slot that is on its way. Dropping this does nothing: the slot stays as it is.
#[derive(Debug)]
#[must_use = "the slot stays open until it is finished or cancelled"]
pub struct SlotMove<'a> {
    cluster: &'a LocalCluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl SlotMove<'_> {
    /// Moves these keys of the slot.
    #[track_caller]
    pub fn migrate_keys<K: AsRef<[u8]>>(&self, keys: &[K]) {
        let port = self.cluster.addr(self.to).port().to_string();
        let mut args: Vec<&[u8]> = vec![b"MIGRATE", b"127.0.0.1", port.as_bytes()];
        args.extend::<[&[u8]; 3]>([b"", b"0", b"5000"]);
        if let Some(password) = &self.cluster.password {
            args.extend([b"AUTH", password.as_bytes()]);
        }
        args.push(b"KEYS");
        args.extend(keys.iter().map(AsRef::as_ref));
        let reply = self.cluster.command(self.from, &args);
        if !reply.is_ok() && reply.text() != "NOKEY" {
            self.fail("MIGRATE", &reply);
        }
    }

    /// Moves the keys that are left, in batches.
    #[track_caller]
    pub fn migrate_all(&self) {
        let slot = self.slot.to_string();
        loop {
            let args = ["CLUSTER", "GETKEYSINSLOT", &slot, BATCH];
            let reply = self.cluster.command(self.from, &args);
            let keys: Vec<&[u8]> = reply.items().iter().filter_map(bytes).collect();
            match reply {
                Reply::Array(_) if keys.is_empty() => return,
                Reply::Array(_) => self.migrate_keys(&keys),
                other => self.fail("GETKEYSINSLOT", &other),
            }
        }
    }

    /// Gives the slot to the target: first there, then on the source, then on the other primaries;
    /// and waits until all running nodes name the target with the same epoch. No key may be left
    /// on the source.
    #[track_caller]
    pub fn finish(self) {
        let cluster = self.cluster;
        let owner = ["NODE", cluster.id(self.to)];
        self.set_slot(self.to, &owner);
        self.set_slot(self.from, &owner);
        for node in cluster.running() {
            if node != self.to && node != self.from && cluster.is_primary(node) {
                self.set_slot(node, &owner);
            }
        }
        cluster.wait_owner(self.slot, self.to);
    }

    /// Closes the slot again on both sides; it stays with the source. Keys that were moved stay on
    /// the target, where nobody finds them.
    #[track_caller]
    pub fn cancel(self) {
        self.set_slot(self.to, &["STABLE"]);
        self.set_slot(self.from, &["STABLE"]);
    }

    #[track_caller]
    fn set_slot(&self, node: usize, action: &[&str]) {
        let slot = self.slot.to_string();
        let args = [&["CLUSTER", "SETSLOT", &slot], action].concat();
        // Valkey tells its replicas first, and refuses while one of them is not there.
        let reply = poll_until(PATIENCE, "replicas", || {
            match self.cluster.command(node, &args) {
                reply if reply.text().starts_with("NOREPLICAS") => Err(reply.text()),
                reply => Ok(reply),
            }
        });
        if !reply.is_ok() {
            self.fail(&format!("{args:?} on node {node}"), &reply);
        }
    }

    #[track_caller]
    fn fail(&self, what: &str, reply: &Reply) -> ! {
        let (slot, from, to) = (self.slot, self.from, self.to);
        self.cluster.fail(&format!(
            "moving slot {slot} from node {from} to {to}: {what}: {reply:?}"
        ))
    }
}

fn bytes(reply: &Reply) -> Option<&[u8]> {
    match reply {
        Reply::Bulk(bytes) => Some(bytes),
        _ => None,
    }
}
