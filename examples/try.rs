//! Try.
use reslot::*;
fn main() {
    let url = std::env::args().nth(1).unwrap();
    let t = std::time::Instant::now();
    let c = Client::connect(&url).unwrap();
    println!("connected {:?}", t.elapsed());
    c.set("k", "v").unwrap();
    let v: Option<String> = c.get("k").unwrap();
    println!("{v:?}");
    let n: i64 = c.query(cmd("INCRBY").arg("hits").arg(3)).unwrap();
    println!("{n}");
    let mut p = c.pipeline();
    for i in 0..10 {
        p.add(cmd("SET").arg(format!("k{i}")).arg(i));
        p.add(cmd("GET").arg(format!("k{i}")));
    }
    for r in p.execute().unwrap() {
        print!("{r:?} ");
    }
    println!();
    println!("{:?}", c.query::<i64>(cmd("DBSIZE")));
    println!("{:?}", c.query::<Value>(cmd("SELECT").arg(1)));
    let t = std::time::Instant::now();
    for _ in 0..20000 {
        let _: Option<String> = c.get("k").unwrap();
    }
    println!("20000 gets {:?}", t.elapsed());
    let t = std::time::Instant::now();
    std::thread::scope(|s| {
        for _ in 0..64 {
            s.spawn(|| {
                for i in 0..2000 {
                    let _: Option<String> = c.get(format!("k{}", i % 10)).unwrap();
                }
            });
        }
    });
    println!("128000 gets by 64 {:?}", t.elapsed());
    let t = std::time::Instant::now();
    for _ in 0..100 {
        let mut p = c.pipeline();
        for i in 0..1000 {
            p.add(cmd("GET").arg(format!("k{}", i)));
        }
        p.execute().unwrap();
    }
    println!("100x1000 {:?}", t.elapsed());
    println!("{:#?}", c.stats().topology_queries);
    let t = std::time::Instant::now();
    c.close(std::time::Duration::from_secs(1)).unwrap();
    println!("closed {:?}", t.elapsed());
    println!("{:?}", c.get::<String>("k"));
}
