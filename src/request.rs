//! From a command to what the queues need: where it may go, and what is true about it.

use std::sync::Arc;
use std::time::Instant;

use crate::cancel::CancelToken;
use crate::client::Core;
use crate::cmd::{Cmd, Route};
use crate::error::{Error, Misuse, Result};
use crate::proto::addr::NodeAddr;
use crate::proto::command::{
    self, Access, Aggregate, Blocking, CrossSlot, DynamicSpec, Spec, Target as Place, TimeArg,
};
use crate::proto::redirect::Author;
use crate::proto::resp::encode::Encoded;
use crate::proto::slot::Slot;
use crate::proto::unit::{Body, Bytes, Facts, Target};
use crate::runtime::clock;
use crate::runtime::routes::Pick;

/// A command that was checked and can be sent.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) encoded: Encoded,
    pub(crate) plan: Plan,
    pub(crate) deadline: Option<Instant>,
    /// Whether the caller stated how long to wait.
    pub(crate) has_own_deadline: bool,
    pub(crate) cancel: Option<CancelToken>,
    /// Which argument says how long the command blocks.
    pub(crate) time_arg: Option<TimeArg>,
}

/// How it is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// As a unit of the shared connections.
    Shared(Facts, Pick),
    /// On a connection of its own, for as long as it blocks.
    Blocking(Facts, Pick, Blocking),
    /// To every primary; the replies are combined.
    FanOut(Option<Aggregate>),
}

/// A command that runs together with others on one node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) slot: Option<Slot>,
    /// It writes nothing.
    pub(crate) only_reads: bool,
    /// Who writes its errors.
    pub(crate) author: Author,
}

/// Commands that are waited for as a whole. What one of them states for itself alone could not be
/// kept, so it is refused: why, and what to use instead.
pub(crate) struct Whole {
    pub(crate) timeout: &'static str,
    pub(crate) cancel: &'static str,
}

impl Whole {
    pub(crate) fn check(&self, command: &Cmd) -> Result<()> {
        if command.states_deadline() {
            Err(refused(command.encoded(), self.timeout))
        } else if command.cancel().is_some() {
            Err(refused(command.encoded(), self.cancel))
        } else {
            Ok(())
        }
    }
}

/// What the table, or the server, says about a command.
enum Known {
    Table(&'static Spec),
    Dynamic(Arc<DynamicSpec>),
    /// Nothing: the caller stated where it goes.
    Nothing,
}

impl Known {
    fn place(&self, encoded: &Encoded) -> std::result::Result<Place, CrossSlot> {
        match self {
            Known::Table(spec) => spec.route(encoded.args()),
            Known::Dynamic(spec) => spec.route(encoded.args()),
            Known::Nothing => Ok(Place::Any),
        }
    }

    fn access(&self, encoded: &Encoded) -> Access {
        match self {
            Known::Table(spec) => spec.access(encoded.args()),
            Known::Dynamic(spec) => spec.access(encoded.args()),
            Known::Nothing => Access::Write,
        }
    }

    fn author(&self) -> Author {
        match self {
            Known::Table(spec) if spec.runs_script() => Author::Script,
            Known::Table(_) | Known::Dynamic(_) | Known::Nothing => Author::Server,
        }
    }

    fn blocking(&self, encoded: &Encoded) -> Option<Blocking> {
        match self {
            Known::Table(spec) => spec.blocking(encoded.args()),
            Known::Dynamic(spec) => spec.blocking(encoded.args()),
            Known::Nothing => None,
        }
    }
}

impl Request {
    /// Checks a command. Nothing is sent for it, but a command that the table does not know is
    /// asked for once with `COMMAND INFO`.
    pub(crate) fn new(command: Cmd, core: &Arc<Core>) -> Result<Self> {
        let deadline = command.deadline_at(clock::now(), core.config.response_timeout);
        if let Some((facts, pick)) = Self::short_plan(&command) {
            return Ok(Self {
                plan: Plan::Shared(facts, pick),
                deadline,
                has_own_deadline: false,
                cancel: None,
                time_arg: None,
                encoded: command.into_encoded(),
            });
        }
        let cancel = command.cancel();
        let known = Self::check(&command, core, deadline, cancel.as_slice())?;
        let plan = Self::plan(&command, &known, core.is_standalone())?;
        let time_arg = match (&plan, &known) {
            (Plan::Blocking(..), Known::Table(spec)) => spec.time_arg(command.encoded().args()),
            _ => None,
        };
        Ok(Self {
            plan,
            deadline,
            has_own_deadline: command.states_deadline(),
            cancel: command.cancel().cloned(),
            time_arg,
            encoded: command.into_encoded(),
        })
    }

    /// How nearly every command is sent, found at once: it is flawless, has one key, and nothing
    /// is stated about it but perhaps that key.
    pub(crate) fn short_plan(command: &Cmd) -> Option<(Facts, Pick)> {
        if !command.is_plain() {
            return None;
        }
        let mut args = command.encoded().args();
        let (key, access) = command::find_plain(args.next()?)?.only_key()?;
        let slot = match command.stated_slot() {
            Some(slot) => slot,
            None => Slot::of_key(args.nth(key - 1)?),
        };
        Some(facts(Target::Slot(slot), access, None, Author::Server))
    }

    /// How a command is to be sent, checked like any other; `None` if a server has to be asked
    /// where its keys are.
    pub(crate) fn plan_now(command: &Cmd, core: &Arc<Core>) -> Result<Option<Plan>> {
        Self::check_flaw(command, core)?;
        let known = Self::known(command);
        known
            .map(|known| Self::plan(command, &known, core.is_standalone()))
            .transpose()
    }

    /// The same, and a server is asked, unless this is cancelled.
    pub(crate) fn plan_of(
        command: &Cmd,
        core: &Arc<Core>,
        deadline: Option<Instant>,
        cancel: Option<&CancelToken>,
    ) -> Result<Plan> {
        let known = Self::check(command, core, deadline, cancel.as_slice())?;
        Self::plan(command, &known, core.is_standalone())
    }

    fn check(
        command: &Cmd,
        core: &Arc<Core>,
        deadline: Option<Instant>,
        cancels: &[&CancelToken],
    ) -> Result<Known> {
        Self::check_flaw(command, core)?;
        if let Some(known) = Self::known(command) {
            return Ok(known);
        }
        let spec = core
            .learned
            .look_up(command.name(), core, deadline, cancels)?;
        Ok(spec.map_or(Known::Nothing, Known::Dynamic))
    }

    fn check_flaw(command: &Cmd, core: &Core) -> Result<()> {
        match command.flaw() {
            // A single server takes keys of any slots together; who states a route knows better.
            Some(Misuse::CrossSlot { .. })
                if core.is_standalone() || command.stated_route().is_some() =>
            {
                Ok(())
            }
            Some(flaw) => Err(flaw.into()),
            None => Ok(()),
        }
    }

    /// What is known without asking a server.
    fn known(command: &Cmd) -> Option<Known> {
        if let Some(spec) = command::find(command.encoded().args()) {
            return Some(Known::Table(spec));
        }
        let stated = command.stated_route().is_some() || command.stated_slot().is_some();
        stated.then_some(Known::Nothing)
    }

    fn plan(command: &Cmd, known: &Known, standalone: bool) -> Result<Plan> {
        let encoded = command.encoded();
        let place = match known.place(encoded) {
            // All keys are on the one server; where the first one would be does not matter.
            Err(CrossSlot(slot, _)) if standalone => Place::Slot(slot),
            Err(_) if command.stated_route().is_some() => Place::Any,
            Err(CrossSlot(first, second)) => return Err(cross_slot(encoded, first, second)),
            Ok(place) => place,
        };
        if let Place::Refused(why) = place {
            return Err(refused(encoded, why));
        }
        let target = match (command.stated_route(), command.stated_slot(), place) {
            (Some(Route::Node(_)), ..) => Target::Node,
            (Some(Route::AnyPrimary), ..) => Target::Any,
            (Some(Route::AllPrimaries), _, Place::AllPrimaries(how)) => {
                return Ok(Plan::FanOut(Some(how)));
            }
            (Some(Route::AllPrimaries), ..) => return Ok(Plan::FanOut(None)),
            (_, Some(slot), _) | (_, None, Place::Slot(slot)) => Target::Slot(slot),
            (_, _, Place::AllPrimaries(how)) => return Ok(Plan::FanOut(Some(how))),
            (_, _, Place::NamedNode(why)) => return Err(refused(encoded, why)),
            (_, _, Place::Any | Place::Refused(_)) => Target::Any,
        };
        let access = known.access(encoded);
        let stated = command.stated_read_only();
        let (facts, mut pick) = facts(target, access, stated, known.author());
        if let Some(Route::Node(addr)) = command.stated_route() {
            pick = Pick::Node(addr.clone());
        }
        Ok(match known.blocking(encoded) {
            Some(blocking) => Plan::Blocking(facts, pick, blocking),
            None => Plan::Shared(facts, pick),
        })
    }

    /// Checks a command that runs together with others on one node, which may be known already.
    /// Where a command without keys would go by itself does not matter.
    pub(crate) fn member(
        command: &Cmd,
        core: &Arc<Core>,
        deadline: Option<Instant>,
        cancels: &[&CancelToken],
        node: Option<&NodeAddr>,
    ) -> Result<Member> {
        let known = Self::check(command, core, deadline, cancels)?;
        let encoded = command.encoded();
        match command.stated_route() {
            Some(Route::Node(addr)) if Some(addr) != node => {
                let why = "names a node, but runs where the keys are";
                return Err(refused(encoded, why));
            }
            Some(Route::AllPrimaries) => {
                return Err(refused(encoded, "is for all nodes, but runs on one"));
            }
            _ => {}
        }
        let place = match known.place(encoded) {
            Err(CrossSlot(slot, _)) if core.is_standalone() => Place::Slot(slot),
            Err(CrossSlot(first, second)) => return Err(cross_slot(encoded, first, second)),
            Ok(place) => place,
        };
        let slot = match (command.stated_slot(), place) {
            (_, Place::Refused(why)) => return Err(refused(encoded, why)),
            (Some(slot), _) | (None, Place::Slot(slot)) => Some(slot),
            (None, Place::Any | Place::AllPrimaries(_) | Place::NamedNode(_)) => None,
        };
        let stated = command.stated_read_only();
        let only_reads = stated.unwrap_or_else(|| known.access(encoded) != Access::Write);
        Ok(Member {
            slot,
            only_reads,
            author: known.author(),
        })
    }

    /// The body of a unit of this one command.
    pub(crate) fn into_body(self, facts: Facts) -> Body {
        let (buffer, start) = self.encoded.into_bytes();
        Body::One(Bytes::Own(buffer, start), facts)
    }
}

/// What the queues must know about a command, and which node may run it, by what it does to the
/// data and what its caller has `stated` about reading.
fn facts(target: Target, access: Access, stated: Option<bool>, author: Author) -> (Facts, Pick) {
    let repeatable = stated.unwrap_or(access != Access::Write);
    let pick = match stated.unwrap_or(access == Access::ReadOnly) {
        true => Pick::Replica,
        false => Pick::Primary,
    };
    let facts = Facts {
        target,
        repeatable,
        author,
    };
    (facts, pick)
}

/// The error for a command that cannot be run this way.
pub(crate) fn refused(command: &Encoded, why: &'static str) -> Error {
    let command = full_name(command);
    Misuse::Refused { command, why }.into()
}

/// The error for a key of another slot than one before it.
pub(crate) fn cross_slot(command: &Encoded, first: Slot, second: Slot) -> Error {
    let (command, slots) = (full_name(command), (first, second));
    Misuse::CrossSlot { command, slots }.into()
}

/// The name, with the subcommand if the table knows it.
fn full_name(command: &Encoded) -> String {
    if let Some(spec) = command::find(command.args()) {
        return spec.full_name();
    }
    let name = command.arg(0).unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}
