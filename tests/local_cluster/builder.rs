//! Starting a cluster: processes, slots, introductions, replicas.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::install::{missing, server_program, version_line};
use super::ports::free_port;
use super::wire::{Reply, Wire};
use super::{LocalCluster, Node, PATIENCE, Run, poll_until};

/// How often another port is tried when a server does not start.
const ATTEMPTS: usize = 5;

/// What to start.
#[derive(Clone, Debug)]
pub struct Builder {
    server: Option<String>,
    primaries: usize,
    replicas: usize,
    spares: usize,
    password: Option<String>,
    config: Vec<String>,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            server: None,
            primaries: 3,
            replicas: 0,
            spares: 0,
            password: None,
            config: Vec::new(),
        }
    }

    /// How many primaries share the slots, in equal ranges.
    pub fn primaries(mut self, count: usize) -> Self {
        self.primaries = count;
        self
    }

    /// How many replicas each primary has.
    pub fn replicas(mut self, per_primary: usize) -> Self {
        self.replicas = per_primary;
        self
    }

    /// How many primaries without slots there are besides.
    pub fn spares(mut self, count: usize) -> Self {
        self.spares = count;
        self
    }

    /// Requires a password of clients and between nodes.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Whether one uncovered slot takes the whole cluster down (the servers' default).
    pub fn full_coverage(self, required: bool) -> Self {
        let answer = if required { "yes" } else { "no" };
        self.config(&format!("cluster-require-full-coverage {answer}"))
    }

    /// One more line of the configuration file of all nodes, `name value`. Later lines win.
    pub fn config(mut self, line: &str) -> Self {
        self.config.push(line.to_owned());
        self
    }

    /// The server program, instead of the one of the environment.
    pub fn server(mut self, program: &str) -> Self {
        self.server = Some(program.to_owned());
        self
    }

    /// Starts the cluster and waits until all nodes agree about it and serve all slots.
    ///
    /// # Panics
    ///
    /// If there is no server program, or the cluster is not ready in time.
    #[track_caller]
    pub fn start(self) -> LocalCluster {
        let server = self.server.clone().unwrap_or_else(server_program);
        assert!(version_line(&server).is_some(), "{}", missing(&server));
        let mut cluster = LocalCluster {
            server,
            folder: new_folder(),
            password: self.password.clone(),
            nodes: Vec::new(),
        };
        self.start_nodes(&mut cluster);
        self.assign_slots(&cluster);
        introduce(&cluster);
        self.attach_replicas(&cluster);
        cluster.wait_ready();
        cluster
    }

    fn start_nodes(&self, cluster: &mut LocalCluster) {
        let count = self.primaries * (1 + self.replicas) + self.spares;
        let folder = cluster.folder.clone();
        for index in 0..count {
            let node = self.launch_node(&cluster.server, &folder, index);
            let node = node.unwrap_or_else(|error| cluster.fail(&format!("start: {error}")));
            cluster.nodes.push(node);
        }
        // All of them start at the same time; only then each is waited for.
        for index in 0..count {
            for attempt in 1.. {
                match settle(cluster, index) {
                    Ok(()) => break,
                    Err(error) if attempt == ATTEMPTS => cluster.fail(&error),
                    Err(_) => {
                        let node = self.launch_node(&cluster.server, &folder, index);
                        cluster.nodes[index] =
                            node.unwrap_or_else(|error| cluster.fail(&format!("start: {error}")));
                    }
                }
            }
            cluster.nodes[index].id = cluster.command(index, &["CLUSTER", "MYID"]).text();
        }
    }

    fn launch_node(&self, server: &str, cluster_folder: &Path, index: usize) -> io::Result<Node> {
        let port = free_port();
        let folder = cluster_folder.join(format!("node-{index}"));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("server.conf"), self.config_file(port, &folder))?;
        let node = Node {
            port,
            id: String::new(),
            folder,
            run: Mutex::new(Run::Down),
        };
        let process = node.launch(server, cluster_folder)?;
        node.set(Run::Up(process));
        Ok(node)
    }

    fn config_file(&self, port: u16, folder: &Path) -> String {
        let mut lines = vec![
            format!("port {port}"),
            format!("dir {}", folder.display()),
            "bind 127.0.0.1".into(),
            "save \"\"".into(),
            "appendonly no".into(),
            "enable-debug-command local".into(),
            "cluster-enabled yes".into(),
            "cluster-config-file nodes.conf".into(),
            "cluster-announce-ip 127.0.0.1".into(),
            "cluster-node-timeout 2000".into(),
            // Tests decide which node serves what, also after a primary lost its last slot, and a
            // replica may take over however long it was cut off.
            "cluster-allow-replica-migration no".into(),
            "cluster-replica-validity-factor 0".into(),
            "repl-diskless-sync-delay 0".into(),
            "repl-ping-replica-period 1".into(),
        ];
        if let Some(password) = &self.password {
            lines.push(format!("requirepass {password}"));
            lines.push(format!("masterauth {password}"));
        }
        lines.extend(self.config.iter().cloned());
        lines.push(String::new());
        lines.join("\n")
    }

    fn assign_slots(&self, cluster: &LocalCluster) {
        for index in cluster.indices() {
            let epoch = (index + 1).to_string();
            expect_ok(cluster, index, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
        }
        for index in 0..self.primaries {
            let first = (16384 * index / self.primaries).to_string();
            let last = (16384 * (index + 1) / self.primaries - 1).to_string();
            expect_ok(cluster, index, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
        }
    }

    fn attach_replicas(&self, cluster: &LocalCluster) {
        for primary in 0..self.primaries {
            for replica in 0..self.replicas {
                let index = self.primaries + primary * self.replicas + replica;
                let id = cluster.id(primary);
                expect_ok(cluster, index, &["CLUSTER", "REPLICATE", id]);
            }
        }
    }
}

/// Waits until the node's own process answers at its port; an error if the process ended.
fn settle(cluster: &LocalCluster, index: usize) -> Result<(), String> {
    poll_until(PATIENCE, "a server to start", || {
        let node = &cluster.nodes[index];
        let Run::Up(process) = &mut *node.run() else {
            return Ok(Err("stopped".into()));
        };
        if process.has_ended() {
            let log = fs::read_to_string(node.log()).unwrap_or_default();
            return Ok(Err(format!("a server ended at once; its log:\n{log}")));
        }
        match process_id_at(cluster, index) {
            Ok(id) if id == process.id().to_string() => Ok(Ok(())),
            // Another program answers at this port, so this server is about to end.
            Ok(id) => Err(format!("process {id} answers instead")),
            Err(error) => Err(error.to_string()),
        }
    })
}

fn process_id_at(cluster: &LocalCluster, index: usize) -> io::Result<String> {
    let mut wire: Wire = cluster.connect(index)?;
    wire.set_timeout(Duration::from_secs(1))?;
    let info = wire.call(&["INFO", "server"])?.text();
    let id = info
        .lines()
        .find_map(|line| line.strip_prefix("process_id:"));
    Ok(id.unwrap_or("unknown").trim().to_owned())
}

/// Introduces every node to every other one, so that nobody waits for gossip.
fn introduce(cluster: &LocalCluster) {
    for index in cluster.indices() {
        for other in index + 1..cluster.len() {
            let port = cluster.addr(other).port().to_string();
            expect_ok(cluster, index, &["CLUSTER", "MEET", "127.0.0.1", &port]);
        }
    }
    poll_until(PATIENCE, "the nodes to know each other", || {
        for index in cluster.indices() {
            let known = cluster.members(index)?.len();
            if known != cluster.len() {
                return Err(format!("node {index} knows {known} nodes"));
            }
        }
        Ok(())
    });
}

#[track_caller]
fn expect_ok(cluster: &LocalCluster, index: usize, args: &[&str]) {
    let reply: Reply = cluster.command(index, args);
    if !reply.is_ok() {
        cluster.fail(&format!("{args:?} on node {index}: {reply:?}"));
    }
}

fn new_folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let random = RandomState::new().hash_one(number);
    let name = format!("reslot-cluster-{}-{random:016x}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).expect("the temporary folder is writable");
    folder
}
