//! The client: one for all threads of a program.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::blocking;
use crate::cancel::CancelToken;
use crate::cmd::Cmd;
use crate::config::{Builder, Config};
use crate::convert::FromValue;
use crate::error::{Error, Result};
use crate::fan_out;
use crate::learned::Learned;
use crate::pending::Pending;
use crate::permission::Permission;
use crate::pipeline::Pipeline;
use crate::proto::addr::NodeAddr;
use crate::proto::cluster::Event;
use crate::proto::outcome::{Certainty, Reason};
use crate::proto::redirect::Redirect;
use crate::proto::resp::encode::Encoded;
use crate::proto::slot::Slot;
use crate::proto::unit::{Body, Bytes, Facts, Target, Unit};
use crate::proto::value::Value;
use crate::reply::relax::{Extension, Relax};
use crate::reply::{Cell, Gone, Home, Patience, Settler};
use crate::request::{Plan, Request, refused};
use crate::runtime::clock;
use crate::runtime::coordinator::{Control, CoordinatorHandle};
use crate::runtime::dedicated::Pool;
use crate::runtime::dial::Dialer;
use crate::runtime::records::NodeMessage;
use crate::runtime::routes::{Pick, Routes};
use crate::runtime::transport::{Tcp, Transport};
use crate::stats::Stats;
use crate::sync::Mutex;
use crate::transaction::Transaction;
use crate::watch::{self, WatchOptions, Watched};

/// A client of a cluster, or of a single server.
///
/// It is cheap to clone, and all clones share the same connections: one per node, on which the
/// commands of all threads are pipelined. Every method takes `&self` and may be called from any
/// thread at any time.
///
/// Each call ends with a reply or an error within its `response_timeout` (5 s by default), which
/// covers waiting for room, connecting, redirects, pauses and reading. Redirects (MOVED, ASK,
/// TRYAGAIN, CLUSTERDOWN) are followed per command and never returned. A command that was written
/// and got no reply is not sent again unless it only reads; its error says
/// [`Certainty::Unknown`].
///
/// Dropping the last clone closes the client, waiting up to a second for commands under way. A
/// [`Pending`] counts as a clone for as long as it lives.
#[derive(Clone, Debug)]
pub struct Client {
    core: Arc<Core>,
}

/// What all clones share.
pub(crate) struct Core {
    pub(crate) config: Arc<Config>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) learned: Learned,
    pub(crate) permission: Permission,
    /// Taken by whoever closes the client; held by nobody else.
    coordinator: Mutex<Option<CoordinatorHandle>>,
    /// For what is told to the coordinator while it runs.
    control: crossbeam_channel::Sender<Control>,
    /// For what calling threads learn about the cluster by themselves.
    events: crossbeam_channel::Sender<Event<Settler>>,
    /// Connections for commands that block and for watched sessions.
    pub(crate) pool: Pool,
    /// Who waits longer because of announced maintenance; `None` if nobody asks for it.
    relax: Option<Arc<Relax>>,
    counters: Arc<crate::stats::ClientCounters>,
}

/// A call whose deadline is nearer does not read by itself: it must not be late.
const DRIVE_MARGIN: Duration = Duration::from_millis(50);

/// How long a close waits at least for calls that block to notice it.
const POOL_CLOSE: Duration = Duration::from_secs(1);

/// How long the end of the last clone waits for commands under way.
const DROP_LIMIT: Duration = Duration::from_secs(1);

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("seeds", &self.config.seeds)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Connects: asks all seeds for the map, then connects to every primary at once (unless
    /// [`lazy`](Builder::lazy)). A primary that cannot be reached is no error here, as the others
    /// serve their slots: the commands for it fail and say why.
    ///
    /// # Errors
    /// [`Error::Misuse`] for settings that cannot be used, [`Error::Connect`] with the reason of
    /// each seed if none of them leads to a cluster.
    pub fn connect(self) -> Result<Client> {
        Client::start(self.build()?)
    }
}

impl Client {
    /// Connects to the cluster behind a URL such as `redis://user:password@host:7000,host:7001`.
    /// See [`Builder::from_url`] for all that a URL can say.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a URL that cannot be used; [`Error::Connect`] with the reason of each
    /// seed if none of them leads to a cluster.
    pub fn connect(url: &str) -> Result<Self> {
        Builder::from_url(url)?.connect()
    }

    /// A builder, for what a URL cannot say.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn start(config: Config) -> Result<Self> {
        let transport = Arc::new(Tcp {
            keepalive: config.keepalive,
        });
        Self::start_over(config, transport)
    }

    /// Starts over any transport.
    pub(crate) fn start_over(config: Config, transport: Arc<dyn Transport>) -> Result<Self> {
        let config = Arc::new(config);
        let dialer = Arc::new(Dialer::new(Arc::clone(&config), transport));
        let pool = Pool::new(Arc::clone(&dialer));
        let relax = dialer.relax();
        let started = CoordinatorHandle::start(Arc::clone(&config), dialer);
        let no_thread = |error| Error::Connect(vec![format!("cannot start a thread: {error}")]);
        let (coordinator, ready) = started.map_err(no_thread)?;
        let client = Self {
            core: Arc::new(Core {
                routes: Arc::clone(&coordinator.routes),
                counters: Arc::clone(&coordinator.counters),
                control: coordinator.control(),
                events: coordinator.events(),
                pool,
                relax,
                coordinator: Mutex::new(Some(coordinator)),
                learned: Learned::default(),
                permission: Permission::default(),
                config,
            }),
        };
        match ready.recv_timeout(client.core.config.connect_deadline) {
            Ok(Ok(())) => Ok(client),
            Ok(Err(reasons)) => Err(Error::Connect(reasons)),
            Err(_) => {
                let limit = client.core.config.connect_deadline;
                Err(Error::Connect(vec![format!(
                    "no seed answered within {limit:?}"
                )]))
            }
        }
    }

    /// Runs any command and reads its reply as `T`.
    ///
    /// The client knows the keys of all commands of Redis and Valkey; see [`Cmd::key`] and
    /// [`Cmd::route`] for others. Commands without keys go to any primary, not always the same one
    /// (so `INFO` tells about one node or another unless [`Cmd::route`] names it), or, where only
    /// all of them together make sense (`DBSIZE`, `KEYS`, `FLUSHALL`, `SCRIPT LOAD`, …), to every
    /// primary, and the replies are combined. Where it matters which node answers (`SCAN`, `ROLE`,
    /// `CLIENT LIST`, …), [`Cmd::route`] has to name it. Commands that would change the shared
    /// connection (`SELECT`, `SUBSCRIBE`, `MULTI`, …) are refused.
    ///
    /// A command that blocks (`BLPOP`, `XREAD BLOCK`, …) gets a connection of its own, so that it
    /// holds nobody up. It waits as long as it says itself, and the `response_timeout` is added
    /// for its reply; with 0 it waits for ever. To wait for a while and go on without a reply, say
    /// so in the command itself (`BLPOP key 0.1` gives `Ok(None)`). If its slot moves meanwhile it
    /// goes on at the new owner with the time that is left. Finding and reaching its node ends
    /// after about the `response_timeout`, also for a command that blocks for ever.
    /// [`Cmd::timeout`] shortens all that.
    ///
    /// # Errors
    /// See [`Error`]; its [`certainty`](Error::certainty) tells whether the command may have run.
    pub fn query<T: FromValue>(&self, command: Cmd) -> Result<T> {
        T::from_value(self.execute(command)?)
    }

    fn execute(&self, command: Cmd) -> Result<Value> {
        let request = Request::new(command, &self.core)?;
        let deadline = request.deadline;
        match request.plan.clone() {
            Plan::Shared(facts, pick) => {
                let cancel = request.cancel.clone();
                let body = request.into_body(facts);
                self.core.call(body, &pick, deadline, cancel.as_ref())
            }
            Plan::FanOut(how) => fan_out::run(&self.core, &request, how),
            Plan::Blocking(facts, pick, time) => {
                blocking::run(&self.core, request, facts, &pick, time)
            }
        }
    }

    /// Hands a command over and does not wait for its reply. Commands for one slot that one thread
    /// hands over execute in that order.
    ///
    /// Dropping the [`Pending`] does not stop the command.
    ///
    /// Commands that block (`BLPOP`, `XREAD BLOCK`, …) and those that go to every primary
    /// (`DBSIZE`, `KEYS`, `FLUSHALL`, `SCRIPT LOAD`, …) are refused: use [`query`](Client::query).
    ///
    /// # Errors
    /// [`Error::Misuse`] if the command cannot be sent this way. All other errors come from
    /// [`Pending::wait`].
    pub fn send<T: FromValue>(&self, command: Cmd) -> Result<Pending<T>> {
        let request = Request::new(command, &self.core)?;
        let deadline = request.deadline;
        let Plan::Shared(facts, pick) = request.plan.clone() else {
            let why = match request.plan {
                Plan::Blocking(..) => "blocks on a connection of its own: use `Client::query`",
                _ => "goes to every primary: use `Client::query`",
            };
            return Err(refused(&request.encoded, why));
        };
        let (cell, settler) = self.core.cell(1, facts.target.slot());
        let cancel = request.cancel.clone();
        let registration = cancel.map(|token| token.register(&self.core, &cell));
        let unit = Unit::new(settler, request.into_body(facts), deadline);
        self.core
            .routes
            .submit(unit, &pick, self.core.config.when_full);
        Ok(Pending::new(
            Arc::clone(&self.core),
            cell,
            deadline,
            registration,
        ))
    }

    /// Begins a pipeline: many commands for any slots, sent together, each with its own result.
    pub fn pipeline(&self) -> Pipeline<'_> {
        Pipeline::new(&self.core)
    }

    /// Runs a transaction: the commands that `collect` adds execute one after the other with
    /// nothing in between, all on the node of their slot. The reply is read as `T` from the list
    /// of the commands' replies; read it as `Vec<Result<Value, ServerError>>` to look at each.
    ///
    /// ```no_run
    /// # use reslot::{Client, cmd};
    /// # let client = Client::connect("redis://127.0.0.1:7000")?;
    /// let (left, right): (i64, i64) = client.transaction(|t| {
    ///     t.add(cmd("DECRBY").arg("{bank}left").arg(10));
    ///     t.add(cmd("INCRBY").arg("{bank}right").arg(10));
    /// })?;
    /// # Ok::<(), reslot::Error>(())
    /// ```
    ///
    /// The whole transaction follows its slot: if the server refuses it because the slot moves, it
    /// is sent again from MULTI to EXEC. It is never split, and never sent again once EXEC was
    /// written without an answer. As always with Redis, a command that fails when it runs does not
    /// undo the others.
    ///
    /// # Errors
    /// [`Misuse::CrossSlot`](crate::Misuse::CrossSlot) if the keys are not in one slot;
    /// [`Error::Server`] if the server refused a command, and then nothing ran, or if a command
    /// failed when it ran and `T` has no room for its error, and then the others did run. Which
    /// command it was tells [`Failure::members`](crate::Failure::members). Else as
    /// [`Client::query`].
    ///
    /// A user (ACL) that logs in may be forbidden to run `MULTI`. The first transaction of the
    /// client finds that out with an empty one: the error is the server's, and nothing was sent.
    /// Where it is forbidden only later, or to connections without a login, the commands behind
    /// `MULTI` run one by one, and the error says `Unknown`.
    pub fn transaction<T: FromValue>(&self, collect: impl FnOnce(&mut Transaction)) -> Result<T> {
        let mut transaction = Transaction::new();
        collect(&mut transaction);
        transaction.execute(&self.core)
    }

    /// Watches keys of one slot, lets `session` read and decide, and runs its transaction only if
    /// none of the keys changed meanwhile. If one did, or if the slot moved or the connection was
    /// lost before EXEC was sent, `session` runs again, within the `response_timeout`.
    ///
    /// ```no_run
    /// # use reslot::{Client, cmd};
    /// # let client = Client::connect("redis://127.0.0.1:7000")?;
    /// let stock: i64 = client.watch(&["{shop}stock"], |session| {
    ///     let stock: i64 = session.query(cmd("GET").arg("{shop}stock"))?;
    ///     if stock == 0 {
    ///         return Ok(0);
    ///     }
    ///     let (left,): (i64,) = session.transaction(|t| {
    ///         t.add(cmd("DECR").arg("{shop}stock"));
    ///     })?;
    ///     Ok(left)
    /// })?;
    /// # Ok::<(), reslot::Error>(())
    /// ```
    ///
    /// The session has a connection of its own. Errors of its calls should be returned from the
    /// closure with `?`: they decide whether it runs again.
    ///
    /// Each run does everything again. What [`Watched::query`] writes is written at once and in
    /// each run, so put all writes into the transaction unless repeating them does no harm.
    ///
    /// # Errors
    /// What the closure returned, if another run cannot mend it; [`Reason::WatchLost`] if watched
    /// keys kept changing until the time ran out, with the number of runs as
    /// [`attempts`](Error::attempts); a timeout or a cancel if that ended the session between or
    /// before the runs, or while it only looked at things.
    ///
    /// The certainty is that of the whole session: `Unknown` if a [`Watched::query`] or a
    /// [`Watched::transaction`] of any run has written something, or may have, whatever call the
    /// error came from. Only [`Error::Misuse`] concerns nothing but its own call: others of the
    /// session may have run before it.
    pub fn watch<K: AsRef<[u8]>, R>(
        &self,
        keys: &[K],
        session: impl FnMut(&mut Watched<'_>) -> Result<R>,
    ) -> Result<R> {
        self.watch_with(keys, &WatchOptions::new(), session)
    }

    /// As [`watch`](Client::watch), with a timeout or a cancel token for the whole session.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use reslot::{CancelToken, Client, WatchOptions, cmd};
    /// # let client = Client::connect("redis://127.0.0.1:7000")?;
    /// # let token = CancelToken::new();
    /// let options = WatchOptions::new()
    ///     .timeout(Duration::from_secs(1))
    ///     .cancel_token(&token);
    /// let (left,): (i64,) = client.watch_with(&["stock"], &options, |session| {
    ///     session.transaction(|t| {
    ///         t.add(cmd("DECR").arg("stock"));
    ///     })
    /// })?;
    /// # Ok::<(), reslot::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`watch`](Client::watch).
    pub fn watch_with<K: AsRef<[u8]>, R>(
        &self,
        keys: &[K],
        options: &WatchOptions,
        session: impl FnMut(&mut Watched<'_>) -> Result<R>,
    ) -> Result<R> {
        watch::run(&self.core, keys, options, session)
    }

    /// The addresses of the cluster's primaries, sorted, as the client knows them now: for commands
    /// that are about one node.
    ///
    /// ```no_run
    /// # use reslot::{Client, Route, cmd};
    /// # let client = Client::connect("redis://127.0.0.1:7000")?;
    /// for node in client.primaries() {
    ///     let mut cursor = "0".to_owned();
    ///     loop {
    ///         let scan = cmd("SCAN").arg(&cursor).arg(("COUNT", 1000));
    ///         let (next, keys): (String, Vec<String>) =
    ///             client.query(scan.route(Route::Node(node.clone())))?;
    ///         println!("{keys:?}");
    ///         if next == "0" {
    ///             break;
    ///         }
    ///         cursor = next;
    ///     }
    /// }
    /// # Ok::<(), reslot::Error>(())
    /// ```
    ///
    /// Keys that move to another node meanwhile may be missed by such a scan, or seen twice.
    pub fn primaries(&self) -> Vec<NodeAddr> {
        self.core.routes.snapshot().primaries()
    }

    /// What the client has counted so far.
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Closes the client: new calls end with [`Error::Closed`], and so do at once those that have
    /// a connection of their own (blocking commands and watched sessions). All others under way may
    /// end within `limit`, then what is left ends with [`Error::Closed`], too. Afterwards no thread
    /// and no socket of the client is left. Clones are closed, too.
    ///
    /// A name that is being resolved at that moment cannot be interrupted and may add its time.
    ///
    /// # Errors
    /// None at present; a second call does nothing.
    pub fn close(&self, limit: Duration) -> Result<()> {
        self.core.close(limit);
        Ok(())
    }
}

impl Core {
    /// Sends a unit with one place and waits for its end.
    pub(crate) fn call(
        self: &Arc<Self>,
        body: Body,
        pick: &Pick,
        deadline: Option<Instant>,
        cancel: Option<&CancelToken>,
    ) -> Result<Value> {
        let cell = self.settle(body, pick, deadline, cancel);
        Ok(cell.take_one()?)
    }

    /// Asks any primary what has to be known before a command can be sent.
    pub(crate) fn ask_any(
        self: &Arc<Self>,
        question: Encoded,
        deadline: Option<Instant>,
        cancels: &[&CancelToken],
    ) -> Result<Value> {
        let (buffer, start) = question.into_bytes();
        let facts = Facts::new(Target::Any, true);
        self.ask(
            Body::One(Bytes::Own(buffer, start), facts),
            deadline,
            cancels,
        )
    }

    /// Asks what has to be known before a command can be sent: without an answer the command is
    /// certainly not sent.
    pub(crate) fn ask(
        self: &Arc<Self>,
        question: Body,
        deadline: Option<Instant>,
        cancels: &[&CancelToken],
    ) -> Result<Value> {
        let cancels = cancels.iter().copied();
        let cell = self.settle(question, &Pick::Primary, deadline, cancels);
        cell.take_one().map_err(|mut failure| {
            (failure.certainty, failure.attempts) = (Certainty::NotSent, 0);
            failure.into()
        })
    }

    /// As [`call`](Self::call); the cell has the outcome.
    pub(crate) fn settle<'t>(
        self: &Arc<Self>,
        body: Body,
        pick: &Pick,
        deadline: Option<Instant>,
        cancels: impl IntoIterator<Item = &'t CancelToken>,
    ) -> Arc<Cell> {
        let (cell, settler) = self.cell(1, body.slot());
        let cancels = cancels.into_iter();
        let _registrations: Vec<_> = cancels.map(|token| token.register(self, &cell)).collect();
        let unit = Unit::new(settler, body, deadline);
        let direct = self.may_drive(deadline);
        if direct {
            // The write loop may be faster than this thread.
            cell.get_ready();
        }
        let when_full = self.config.when_full;
        if let Some(driven) = self.routes.submit_or_drive(unit, pick, when_full, direct) {
            driven.write();
            driven.read(|| self.is_over(&cell, deadline));
        }
        self.wait(&cell, deadline);
        cell
    }

    /// The node that the one command of a cell was sent to last.
    pub(crate) fn last_node(&self, cell: &Cell) -> Option<NodeAddr> {
        match cell.home()? {
            Home::Node(key) => self.routes.snapshot().addr(key),
            Home::Coordinator => None,
        }
    }

    /// Whether a call has time enough to read by itself: it must not be late for its deadline.
    pub(crate) fn may_drive(&self, deadline: Option<Instant>) -> bool {
        deadline.is_none_or(|deadline| deadline >= clock::now() + DRIVE_MARGIN)
    }

    /// Whether a call is not to read by itself any more: it has ended, for instance by a cancel, or
    /// its deadline is near.
    pub(crate) fn is_over(&self, cell: &Cell, deadline: Option<Instant>) -> bool {
        cell.is_done() || !self.may_drive(deadline)
    }

    /// Waits until everything is done; what is open at the deadline ends as timed out. Meanwhile it
    /// reads from connections if it is asked to.
    pub(crate) fn wait(&self, cell: &Cell, deadline: Option<Instant>) {
        let limit = |deadline: Instant| deadline.checked_sub(DRIVE_MARGIN).unwrap_or(deadline);
        while let Some(asked) = cell.wait_to_read(deadline.map(limit), clock::now) {
            asked.answer(&|| self.is_over(cell, deadline));
        }
        self.wait_until(cell, deadline, None);
    }

    /// As [`wait`](Self::wait), but not beyond `until`: `false` if that comes first. Where
    /// maintenance is announced, the deadline moves when it has come.
    pub(crate) fn wait_until(
        &self,
        cell: &Cell,
        deadline: Option<Instant>,
        until: Option<Instant>,
    ) -> bool {
        let mut end = deadline;
        loop {
            let first = end.into_iter().chain(until).min();
            if cell.wait(first, clock::now) {
                return true;
            }
            if until.is_some_and(|until| end.is_none_or(|end| until < end)) {
                return false;
            }
            match cell.extended(clock::now()) {
                None => self.give_up(cell, Reason::Timeout),
                later if later > end => {
                    end = later;
                    continue;
                }
                Some(_) => self.give_up(cell, Reason::MaintenanceTimeout),
            };
            return true;
        }
    }

    /// A cell for so many commands, and the ticket for all of them.
    pub(crate) fn cell(&self, places: usize, slot: Option<Slot>) -> (Arc<Cell>, Settler) {
        let relax = self.relax.as_ref();
        Cell::new(
            places,
            slot,
            relax.map(|relax| Patience::new(relax, clock::now())),
        )
    }

    /// How much longer a call on a connection of its own waits while maintenance is announced.
    pub(crate) fn extension(&self, base: Instant) -> Option<Extension> {
        let relax = self.relax.as_ref();
        relax.map(|relax| Extension::new(relax, base))
    }

    /// Ends what is open in a cell, and has what it leaves behind removed.
    pub(crate) fn give_up(&self, cell: &Cell, why: Reason) -> bool {
        let Some(Gone { homes, commands }) = cell.give_up(why) else {
            return false;
        };
        let timed_out = matches!(why, Reason::Timeout | Reason::MaintenanceTimeout);
        let snapshot = self.routes.snapshot();
        let blamed = |home: &Home| snapshot.blamed(*home, cell.slot());
        if let Some(node) = homes.last().and_then(blamed) {
            let records = &node.wire.records;
            cell.was_at(&records.addr, records.connect_error());
        }
        self.count_given_up(why, commands);
        // Whoever has ended holds nothing.
        for home in homes {
            match home {
                Home::Node(key) => {
                    if let Some(node) = snapshot.node(key) {
                        node.wire.records.tell(NodeMessage::Gone {
                            commands,
                            timed_out,
                        });
                    }
                }
                Home::Coordinator => drop(self.control.send(Control::Gone)),
            }
        }
        true
    }

    /// Counts commands whose caller has gone, if it has gone for this reason.
    pub(crate) fn count_given_up(&self, why: Reason, commands: usize) {
        self.counters.given_up(why, commands);
    }

    /// Tells the coordinator what a redirect says about the cluster.
    pub(crate) fn learn(&self, from: &NodeAddr, redirect: &Redirect) {
        let snapshot = self.routes.snapshot();
        let from = snapshot.view.addrs.iter().find(|(name, _)| name == from);
        if let Some(&(_, from)) = from {
            let redirect = redirect.clone();
            // After its end there is nothing to learn for.
            self.events.send(Event::Learned { from, redirect }).ok();
        }
    }

    pub(crate) fn is_standalone(&self) -> bool {
        self.routes.is_standalone()
    }

    fn stats(&self) -> Stats {
        let snapshot = self.routes.snapshot();
        let mut nodes = BTreeMap::new();
        for node in snapshot.nodes.iter().flatten() {
            let wire = &node.wire;
            let in_flight = wire.records.state.lock().inflight.commands();
            let (waiting, peak) = (wire.records.load.waiting(), wire.records.load.peak());
            nodes.insert(
                wire.records.addr.clone(),
                wire.records.stats.snapshot(waiting, peak, in_flight),
            );
        }
        self.counters.snapshot(nodes)
    }

    fn close(&self, limit: Duration) {
        // Concurrent calls wait here for the first one to be through.
        let mut coordinator = self.coordinator.lock();
        if let Some(handle) = coordinator.take() {
            let now = clock::now();
            let limit = now
                .checked_add(limit)
                .unwrap_or(now + Duration::from_secs(86_400 * 365));
            handle.tell(Control::Close { limit });
            // Each thread that waits on a connection of its own notices within a read slice.
            self.pool.close(limit.max(now + POOL_CLOSE));
            handle.join();
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.close(DROP_LIMIT);
    }
}
