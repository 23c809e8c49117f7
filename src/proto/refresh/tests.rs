//! All short histories of requests, starts and results, and the rate over long ones.

use std::time::{Duration, Instant};

use super::{RefreshCause, RefreshGate};

const LEAST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(5);

/// Every history of up to eight steps: one refresh at a time, never two starts within the least
/// interval, and a request is answered only by a refresh that was sent after it.
#[test]
fn all_histories_of_eight_steps() {
    for code in 0..5u32.pow(8) {
        let mut now = Instant::now();
        let mut gate = RefreshGate::new(LEAST, MOST);
        let (mut running, mut last_start, mut open) = (false, None::<Instant>, false);
        let mut asked_while_running = false;
        let mut step = code;
        for _ in 0..8 {
            match step % 5 {
                0 => {
                    gate.request(RefreshCause::Moved);
                    open = true;
                    asked_while_running = running;
                }
                1 => {
                    if gate.start(now).is_some() {
                        assert!(!running && open);
                        assert!(last_start.is_none_or(|start| now >= start + LEAST));
                        (running, last_start, asked_while_running) = (true, Some(now), false);
                    }
                }
                2 if running => {
                    gate.finish(step % 2 == 0);
                    (running, open) = (false, asked_while_running);
                }
                3 if running => {
                    gate.fail();
                    running = false;
                }
                _ => now += Duration::from_millis(60),
            }
            step /= 5;
        }
        // Whatever is open starts sooner or later.
        now += MOST;
        if !running {
            assert_eq!(gate.start(now).is_some(), open, "history {code}");
        }
    }
}

/// One request every 5 ms for a second, with unchanged results: far fewer refreshes than requests.
#[test]
fn a_serial_storm_is_paced() {
    let begin = Instant::now();
    let mut gate = RefreshGate::new(LEAST, MOST);
    let mut starts = 0;
    for millis in (0..1000).step_by(5) {
        gate.request(RefreshCause::Moved);
        if gate.start(begin + Duration::from_millis(millis)).is_some() {
            starts += 1;
            gate.finish(false);
        }
    }
    assert!((2..=11).contains(&starts), "{starts}");
}

/// While commands wait for a new owner, the distance stops growing at a second.
#[test]
fn urgent_causes_are_asked_for_every_second() {
    let begin = Instant::now();
    let mut gate = RefreshGate::new(LEAST, MOST);
    let mut starts = Vec::new();
    for millis in (0..10_000).step_by(10) {
        gate.request(RefreshCause::ConnectionLost);
        if gate.start(begin + Duration::from_millis(millis)).is_some() {
            starts.push(millis);
            gate.finish(false);
        }
    }
    let longest = starts
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .max()
        .unwrap();
    assert!(longest <= 1010, "{starts:?}");
}
