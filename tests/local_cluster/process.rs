//! One server process, which never outlives the process that started it.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Starts the server in place of the shell, next to a watchdog that reads from a pipe held by the
/// test process. When that process ends in any way other than by [`Process::stop`], the pipe closes
/// without a word, and the watchdog kills the server and removes its folder.
const LAUNCH: &str = r#"
folder=$1
shift
exec 3<&0
{
    read -r word <&3
    test "$word" = ended || { kill -9 $$; rm -rf -- "$folder"; }
} &
exec "$@" </dev/null 3<&-
"#;

/// A running server. Dropping it kills the server.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// The pipe that the watchdog reads.
    watchdog: ChildStdin,
}

impl Process {
    /// Starts `server` with the configuration file. Its output goes to `log`; `folder` is what the
    /// watchdog removes if this process dies.
    pub(super) fn start(server: &str, conf: &Path, log: &Path, folder: &Path) -> io::Result<Self> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut child = Command::new("sh")
            .args(["-c", LAUNCH, "launch"])
            .arg(folder)
            .arg(server)
            .arg(conf)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let watchdog = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self { child, watchdog })
    }

    /// The id of the server process (the shell was replaced by it).
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal such as `STOP`.
    pub(super) fn signal(&self, name: &str) -> io::Result<()> {
        let id = self.id().to_string();
        let status = Command::new("sh")
            .args(["-c", r#"kill -s "$1" "$2""#, "signal", name, &id])
            .status()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("cannot send {name} to {id}")))
        }
    }

    /// Kills the server and waits until it is gone.
    pub(super) fn stop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.watchdog.write_all(b"ended\n");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}
