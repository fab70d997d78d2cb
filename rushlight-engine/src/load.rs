//! Models loaded once, shared by all who use them, and let go when nobody does.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};

use crate::error::{ErrorKind, Result};

/// A store of loaded values by key, with single-flight loading.
///
/// - However many callers ask for a key at once, its loader runs once and all share the result.
/// - A failed load is told to everyone who waited for it and is then forgotten: the next caller
///   loads again.
/// - A value that is unloaded while someone borrows it lives until the last borrow ends. Whoever
///   asks for it before that gets the same value, so that a large model is never in memory twice,
///   but the unloading stands.
/// - A load that was under way when its key was unloaded serves those who wait for it and leaves
///   nothing behind.
///
/// ```
/// # use rushlight_engine::load::Loader;
/// let loader = Loader::new();
/// let a = loader.load(&"smol", || Ok(vec![1.0f32; 4]))?;
/// let b = loader.load(&"smol", || unreachable!("already there"))?;
/// assert!(std::sync::Arc::ptr_eq(&a, &b));
/// # Ok::<(), rushlight_engine::EngineError>(())
/// ```
pub struct Loader<K, V> {
    slots: Mutex<HashMap<K, Slot<V>>>,
}

enum Slot<V> {
    Loading(Arc<Flight<V>>),
    Loaded(Arc<V>),
    /// Unloaded, perhaps still borrowed.
    Retiring(Weak<V>),
}

/// A load under way.
struct Flight<V> {
    /// The thread that runs the loader.
    thread: ThreadId,
    outcome: Mutex<Option<Result<Arc<V>>>>,
    landed: Condvar,
}

/// What a [`Loader`] knows of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoadState {
    /// Nothing is loaded or loading.
    Absent,
    /// A load is under way.
    Loading,
    /// Loaded, and kept.
    Loaded,
    /// Unloaded, but borrowed by someone still.
    Retiring,
}

impl<K: Eq + Hash + Clone, V> Loader<K, V> {
    /// Nothing loaded.
    pub fn new() -> Self {
        Self {
            slots: Mutex::new(HashMap::new()),
        }
    }

    /// The value of `key`, loaded with `load` unless it is there or on its way. The value is
    /// borrowed for as long as the returned handle lives.
    ///
    /// No lock is held while `load` runs. If it panics, the panic goes on in this thread.
    ///
    /// # Errors
    /// The loader's error, the same for all who waited for this load;
    /// [`LoadPanicked`](ErrorKind::LoadPanicked) for those who waited while it panicked;
    /// [`LoadReentered`](ErrorKind::LoadReentered) where a loader asks for its own key.
    pub fn load(&self, key: &K, load: impl FnOnce() -> Result<V>) -> Result<Arc<V>> {
        let flight = {
            let mut slots = lock(&self.slots);
            match slots.get(key) {
                Some(Slot::Loaded(value)) => return Ok(Arc::clone(value)),
                Some(Slot::Loading(flight)) => {
                    let flight = Arc::clone(flight);
                    drop(slots);
                    return flight.wait();
                }
                Some(Slot::Retiring(value)) => {
                    if let Some(value) = value.upgrade() {
                        return Ok(value);
                    }
                }
                None => {}
            }
            let flight = Arc::new(Flight {
                thread: thread::current().id(),
                outcome: Mutex::new(None),
                landed: Condvar::new(),
            });
            slots.insert(key.clone(), Slot::Loading(Arc::clone(&flight)));
            flight
        };
        let landing = Landing {
            loader: self,
            key,
            flight: &flight,
        };
        landing.land(load().map(Arc::new))
    }

    /// Lets go of `key`: at once where nobody borrows it, else when the last borrow ends. A load
    /// under way is not kept when it is done. Returns the state this left: `Absent` or `Retiring`.
    pub fn unload(&self, key: &K) -> LoadState {
        let slot = {
            let mut slots = lock(&self.slots);
            let slot = slots.remove(key);
            let weak = match &slot {
                Some(Slot::Loaded(value)) => Some(Arc::downgrade(value)),
                Some(Slot::Retiring(value)) => Some(Weak::clone(value)),
                Some(Slot::Loading(_)) | None => None,
            };
            if let Some(weak) = weak {
                slots.insert(key.clone(), Slot::Retiring(weak));
            }
            slot
        };
        // Dropping a model takes time and runs its own code: not under the lock.
        drop(slot);
        self.state(key)
    }

    /// Lets go of every key, as [`unload`](Self::unload) does of one.
    pub fn unload_all(&self) {
        let keys: Vec<K> = lock(&self.slots).keys().cloned().collect();
        for key in &keys {
            self.unload(key);
        }
    }

    /// What is known of `key` now.
    pub fn state(&self, key: &K) -> LoadState {
        let mut slots = lock(&self.slots);
        match slots.get(key) {
            Some(Slot::Loading(_)) => LoadState::Loading,
            Some(Slot::Loaded(_)) => LoadState::Loaded,
            Some(Slot::Retiring(value)) if value.strong_count() > 0 => LoadState::Retiring,
            Some(Slot::Retiring(_)) => {
                slots.remove(key);
                LoadState::Absent
            }
            None => LoadState::Absent,
        }
    }
}

impl<K: Eq + Hash + Clone, V> Default for Loader<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> fmt::Debug for Loader<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").finish_non_exhaustive()
    }
}

impl<V> Flight<V> {
    fn wait(&self) -> Result<Arc<V>> {
        if self.thread == thread::current().id() {
            return Err(ErrorKind::LoadReentered.into());
        }
        let mut outcome = lock(&self.outcome);
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            let next = self.landed.wait(outcome);
            outcome = next.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Ends a flight exactly once: with its outcome, or, when a panic drops this, without one.
struct Landing<'a, K: Eq + Hash + Clone, V> {
    loader: &'a Loader<K, V>,
    key: &'a K,
    flight: &'a Arc<Flight<V>>,
}

impl<K: Eq + Hash + Clone, V> Landing<'_, K, V> {
    fn land(self, outcome: Result<Arc<V>>) -> Result<Arc<V>> {
        self.settle(&outcome);
        outcome
    }

    fn settle(&self, outcome: &Result<Arc<V>>) {
        {
            let mut slots = lock(&self.loader.slots);
            // Unloaded meanwhile, the slot is gone or belongs to a later load: leave it be.
            let ours = matches!(slots.get(self.key),
                Some(Slot::Loading(flight)) if Arc::ptr_eq(flight, self.flight));
            if ours {
                match outcome {
                    Ok(value) => {
                        slots.insert(self.key.clone(), Slot::Loaded(Arc::clone(value)));
                    }
                    Err(_) => {
                        slots.remove(self.key);
                    }
                }
            }
        }
        *lock(&self.flight.outcome) = Some(outcome.clone());
        self.flight.landed.notify_all();
    }
}

impl<K: Eq + Hash + Clone, V> Drop for Landing<'_, K, V> {
    fn drop(&mut self) {
        if lock(&self.flight.outcome).is_none() {
            self.settle(&Err(ErrorKind::LoadPanicked.into()));
        }
    }
}

/// A panic under one of these locks (a key's `clone` or `eq`) leaves a map that is still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Barrier, mpsc};

    use super::*;
    use crate::error::{EngineError, Fault};

    type Model = &'static str;
    type Handle<'scope> = thread::ScopedJoinHandle<'scope, Result<Arc<Model>>>;

    fn failure() -> EngineError {
        EngineError::load("model.gguf", Fault::File, "truncated")
    }

    /// Starts a load that goes on until the returned sender says so, and waits until it is under
    /// way.
    fn slow_load<'scope>(
        scope: &'scope thread::Scope<'scope, '_>,
        loader: &'scope Loader<u32, Model>,
        outcome: impl FnOnce() -> Result<Model> + Send + 'scope,
    ) -> (mpsc::Sender<()>, Handle<'scope>) {
        let (finish, finished) = mpsc::channel();
        let load = move || {
            finished.recv().unwrap();
            outcome()
        };
        let handle = scope.spawn(move || loader.load(&1, load));
        while loader.state(&1) != LoadState::Loading {
            thread::yield_now();
        }
        (finish, handle)
    }

    /// Starts `n` threads that ask for key 1 and waits until all hold the flight.
    fn waiters<'scope>(
        scope: &'scope thread::Scope<'scope, '_>,
        loader: &'scope Loader<u32, Model>,
        n: usize,
    ) -> Vec<Handle<'scope>> {
        let handles = (0..n)
            .map(|_| scope.spawn(|| loader.load(&1, || panic!("a second load"))))
            .collect();
        loop {
            if let Some(Slot::Loading(flight)) = lock(&loader.slots).get(&1)
                // The slot, the loading thread, and each waiter.
                && Arc::strong_count(flight) == 2 + n
            {
                return handles;
            }
            thread::yield_now();
        }
    }

    #[test]
    fn eng_18_twenty_first_users_share_one_load() {
        let loader = Loader::new();
        let loads = AtomicUsize::new(0);
        let start = Barrier::new(20);
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    start.wait();
                    let load = || {
                        loads.fetch_add(1, Ordering::SeqCst);
                        thread::yield_now();
                        Ok("model")
                    };
                    assert_eq!(*loader.load(&1, load).unwrap(), "model");
                });
            }
        });
        assert_eq!(loads.load(Ordering::SeqCst), 1);
        assert_eq!(loader.state(&1), LoadState::Loaded);
    }

    #[test]
    fn eng_18_a_failure_reaches_all_who_wait_and_is_not_kept() {
        let loader = Loader::new();
        thread::scope(|scope| {
            let (finish, first) = slow_load(scope, &loader, || Err(failure()));
            let waiting = waiters(scope, &loader, 5);
            finish.send(()).unwrap();
            for handle in waiting.into_iter().chain([first]) {
                let e = handle.join().unwrap().unwrap_err();
                assert_eq!(e.kind(), failure().kind());
            }
        });
        assert_eq!(loader.state(&1), LoadState::Absent);
        assert_eq!(*loader.load(&1, || Ok("second")).unwrap(), "second");
    }

    #[test]
    fn eng_18_unloading_waits_for_the_borrows_to_end() {
        let loader = Loader::new();
        let borrow = loader.load(&1, || Ok("model")).unwrap();
        assert_eq!(loader.unload(&1), LoadState::Retiring);
        let again = loader.load(&1, || panic!("in memory twice")).unwrap();
        assert!(Arc::ptr_eq(&borrow, &again));
        drop(borrow);
        assert_eq!(loader.state(&1), LoadState::Retiring);
        assert_eq!(loader.unload(&1), LoadState::Retiring);
        drop(again);
        assert_eq!(loader.state(&1), LoadState::Absent);
        assert_eq!(*loader.load(&1, || Ok("reloaded")).unwrap(), "reloaded");
        assert_eq!(loader.unload(&1), LoadState::Absent, "nobody borrows it");
    }

    #[test]
    fn fm_7_unloading_during_a_load_is_not_undone_by_it() {
        for fails in [false, true] {
            let loader = Loader::new();
            thread::scope(|scope| {
                let outcome = move || if fails { Err(failure()) } else { Ok("old") };
                let (finish, first) = slow_load(scope, &loader, outcome);
                let waiting = waiters(scope, &loader, 2);
                loader.unload_all();
                assert_eq!(loader.state(&1), LoadState::Absent);
                // A new load is not disturbed by the end of the old one either.
                let new = loader.load(&1, || Ok("new")).unwrap();
                finish.send(()).unwrap();
                for handle in waiting.into_iter().chain([first]) {
                    match handle.join().unwrap() {
                        Ok(value) => assert_eq!((*value, fails), ("old", false)),
                        Err(_) => assert!(fails),
                    }
                }
                assert_eq!(*loader.load(&1, || panic!("kept")).unwrap(), "new");
                assert_eq!(*new, "new");
            });
            loader.unload(&1);
            assert_eq!(loader.state(&1), LoadState::Absent);
        }
    }

    #[test]
    fn fm_7_unloading_clears_only_its_key() {
        let loader = Loader::new();
        loader.load(&1, || Ok("one")).unwrap();
        loader.load(&2, || Ok("two")).unwrap();
        loader.unload(&1);
        assert_eq!(loader.state(&1), LoadState::Absent);
        assert_eq!(loader.state(&2), LoadState::Loaded);
    }

    #[test]
    fn a_panicking_loader_frees_those_who_wait() {
        let loader = Loader::new();
        thread::scope(|scope| {
            let (finish, first) = slow_load(scope, &loader, || panic!("on purpose"));
            let waiting = waiters(scope, &loader, 3);
            finish.send(()).unwrap();
            for handle in waiting {
                let e = handle.join().unwrap().unwrap_err();
                assert_eq!(e.kind(), &ErrorKind::LoadPanicked);
            }
            assert!(first.join().is_err());
        });
        assert_eq!(*loader.load(&1, || Ok("after")).unwrap(), "after");
    }

    #[test]
    fn a_loader_that_asks_for_itself_is_an_error_and_not_a_wait_without_end() {
        let loader: Loader<u32, u32> = Loader::new();
        let result = loader.load(&1, || loader.load(&1, || Ok(5)).map(|value| *value));
        assert_eq!(result.unwrap_err().kind(), &ErrorKind::LoadReentered);
        // Another key is fine.
        let result = loader.load(&1, || loader.load(&2, || Ok(5)).map(|value| *value + 1));
        assert_eq!(*result.unwrap(), 6);
    }
}
