//! Threads of single commands, and of pipelines of the same commands.

use std::time::Duration;

use reslot::{Result, Value, cmd};

use crate::arena::{Arena, Excuse, PATIENCE};
use crate::counter::Counter;
use crate::keys::Key;
use crate::random::Random;
use crate::step::{Context, Step};
use crate::tally::Kind;

/// How many counters a thread has at a time.
const COUNTERS: usize = 12;

/// Runs single commands, or pipelines, until all is over; gives its counters.
pub(crate) fn run(arena: &Arena, thread: usize, kind: Kind, mut random: Random) -> Vec<Counter> {
    let mut made = 0;
    let mut counter = |random: &mut Random| {
        made += 1;
        Counter::new(Key::anywhere(random, &format!("counter:{thread}:{made}")))
    };
    let mut counters: Vec<Counter> = (0..COUNTERS).map(|_| counter(&mut random)).collect();
    let mut used_up = Vec::new();
    while !arena.is_over() {
        let count = match kind {
            Kind::Single => 1,
            _ if random.chance(5) => 1 + random.below(2_000),
            _ => 1 + random.below(100),
        };
        let steps: Vec<Step> = (0..count)
            .map(|_| Step::random(&mut random, counters.len()))
            .collect();
        let limit = match random.chance(3) {
            true => random.millis(1, 100),
            false => PATIENCE,
        };
        let (results, span) = arena.timed(kind, limit, || match kind {
            Kind::Single => vec![single(arena, &steps[0], &counters, limit)],
            _ => pipeline(arena, &steps, &counters, limit),
        });
        let context = Context {
            arena,
            kind,
            span,
            short: limit < PATIENCE,
        };
        judge(context, &steps, results, &mut counters);
        for own in counters.iter_mut().filter(|counter| counter.is_used_up()) {
            used_up.push(std::mem::replace(own, counter(&mut random)));
        }
        if random.chance(20) {
            std::thread::park_timeout(random.millis(0, 3));
        }
    }
    used_up.extend(counters);
    used_up
}

fn single(arena: &Arena, step: &Step, counters: &[Counter], limit: Duration) -> Result<Value> {
    let command = step.command(counters);
    if limit == PATIENCE {
        return arena.client.query(command);
    }
    arena.client.query(command.timeout(limit))
}

fn pipeline(
    arena: &Arena,
    steps: &[Step],
    counters: &[Counter],
    limit: Duration,
) -> Vec<Result<Value>> {
    let mut pipeline = arena.client.pipeline();
    for step in steps {
        pipeline.add(step.command(counters));
    }
    pipeline.timeout(limit);
    pipeline.execute().unwrap_or_else(|error| {
        arena.violation(&format!("a whole pipeline failed: {error}"));
        Vec::new()
    })
}

fn judge(
    context: Context<'_>,
    steps: &[Step],
    results: Vec<Result<Value>>,
    counters: &mut [Counter],
) {
    if results.len() != steps.len() {
        let (got, wanted) = (results.len(), steps.len());
        let text = format!("{got} results of {wanted} commands");
        return context.arena.violation(&text);
    }
    // What may have run is noted first: a read that was repeated may come after a later write.
    for (step, result) in steps.iter().zip(&results) {
        step.judge(context, counters, result);
    }
    for (step, result) in steps.iter().zip(results) {
        if let Ok(value) = result {
            step.compare(context, counters, value);
        }
    }
}

/// Compares the counters with what the servers have at the end.
pub(crate) fn check(arena: &Arena, counters: &mut [Counter]) {
    for some in counters.chunks_mut(200) {
        let mut pipeline = arena.client.pipeline();
        for counter in some.iter() {
            pipeline.add(cmd("GET").arg(counter.key.name()));
        }
        let (values, span) = arena.timed(Kind::Pipeline, PATIENCE, || {
            pipeline.query::<Vec<Option<u64>>>()
        });
        let excuse = Excuse::default();
        arena.fate(Kind::Pipeline, span, None, excuse, &values);
        for (counter, value) in some.iter_mut().zip(values.unwrap_or_default()) {
            counter.read(value.unwrap_or(0), span, arena);
        }
    }
}
