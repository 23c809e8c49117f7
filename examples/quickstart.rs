//! Set, get, a pipeline, typed replies. Uses the cluster at `REDIS_URL`, or starts one of its own.
//!
//! cargo run --release --example quickstart
//! REDIS_URL=redis://127.0.0.1:7000 cargo run --release --example quickstart

#[path = "../tests/local_cluster/mod.rs"]
mod local_cluster;

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use local_cluster::{LocalCluster, ensure_server};
use reslot::{Client, cmd};

fn main() -> Result<(), Box<dyn Error>> {
    if let Ok(url) = std::env::var("REDIS_URL") {
        return Ok(show(&url)?);
    }
    let cluster = LocalCluster::builder().server(&ensure_server()?).start();
    Ok(show(&cluster.url())?)
}

fn show(url: &str) -> reslot::Result<()> {
    // One client for the whole program: share it, or clone it, between all threads.
    let client = Client::connect(url)?;

    client.set("greeting", "hello")?;
    let greeting: Option<String> = client.get("greeting")?;
    println!("greeting: {greeting:?}");

    // Any command; the reply is read as the type that is asked for.
    client.del("hits")?;
    let hits: i64 = client.query(cmd("INCRBY").arg("hits").arg(3))?;
    client.query::<()>(cmd("HSET").arg("user:1").arg(("name", "Ada", "age", 36)))?;
    let user: BTreeMap<String, String> = client.query(cmd("HGETALL").arg("user:1"))?;
    println!("hits: {hits}, user: {user:?}");

    // Many commands at once, for any slots: the client splits them by node.
    let mut pipeline = client.pipeline();
    for number in 0..1000 {
        pipeline.add(cmd("SET").arg((format!("square:{number}"), number * number)));
    }
    let results = pipeline.execute()?;
    let failed = results.iter().filter(|result| result.is_err()).count();
    let mut pipeline = client.pipeline();
    pipeline.add(cmd("GET").arg("square:12"));
    pipeline.add(cmd("STRLEN").arg("greeting"));
    let (square, length): (u64, usize) = pipeline.query()?;
    println!(
        "1000 squares stored, {failed} failed; 12² = {square}, the greeting has {length} bytes"
    );

    let error = client.incr("greeting").expect_err("it is no number");
    println!("INCR greeting: {error}");
    client.close(Duration::from_secs(5))
}
