//! The clusters that tests share, keys for them, and clients.

use std::ops::Deref;
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use reslot::{Builder, Client, NodeAddr, Slot};

use crate::local_cluster::LocalCluster;

/// How long tests wait for something that takes milliseconds on an idle machine.
pub(super) const SOON: Duration = Duration::from_secs(10);

/// Three primaries that stay as they are. Tests use keys with prefixes of their own.
pub(super) fn calm() -> &'static LocalCluster {
    static CLUSTER: LazyLock<LocalCluster> = LazyLock::new(|| LocalCluster::builder().start());
    &CLUSTER
}

/// The node of [`moving`] that never has slots: no map names it.
pub(super) const UNLISTED: usize = 3;

/// The node of [`moving`] that one test takes out of the cluster.
pub(super) const LEAVING: usize = 4;

/// Three primaries and two nodes without slots, for one test at a time: slots that move to
/// different nodes at the same time can leave nodes that do not agree for long.
pub(super) fn moving() -> Loan {
    static CLUSTER: Shelf = Shelf::new(|| LocalCluster::builder().spares(2).start());
    CLUSTER.borrow()
}

/// Three primaries with a replica each, for one test at a time.
pub(super) fn replicated() -> Loan {
    static CLUSTER: Shelf = Shelf::new(|| {
        let builder = LocalCluster::builder().replicas(1).full_coverage(false);
        builder.start()
    });
    CLUSTER.borrow()
}

/// Three primaries that take no notice when one of them does not answer, at IPv4 and IPv6, for
/// one test at a time.
pub(super) fn patient() -> Loan {
    static CLUSTER: Shelf = Shelf::new(|| {
        let builder = LocalCluster::builder().full_coverage(false);
        let builder = builder.config("cluster-node-timeout 60000");
        builder.config("bind 127.0.0.1 -::1").start()
    });
    CLUSTER.borrow()
}

/// A cluster that one test at a time may break.
struct Shelf {
    start: fn() -> LocalCluster,
    cluster: Mutex<Option<LocalCluster>>,
}

/// The cluster of a shelf, until dropped.
pub(super) struct Loan(MutexGuard<'static, Option<LocalCluster>>);

impl Shelf {
    const fn new(start: fn() -> LocalCluster) -> Self {
        Self {
            start,
            cluster: Mutex::new(None),
        }
    }

    fn borrow(&'static self) -> Loan {
        let mut cluster = self.cluster.lock().unwrap_or_else(|poisoned| {
            // The test before failed half way; nothing is known about the state of its cluster.
            self.cluster.clear_poison();
            let mut cluster = poisoned.into_inner();
            *cluster = None;
            cluster
        });
        cluster.get_or_insert_with(self.start).wait_ready();
        Loan(cluster)
    }
}

impl Deref for Loan {
    type Target = LocalCluster;

    fn deref(&self) -> &LocalCluster {
        self.0.as_ref().expect("a shelf lends what it has started")
    }
}

/// Settings with all nodes as seeds.
pub(super) fn builder(cluster: &LocalCluster) -> Builder {
    Builder::from_url(&cluster.url()).unwrap()
}

/// A client with default settings.
pub(super) fn client(cluster: &LocalCluster) -> Client {
    builder(cluster).connect().unwrap()
}

/// The address of a node, as its cluster names it.
pub(super) fn addr(cluster: &LocalCluster, node: usize) -> NodeAddr {
    NodeAddr::new("127.0.0.1", cluster.addr(node).port())
}

/// A hash tag for each slot.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut tags = vec![String::new(); 16384];
    let mut missing = tags.len();
    for number in 0.. {
        let tag = format!("{number}");
        let place = &mut tags[usize::from(Slot::of_key(tag.as_bytes()).number())];
        if place.is_empty() {
            *place = tag;
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    tags
});

/// A key of this slot.
pub(super) fn key_in(slot: u16, name: &str) -> String {
    format!("{name}{{{}}}", TAGS[usize::from(slot)])
}

/// The first slot of a node in [`calm`], [`moving`] and [`patient`], and those after it.
pub(super) fn slot_of(node: u16, offset: u16) -> u16 {
    16384 / 3 * node + 100 + offset
}

/// Numbers that look random and are the same in every run.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}
