//! The test harnesses test themselves, without the library.

mod fake;
mod honest;
mod real;
