//! Loads lines `key<TAB>value` from a file or standard input, with bounded memory.
//!
//! cargo run --release --example bulk_load -- [-u URL] [--batch N] [--threads N] [FILE]
//! seq 1000000 | sed 's/.*/key:&\tvalue &/' | cargo run --release --example bulk_load
//!
//! Each thread sends a pipeline of `--batch` lines (10,000) and waits for its replies; `--threads`
//! (4) of them are under way at a time, and as many more wait to be sent. The cluster is that at
//! `URL` or `REDIS_URL`, else redis://127.0.0.1:6379. Once a second a line on standard error tells
//! how far it is. Ctrl-C stops reading, waits for what is under way, and tells how many lines were
//! acknowledged. Ends with 0 if all lines were, with 130 after Ctrl-C, with 1 otherwise.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, never, select, tick};
use reslot::{Client, cmd};
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;

/// A batch is closed earlier if it has this many bytes.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// How many lines that failed are told about one by one.
const EXPLAINED: u64 = 10;

type Failure = Box<dyn Error + Send + Sync>;

struct Options {
    url: String,
    batch: usize,
    threads: usize,
    file: Option<String>,
}

/// Lines, and the number of the first one.
#[derive(Default)]
struct Batch {
    first: u64,
    lines: Vec<Vec<u8>>,
    bytes: usize,
}

#[derive(Default)]
struct Progress {
    acknowledged: AtomicU64,
    failed: AtomicU64,
}

fn main() -> ExitCode {
    match Options::parse().and_then(|options| run(&options)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<ExitCode, Failure> {
    let input: Box<dyn BufRead + Send> = match &options.file {
        Some(path) => {
            let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
            Box::new(BufReader::with_capacity(1 << 16, file))
        }
        None => Box::new(BufReader::with_capacity(1 << 16, io::stdin())),
    };
    let client = Client::connect(&options.url)?;
    let progress = Progress::default();
    let (queue, batches) = bounded(options.threads);
    let (stop, stopped) = bounded(0);
    let (read, reading) = bounded(1);
    let batch = options.batch;
    // Not joined: after Ctrl-C it may wait for input that never comes.
    thread::spawn(move || drop(read.send(read_batches(input, batch, &queue))));
    let start = Instant::now();
    let interrupted = thread::scope(|scope| {
        let (done, all_done) = bounded::<()>(0);
        for _ in 0..options.threads {
            let (batches, stopped, done) = (batches.clone(), stopped.clone(), done.clone());
            let (client, progress) = (&client, &progress);
            scope.spawn(move || {
                load(client, &batches, &stopped, progress);
                drop(done);
            });
        }
        drop((done, batches));
        watch(&all_done, stop, &progress, start)
    })?;
    report("done", &progress, start);
    client.close(Duration::from_secs(5))?;
    if interrupted {
        eprintln!("interrupted: lines after these were not sent");
        return Ok(ExitCode::from(130));
    }
    reading.recv()??;
    let failed = progress.failed.load(Ordering::Relaxed);
    Ok(ExitCode::from(u8::from(failed > 0)))
}

/// Waits until all threads are done. On Ctrl-C drops `stop`, which tells them to end.
fn watch(
    all_done: &Receiver<()>,
    stop: Sender<()>,
    progress: &Progress,
    start: Instant,
) -> Result<bool, Failure> {
    let mut signals = Signals::new([SIGINT])?;
    let (interrupt, mut interrupts) = bounded(1);
    thread::spawn(move || {
        signals
            .forever()
            .try_for_each(|signal| interrupt.send(signal))
    });
    let seconds = tick(Duration::from_secs(1));
    let mut stop = Some(stop);
    loop {
        select! {
            recv(all_done) -> _ => return Ok(stop.is_none()),
            recv(seconds) -> _ => report("loading", progress, start),
            recv(interrupts) -> _ => {
                eprintln!("interrupted: waiting for what is under way");
                stop = None;
                interrupts = never();
            }
        }
    }
}

fn report(what: &str, progress: &Progress, start: Instant) {
    let acknowledged = progress.acknowledged.load(Ordering::Relaxed);
    let failed = progress.failed.load(Ordering::Relaxed);
    let seconds = start.elapsed().as_secs_f64();
    let rate = acknowledged as f64 / seconds;
    eprintln!("{what}: {acknowledged} acknowledged, {failed} failed, {seconds:.1} s, {rate:.0}/s");
}

/// Ends at the end of the input, or when nobody takes batches any more.
fn read_batches(
    mut input: Box<dyn BufRead + Send>,
    limit: usize,
    queue: &Sender<Batch>,
) -> io::Result<()> {
    let mut batch = Batch {
        first: 1,
        ..Batch::default()
    };
    loop {
        let mut line = Vec::new();
        let length = input.read_until(b'\n', &mut line)?;
        batch.bytes += length;
        if length > 0 {
            if line.ends_with(b"\n") {
                line.pop();
            }
            batch.lines.push(line);
        }
        if batch.lines.len() == limit || batch.bytes >= BATCH_BYTES || length == 0 {
            let first = batch.first + batch.lines.len() as u64;
            if queue.send(std::mem::take(&mut batch)).is_err() || length == 0 {
                return Ok(());
            }
            batch.first = first;
        }
    }
}

/// Sends batches until there are none left, or until told to stop.
fn load(client: &Client, batches: &Receiver<Batch>, stopped: &Receiver<()>, progress: &Progress) {
    loop {
        let batch = select! {
            recv(stopped) -> _ => return,
            recv(batches) -> batch => match batch {
                Ok(batch) => batch,
                Err(_) => return,
            },
        };
        let mut pipeline = client.pipeline();
        let mut numbers = Vec::with_capacity(batch.lines.len());
        for (number, line) in (batch.first..).zip(&batch.lines) {
            match line.iter().position(|&byte| byte == b'\t') {
                Some(tab) => {
                    pipeline.add(cmd("SET").arg(&line[..tab]).arg(&line[tab + 1..]));
                    numbers.push(number);
                }
                None => progress.fail(number, "no tab between key and value"),
            }
        }
        match pipeline.execute() {
            Ok(results) => {
                for (number, result) in numbers.into_iter().zip(results) {
                    match result {
                        Ok(_) => drop(progress.acknowledged.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => progress.fail(number, &error.to_string()),
                    }
                }
            }
            Err(error) => numbers.into_iter().for_each(|number| {
                progress.fail(number, &error.to_string());
            }),
        }
    }
}

impl Progress {
    fn fail(&self, line: u64, why: &str) {
        let before = self.failed.fetch_add(1, Ordering::Relaxed);
        if before < EXPLAINED {
            eprintln!("line {line}: {why}");
        }
    }
}

impl Options {
    fn parse() -> Result<Self, Failure> {
        let mut options = Self {
            url: std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".into()),
            batch: 10_000,
            threads: 4,
            file: None,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "-u" => options.url = value()?,
                "--batch" => options.batch = value()?.parse()?,
                "--threads" => options.threads = value()?.parse()?,
                name if name.starts_with('-') => return Err(format!("no option {name}").into()),
                _ => options.file = Some(arg),
            }
        }
        if options.batch == 0 || options.threads == 0 {
            return Err("--batch and --threads must be at least 1".into());
        }
        Ok(options)
    }
}
