//! Internals for the project's own tests. Not covered by semantic versioning: do not use them.

use crate::proto::command::{self, Access, DynamicSpec};
use crate::proto::value::Value;

/// What the command table says about one command with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandFacts {
    /// Its name in upper case, followed by the subcommand if it is one.
    pub name: String,
    /// Its keys and sharded channels.
    pub keys: Vec<Vec<u8>>,
    /// Whether replicas may run it.
    pub read_only: bool,
    /// Whether it may change something.
    pub write: bool,
    /// Whether some form of it blocks.
    pub may_block: bool,
    /// Whether it blocks with these arguments.
    pub blocks: bool,
}

/// Looks a command up, its name being the first argument; `None` if the table does not have it.
pub fn command_facts(args: &[&[u8]]) -> Option<CommandFacts> {
    let args = args.iter().copied();
    let spec = command::find(args.clone())?;
    let mut keys = Vec::new();
    spec.keys(args.clone(), |key| keys.push(key.to_vec()));
    let access = spec.access(args.clone());
    Some(CommandFacts {
        name: spec.full_name(),
        keys,
        read_only: access == Access::ReadOnly,
        write: access == Access::Write,
        may_block: spec.may_block(),
        blocks: spec.blocking(args).is_some(),
    })
}

/// The keys of a command that is known only by this reply to `COMMAND INFO`; `None` if the reply
/// cannot be read.
pub fn described_keys(command_info: &Value, args: &[&[u8]]) -> Option<Vec<Vec<u8>>> {
    let spec = DynamicSpec::from_command_info(command_info)?;
    let mut keys = Vec::new();
    spec.keys(args.iter().copied(), |key| keys.push(key.to_vec()));
    Some(keys)
}
