//! The wire format of Redis: RESP2 and RESP3.
