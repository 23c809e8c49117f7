//! The server program: which one to use, and how to get it.

use std::process::{Command, Stdio};

/// The server program: `RESLOT_TEST_SERVER`, or `redis-server`.
pub fn server_program() -> String {
    std::env::var("RESLOT_TEST_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// Makes sure that a server can be started and says on standard error what it does: if
/// `redis-server` is missing, it is installed with `apt-get`, which takes a Debian-like system and
/// root. For examples; tests never install anything.
pub fn ensure_server() -> Result<String, String> {
    let program = server_program();
    if let Some(version) = version_line(&program) {
        eprintln!("server: {program} ({version})");
        return Ok(program);
    }
    if program != "redis-server" {
        return Err(missing(&program));
    }
    eprintln!("redis-server is missing; installing it with apt-get");
    apt_get(&["update"])?;
    apt_get(&["install", "-y", "redis-server"])?;
    match version_line(&program) {
        Some(version) => {
            eprintln!("installed {program} ({version})");
            Ok(program)
        }
        None => Err(missing(&program)),
    }
}

/// What `--version` prints; `None` if the program cannot be run.
pub(super) fn version_line(program: &str) -> Option<String> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.trim().to_owned())
}

/// Why no server can be started and what to do about it.
pub(super) fn missing(program: &str) -> String {
    format!(
        "cannot run the server {program:?}: install one with `apt-get install -y redis-server`, \
         or name one in RESLOT_TEST_SERVER"
    )
}

fn apt_get(args: &[&str]) -> Result<(), String> {
    eprintln!("running apt-get {}", args.join(" "));
    let output = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run apt-get: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(format!("apt-get {} failed: {reason}", args.join(" ")))
}
