//! The locks of this crate: parking_lot's.
//!
//! Types whose races are modelled take theirs from [`modelled`], where they are loom's when the
//! models run. Those see nothing else of the crate: no other lock, no channel, no clock.

pub(crate) use parking_lot::{Condvar, Mutex, RwLock};

#[cfg(not(all(test, loom)))]
pub(crate) mod modelled {
    //! What the reply cell and the rest of the reading thread are made of.

    pub(crate) use parking_lot::{Condvar, Mutex};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64};
}

#[cfg(test)]
#[cfg(loom)]
pub(crate) mod modelled {
    //! The same made of loom's locks, as far as the modelled types use it.

    use std::ops::{Deref, DerefMut};
    use std::time::Instant;

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64};

    const POISONED: &str = "no thread panics in a model";

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    /// Empty only while it waits: loom wants guards by value, parking_lot by reference.
    pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    #[derive(Debug)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect(POISONED)))
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_deref().expect("no thread looks while it waits")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            let guard = self.0.as_deref_mut();
            guard.expect("no thread looks while it waits")
        }
    }

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().expect("it is held");
            guard.0 = Some(self.0.wait(held).expect(POISONED));
        }

        /// A model knows no time: the deadline never comes, so a wake-up that is lost is found.
        pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _deadline: Instant) {
            self.wait(guard);
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}
