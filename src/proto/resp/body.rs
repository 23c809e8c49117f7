//! A large string while it is being received, in the buffer that becomes its value.

use super::fault::ProtocolError;

/// Smallest string that gets a buffer of its own. Below that, copying is cheaper than the extra
/// reads that a separate buffer costs.
pub(super) const LARGE: usize = 32 * 1024;

/// Most room offered to one read; as much as stays in the processor's cache while it is zeroed and
/// then filled.
const WINDOW: usize = 256 * 1024;

/// Memory that is taken on the word of a header alone. Beyond it, no more is taken than twice what
/// has arrived.
const TRUSTED: usize = 1024 * 1024;

/// A large string, with the line end that follows it so that one read can get both.
///
/// Invariant: `got <= bytes.len() <= whole`.
pub(super) struct LargeBody {
    /// Initialised as far as reads have been offered room.
    bytes: Vec<u8>,
    /// How much has been received.
    got: usize,
    /// The length to be reached: the string and its line end.
    whole: usize,
}

impl LargeBody {
    /// A string of `len` bytes whose beginning has been received.
    pub(super) fn new(len: usize, beginning: &[u8]) -> Self {
        let whole = len + 2;
        debug_assert!(beginning.len() < whole);
        let mut bytes = Vec::with_capacity(whole.min(TRUSTED.max(beginning.len())));
        bytes.extend_from_slice(beginning);
        Self {
            got: bytes.len(),
            bytes,
            whole,
        }
    }

    /// Where the next read should go; empty when all has been received.
    pub(super) fn spare(&mut self) -> &mut [u8] {
        let offer = self.whole.min(self.got + WINDOW);
        if offer > self.bytes.len() {
            if offer > self.bytes.capacity() {
                let larger = self.whole.min((2 * self.got).max(TRUSTED));
                self.bytes.reserve_exact(larger - self.bytes.len());
            }
            self.bytes.resize(offer, 0);
        }
        &mut self.bytes[self.got..offer]
    }

    /// Tells that a read put `count` bytes into the spare room.
    pub(super) fn filled(&mut self, count: usize) {
        self.got += count;
        assert!(self.got <= self.bytes.len(), "filled beyond the spare room");
    }

    /// Whether all has been received.
    pub(super) fn is_whole(&self) -> bool {
        self.got == self.whole
    }

    /// The string, once all has been received.
    pub(super) fn finish(self) -> Result<Vec<u8>, ProtocolError> {
        debug_assert!(self.is_whole());
        let mut bytes = self.bytes;
        if !bytes.ends_with(b"\r\n") {
            return Err(ProtocolError::StringEnd);
        }
        bytes.truncate(self.whole - 2);
        Ok(bytes)
    }

    /// Bytes of memory held.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.bytes.capacity()
    }
}
