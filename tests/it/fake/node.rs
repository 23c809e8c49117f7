//! One node of the fake cluster, as a test handles it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, spawn};
use std::time::Instant;

use super::PATIENCE;
use super::connection;
use super::rule::On;
use super::script::Gate;
use super::shared::Shared;
use super::topology::Format;

/// What happens to a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accept {
    /// It is served.
    #[default]
    Serve,
    /// It is closed at once.
    CloseAtOnce,
    /// It stays open; what arrives is logged, and nothing is ever answered.
    Silent,
}

/// One node. Tests get it from [`FakeCluster::node`](super::FakeCluster::node).
#[derive(Debug)]
pub struct Node {
    shared: Arc<Shared>,
    index: usize,
    addrs: Vec<SocketAddr>,
    /// The listening sockets with their threads; none while connections are refused.
    listeners: Mutex<Vec<Listener>>,
    /// The threads of all connections so far.
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Node {
    /// Binds a free port, on `::1` too if asked.
    pub(super) fn bind(ipv6: bool) -> io::Result<Vec<TcpListener>> {
        loop {
            let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            if !ipv6 {
                return Ok(vec![first]);
            }
            let port = first.local_addr()?.port();
            match TcpListener::bind((Ipv6Addr::LOCALHOST, port)) {
                Ok(second) => return Ok(vec![first, second]),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn start(
        shared: Arc<Shared>,
        index: usize,
        sockets: Vec<TcpListener>,
    ) -> io::Result<Self> {
        let addrs: io::Result<Vec<SocketAddr>> = sockets.iter().map(|s| s.local_addr()).collect();
        let node = Self {
            shared,
            index,
            addrs: addrs?,
            listeners: Mutex::default(),
            threads: Arc::default(),
        };
        node.accept_from(sockets);
        Ok(node)
    }

    /// Its number.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addrs[0]
    }

    /// The port where it listens.
    pub fn port(&self) -> u16 {
        self.addr().port()
    }

    /// A rule for a command on this node: a name, or name and subcommand such as `CLUSTER SLOTS`.
    pub fn on(&self, command: &str) -> On {
        On::new(Arc::clone(&self.shared), Some(self.index), Some(command))
    }

    /// A rule for any command on this node.
    pub fn on_any(&self) -> On {
        On::new(Arc::clone(&self.shared), Some(self.index), None)
    }

    /// Holds a command with this argument before it runs.
    pub fn hold(&self, command: &str, key: impl AsRef<[u8]>) -> Gate {
        self.on(command).key(key).hold()
    }

    /// Changes how it writes hosts and node entries.
    pub fn set_format(&self, format: Format) {
        self.shared
            .update(|state| state.nodes[self.index].format = format);
    }

    /// Gives it another node id, as if another server had taken its address.
    pub fn set_id(&self, id: &str) {
        self.shared
            .update(|state| id.clone_into(&mut state.nodes[self.index].id));
    }

    /// What happens to new connections from now on.
    pub fn set_accept(&self, accept: Accept) {
        self.shared
            .update(|state| state.nodes[self.index].accept = accept);
    }

    /// Stops reading from its connections: they stay open, and what is sent to them fills the
    /// buffers of the kernel. What was read before goes on.
    pub fn stop_reading(&self) {
        self.shared
            .update(|state| state.nodes[self.index].reading = false);
    }

    /// Reads again from all its connections.
    pub fn resume_reading(&self) {
        self.shared.update(|state| {
            state.nodes[self.index].reading = true;
            for number in state.open(self.index) {
                state.connections[number].reading = true;
            }
        });
    }

    /// Reads so many more bytes, over all connections; then the connection that brought the last
    /// one is closed (commands that were complete by then are answered), and so is every other
    /// that sends more, until [`Node::read_on`].
    pub fn close_after_bytes(&self, count: usize) {
        self.shared
            .update(|state| state.nodes[self.index].bytes_until_close = Some(count));
    }

    /// Takes back [`Node::close_after_bytes`].
    pub fn read_on(&self) {
        self.shared
            .update(|state| state.nodes[self.index].bytes_until_close = None);
    }

    /// Sends bytes, such as a push, to all its open connections, never inside a reply.
    pub fn push(&self, bytes: &[u8]) {
        for connection in self.connections() {
            self.push_to(connection, bytes);
        }
    }

    /// As [`Node::push`], to one connection.
    pub fn push_to(&self, connection: usize, bytes: &[u8]) {
        let (stream, lock) = {
            let state = self.shared.lock();
            let own = &state.connections[connection];
            (own.stream.clone(), Arc::clone(&own.write_lock))
        };
        // Fails if the client has gone, which the test finds out by other means.
        let _ = stream.map(|stream| connection::write_whole(&stream, &lock, bytes));
    }

    /// The numbers of its open connections.
    pub fn connections(&self) -> Vec<usize> {
        self.shared.lock().open(self.index)
    }

    /// How many connections were opened to it so far.
    pub fn opened(&self) -> usize {
        let state = self.shared.lock();
        let own = state.connections.iter().filter(|c| c.node == self.index);
        own.count()
    }

    /// Waits until exactly so many connections are open.
    ///
    /// # Panics
    ///
    /// After [`PATIENCE`].
    #[track_caller]
    pub fn wait_open(&self, count: usize) {
        let found = self.shared.wait(Instant::now() + PATIENCE, |state| {
            (state.open(self.index).len() == count).then_some(())
        });
        let open = self.connections();
        assert!(
            found.is_some(),
            "waited {PATIENCE:?} for {count} open connections, got {open:?}"
        );
    }

    /// Closes all its connections. What they have read and not answered does not run any more.
    pub fn drop_connections(&self) {
        self.shared.update(|state| state.kill_all(self.index));
    }

    /// Refuses connections from now on; those that are open stay.
    pub fn stop_listening(&self) {
        for listener in self.listeners().drain(..) {
            listener.stop();
        }
    }

    /// Listens again at the same port.
    ///
    /// # Panics
    ///
    /// If somebody else has taken the port.
    #[track_caller]
    pub fn listen(&self) {
        self.stop_listening();
        let sockets: io::Result<Vec<TcpListener>> =
            self.addrs.iter().map(TcpListener::bind).collect();
        self.accept_from(sockets.expect("the port is still free"));
    }

    /// As if its process were killed: refuses connections and closes those that are open. It
    /// keeps its keys. [`Node::listen`] revives it.
    pub fn kill(&self) {
        self.stop_listening();
        self.drop_connections();
    }

    /// Ends all threads.
    pub(super) fn shut_down(&self) {
        self.kill();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            let result = thread.join();
            if !std::thread::panicking() {
                assert!(result.is_ok(), "a script or condition has panicked");
            }
        }
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Listener>> {
        lock(&self.listeners)
    }

    fn accept_from(&self, sockets: Vec<TcpListener>) {
        let mut listeners = self.listeners();
        for (socket, &addr) in sockets.into_iter().zip(&self.addrs) {
            let stop = Arc::new(AtomicBool::new(false));
            let thread = spawn({
                let stop = Arc::clone(&stop);
                let shared = Arc::clone(&self.shared);
                let (threads, index) = (Arc::clone(&self.threads), self.index);
                move || accept(&socket, &stop, &shared, index, &threads)
            });
            listeners.push(Listener { addr, stop, thread });
        }
    }
}

/// A listening socket, owned by its thread.
#[derive(Debug)]
struct Listener {
    addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Listener {
    fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the thread; fails only if that has ended already.
        let _ = TcpStream::connect(self.addr);
        let _ = self.thread.join();
    }
}

fn accept(
    socket: &TcpListener,
    stop: &AtomicBool,
    shared: &Arc<Shared>,
    node: usize,
    threads: &Mutex<Vec<JoinHandle<()>>>,
) {
    while let Ok((stream, _)) = socket.accept() {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let started = connection::open(shared, node, stream);
        lock(threads).extend(started);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
