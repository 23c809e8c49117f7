//! Free ports for servers, also while other test processes look for some.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports of clients, and with 10,000 added those of the cluster bus: both stay below the range
/// from which the kernel takes the local ports of outgoing connections.
const FIRST: u16 = 10_000;
const COUNT: u16 = 12_000;

/// A port that was free a moment ago, together with the port of its cluster bus. Somebody else may
/// take it before the server does, so a server that fails to start is given another one.
pub(super) fn free_port() -> u16 {
    static START: OnceLock<u16> = OnceLock::new();
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = *START.get_or_init(|| {
        // Each process starts somewhere else, so that two of them seldom meet.
        let random = RandomState::new().hash_one(std::process::id());
        u16::try_from(random % u64::from(COUNT)).expect("COUNT fits u16")
    });
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (start + step % COUNT) % COUNT;
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
