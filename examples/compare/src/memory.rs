//! Memory for commands that wait: a server is stopped, and commands for it are queued.

use std::net::SocketAddr;
use std::time::Duration;

use crate::child;
use crate::contender::{Answer, Contender, Failure, Interlude, Work};
use crate::keys::{Keys, Size, slot};
use crate::local_cluster::LocalCluster;
use crate::options::Options;
use crate::usage;

/// How many commands are queued.
const COMMANDS: usize = 100_000;

/// How long a client has to move them to where they wait.
const SETTLE: Duration = Duration::from_millis(500);

/// Those that can have so many commands under way without a thread for each.
const ABLE: [Contender; 3] = [Contender::RedisAsync, Contender::Fred, Contender::Reslot];

/// Measures each client in a process of its own, one after the other, and prints the sizes.
pub(crate) fn run(options: &Options, server: &str) -> Answer {
    println!("\n| {COMMANDS} GETs wait for a stopped server | bytes per command ¹ |\n|---|---|");
    for contender in ABLE.into_iter().filter(|who| options.only.contains(who)) {
        eprintln!("memory: {}", contender.name());
        let result = child::start_memory(contender, server)?.result();
        let text = result.unwrap_or_else(|error| format!("failed: {error}"));
        println!("| {} | {text} |", contender.name());
    }
    println!(
        "\n¹ Growth of the process: what the caller holds (futures that are joined, or \
         `Pending`s) and what the client holds. All are answered after the server goes on, or \
         else it failed. `bare` and `redis-sync` need a thread for each."
    );
    Ok(())
}

/// In the child: prints the bytes per command, or why there are none.
pub(crate) fn child(contender: Contender, server: &str) -> Answer {
    match measure(contender, server) {
        Ok(bytes) => println!("{bytes}"),
        Err(error) => println!("failed: {error}"),
    }
    Ok(())
}

fn measure(contender: Contender, server: &str) -> Result<usize, Failure> {
    // The other nodes must not give up the one that is stopped.
    let builder = LocalCluster::builder().config("cluster-node-timeout 60000");
    let cluster = builder.server(server).start();
    let nodes: Vec<SocketAddr> = (0..cluster.len()).map(|node| cluster.addr(node)).collect();
    let keys = Keys::new();
    keys.load(&nodes)?;
    let small: Vec<&str> = keys.of(Size::Small).iter().map(String::as_str).collect();
    let first = |key: &&&str| slot(key) < 16384 / 3;
    let stopped: Vec<&str> = small.iter().filter(first).copied().collect();
    let queued: Vec<&str> = stopped.iter().cycle().take(COMMANDS).copied().collect();

    let runtime = tokio::runtime::Runtime::new()?;
    let mut sessions = contender.open(&nodes, 1, &runtime)?;
    let session = &mut sessions[0];
    for keys in small[..1000].chunks(100) {
        session.run(Work { keys, value: None })?;
    }
    cluster.pause(0);
    let before = usage::resident();
    let mut grown = 0;
    let mut act = || {
        grown = usage::resident().saturating_sub(before);
        cluster.resume(0);
    };
    let (pause, act) = (SETTLE, &mut act);
    session.send(&queued, Some(Interlude { pause, act }))?;
    Ok(grown / COMMANDS)
}
