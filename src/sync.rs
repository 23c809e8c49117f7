//! The locks of this crate: parking_lot normally, loom under `cfg(loom)`.

#[cfg(not(loom))]
pub(crate) use parking_lot::{Condvar, Mutex, RwLock};

#[cfg(loom)]
pub(crate) use self::modelled::{Condvar, Mutex};

#[cfg(loom)]
mod modelled {
    //! loom's locks with parking_lot's signatures, as far as the reply cell uses them.

    use std::time::Instant;

    pub(crate) type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no thread panics in a model")
        }
    }

    #[derive(Debug)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            replace(guard, |guard| {
                self.0.wait(guard).expect("no thread panics in a model")
            });
        }

        /// loom knows no time: deadlines are modelled as calls of `expire`.
        pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _deadline: Instant) {
            self.wait(guard);
        }

        pub(crate) fn notify_all(&self) -> usize {
            self.0.notify_all();
            0
        }
    }
}
