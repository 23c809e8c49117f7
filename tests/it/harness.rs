//! The test harnesses test themselves, without the library.

mod real;
