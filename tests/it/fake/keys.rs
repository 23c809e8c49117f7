//! Keys and slots, computed without the library under test.

use std::ops::RangeInclusive;
use std::sync::OnceLock;

use super::topology::SLOTS;

/// The slot of a key: CRC16 (XMODEM) of its hash tag, or of all of it, modulo 16384.
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % SLOTS
}

/// A key of this slot: short, and the same in every run. For more keys of a slot put it in braces.
pub fn key_for_slot(slot: u16) -> String {
    static KEYS: OnceLock<Vec<String>> = OnceLock::new();
    let keys = KEYS.get_or_init(|| {
        let mut keys = vec![String::new(); usize::from(SLOTS)];
        let mut missing = keys.len();
        for key in (0u32..).map(|number| format!("k{number}")) {
            let place = &mut keys[usize::from(slot_of(key.as_bytes()))];
            if place.is_empty() {
                *place = key;
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        keys
    });
    keys[usize::from(slot)].clone()
}

/// A key of the first slot of a range.
pub fn key_in(slots: RangeInclusive<u16>) -> String {
    key_for_slot(*slots.start())
}

/// This many keys of different slots, spread evenly over a range.
pub fn keys_in(slots: RangeInclusive<u16>, count: u16) -> Vec<String> {
    let width = u32::from(slots.end() - slots.start()) + 1;
    assert!(u32::from(count) <= width, "{count} keys of {width} slots");
    (0..u32::from(count))
        .map(|number| {
            let step = number * width / u32::from(count);
            key_for_slot(slots.start() + u16::try_from(step).expect("less than the width"))
        })
        .collect()
}

fn hash_tag(key: &[u8]) -> &[u8] {
    let tag = || {
        let open = key.iter().position(|&byte| byte == b'{')?;
        let rest = &key[open + 1..];
        let end = rest.iter().position(|&byte| byte == b'}')?;
        (end > 0).then(|| &rest[..end])
    };
    tag().unwrap_or(key)
}

/// Bit by bit: slow, but different from any table that the library may use.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}
