//! A fork-join pool for regions of a few microseconds.
//!
//! One step of a small model is some two hundred parallel regions. Threads that were put to sleep and
//! woken in each would cost more than the work, so a worker that waits spins first, then yields its core
//! to whoever wants it, and sleeps in the end: inside a step it is always awake, between requests always
//! asleep.
//!
//! A region never waits for a worker that has not begun. Workers enter a region while it is open; the
//! caller works too, closes it when there is no more to do, and waits for those inside alone. A worker that
//! the system did not let run, be it because another program has the core or because there are more threads
//! than cores, costs nothing. Of the latter, those that no core is left for sleep: awake, they would only
//! take the cores from each other and from the caller.
//!
//! Which thread does what never changes a result: a region only hands out ranges, and every kernel's
//! arithmetic is fixed by position.
//!
//! It lives with the kernels because running a borrowed closure on long-lived threads needs `unsafe`:
//! [`Pool::run`] does not return before every worker that entered is done with the closure.

use std::cell::UnsafeCell;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Spins before a waiting worker begins to yield its core: some 0.1 ms, longer than the serial work
/// between two regions of a step.
const SPINS: usize = if cfg!(miri) { 10 } else { 6_000 };
/// Yields before it sleeps. Where nobody else wants the core, these are 0.3 ms or so: longer than sampling
/// a token takes.
const YIELDS: usize = if cfg!(miri) { 4 } else { 800 };
/// Spins before a caller that waits for the last worker begins to yield its core. It does not sleep: what
/// it waits for is running.
const CALLER_SPINS: usize = if cfg!(miri) { 10 } else { 2_000 };

/// Worker threads for short parallel regions. One region runs at a time; callers queue.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    region: Mutex<()>,
}

impl Pool {
    /// A pool of `threads` threads, the caller's included.
    ///
    /// # Errors
    /// When `threads` is 0 or the system refuses a thread.
    pub fn new(threads: usize) -> std::io::Result<Pool> {
        Pool::on(
            thread::available_parallelism().map_or(1, NonZeroUsize::get),
            threads,
        )
    }

    /// A pool on a machine of so many cores.
    fn on(cores: usize, threads: usize) -> std::io::Result<Pool> {
        let others = threads.checked_sub(1).ok_or_else(|| {
            std::io::Error::new(std::io::ErrorKind::InvalidInput, "a pool of 0 threads")
        })?;
        // The pool drops (and joins) what was spawned if a later spawn fails.
        let mut pool = Pool {
            shared: Arc::new(Shared {
                job: UnsafeCell::new(None),
                state: AtomicU64::new(State::CLOSED),
                // One beside the caller even where there is one core, which the system shares out.
                seats: others.min(cores.saturating_sub(1).max(1)),
                awake: AtomicUsize::new(others),
                panicked: AtomicBool::new(false),
                stop: AtomicBool::new(false),
                calls: Mutex::new(0),
                wake: Condvar::new(),
            }),
            workers: Vec::new(),
            region: Mutex::new(()),
        };
        for index in 1..=others {
            let shared = Arc::clone(&pool.shared);
            pool.workers.push(
                thread::Builder::new()
                    .name(format!("rushlight-{index}"))
                    .spawn(move || shared.work(index))?,
            );
        }
        Ok(pool)
    }

    /// Threads of a region, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `job` on this thread, whose index is 0, and at most once on every other thread that is free in
    /// time, with that thread's index; returns when all calls are done. The job takes its work from a queue,
    /// so that one call would do all of it and several share it.
    ///
    /// A job must not use the pool it runs on: it would wait for itself.
    ///
    /// # Panics
    /// If `job` panicked on any thread.
    pub fn run(&self, job: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() {
            return job(0);
        }
        let region = self.region.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: only the lifetime changes. Workers touch the job between entering the region and leaving
        // it, and this function closes the region and waits for all that entered below, also when its own
        // call of the job panics.
        let erased: *const (dyn Fn(usize) + Sync + 'static) =
            unsafe { std::mem::transmute(std::ptr::from_ref(job)) };
        // SAFETY: no worker reads the cell now: the last region is closed and was left by all, and none
        // enters before the next is open. Callers exclude each other by `region`.
        unsafe { *self.shared.job.get() = Some(Job(erased)) };
        self.shared.open();
        let own = catch_unwind(AssertUnwindSafe(|| job(0)));
        self.shared.close();
        let failed = self.shared.panicked.swap(false, Ordering::Relaxed);
        drop(region);
        if let Err(payload) = own {
            resume_unwind(payload);
        }
        assert!(!failed, "a worker panicked");
    }

    /// Hands out `0..total` in ranges of `grain` to whichever thread is free.
    ///
    /// # Panics
    /// If `job` panicked, or `grain` is 0.
    pub fn for_each(&self, total: usize, grain: usize, job: &(dyn Fn(Range<usize>) + Sync)) {
        assert!(grain > 0, "ranges of 0");
        if total <= grain || self.workers.is_empty() {
            if total > 0 {
                job(0..total);
            }
            return;
        }
        let next = AtomicUsize::new(0);
        self.run(&|_| {
            loop {
                let start = next.fetch_add(grain, Ordering::Relaxed);
                if start >= total {
                    break;
                }
                job(start..total.min(start + grain));
            }
        });
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("threads", &self.threads())
            .finish()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let mut calls = self.shared.lock();
        *calls = usize::MAX;
        self.shared.wake.notify_all();
        drop(calls);
        for worker in self.workers.drain(..) {
            // A worker's panic was already reported by the region it happened in.
            let _ = worker.join();
        }
    }
}

struct Job(*const (dyn Fn(usize) + Sync));

struct Shared {
    job: UnsafeCell<Option<Job>>,
    /// A [`State`].
    state: AtomicU64,
    /// Workers that there are cores for.
    seats: usize,
    /// Workers that do not sleep.
    awake: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
    /// How many sleepers are to wake.
    calls: Mutex<usize>,
    wake: Condvar,
}

// SAFETY: `job` is written only while no worker reads it (see `Pool::run`), and points to a `Sync` closure.
unsafe impl Send for Shared {}
// SAFETY: as above; everything else in it is `Sync`.
unsafe impl Sync for Shared {}

/// A region's number, whether it is closed, and how many workers are inside, in one word, so that entering
/// is one exchange.
#[derive(Clone, Copy)]
struct State(u64);

impl State {
    const CLOSED: u64 = 1 << 31;

    /// Comes round again after 2³² regions; a worker that slept through them all misses one.
    fn number(self) -> u64 {
        self.0 >> 32
    }

    fn is_closed(self) -> bool {
        self.0 & State::CLOSED != 0
    }

    fn inside(self) -> u64 {
        self.0 & (State::CLOSED - 1)
    }
}

impl Shared {
    fn state(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, usize> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the next region and wakes as many sleepers as there are cores for.
    fn open(&self) {
        let next = self.state().number().wrapping_add(1) << 32;
        // Nobody else changes a closed state.
        self.state.store(next, Ordering::SeqCst);
        // SeqCst pairs with the sleeper's count and check: either it sees this region, or we see it.
        let missing = self.seats.saturating_sub(self.awake.load(Ordering::SeqCst));
        if missing > 0 {
            *self.lock() = missing;
            (0..missing).for_each(|_| self.wake.notify_one());
        }
    }

    /// Closes the region and waits for those inside.
    fn close(&self) {
        self.state.fetch_or(State::CLOSED, Ordering::AcqRel);
        let mut spins = 0;
        while self.state().inside() != 0 {
            spins += 1;
            if spins < CALLER_SPINS {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }

    /// Enters the region if it is open.
    fn enter(&self, mut state: State) -> bool {
        while !state.is_closed() {
            let inside = state.0 + 1;
            let entered = self.state.compare_exchange_weak(
                state.0,
                inside,
                Ordering::Acquire,
                Ordering::Acquire,
            );
            match entered {
                Ok(_) => return true,
                Err(now) if State(now).number() == state.number() => state = State(now),
                Err(_) => return false,
            }
        }
        false
    }

    fn work(&self, index: usize) {
        let mut seen = 0;
        while let Some(state) = self.wait(seen) {
            seen = state.number();
            if !self.enter(state) {
                continue;
            }
            // SAFETY: this thread is inside the region, so its job is set and stays alive until it leaves.
            let done = catch_unwind(AssertUnwindSafe(|| unsafe {
                if let Some(job) = &*self.job.get() {
                    (*job.0)(index);
                }
            }));
            if done.is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.state.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for a region other than `seen`; `None` where there will be none.
    fn wait(&self, seen: u64) -> Option<State> {
        let mut rounds = 0;
        loop {
            if self.stop.load(Ordering::Acquire) {
                return None;
            }
            if self.awake.load(Ordering::Relaxed) > self.seats || rounds > SPINS + YIELDS {
                self.sleep(seen);
                rounds = 0;
            }
            let state = self.state();
            if state.number() != seen {
                return Some(state);
            }
            rounds += 1;
            if rounds <= SPINS {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }

    /// Sleeps until [`open`](Shared::open) calls, unless there is a seat and a region to take it in.
    fn sleep(&self, seen: u64) {
        let mut calls = self.lock();
        let left = self.awake.fetch_sub(1, Ordering::SeqCst) - 1;
        let missed = State(self.state.load(Ordering::SeqCst)).number() != seen;
        if left >= self.seats || !missed {
            while *calls == 0 {
                calls = self
                    .wake
                    .wait(calls)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            *calls = calls.saturating_sub(1);
            if self.stop.load(Ordering::Acquire) {
                *calls = usize::MAX;
            }
        }
        self.awake.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_the_job_at_most_once_a_region_and_the_caller_does_always() {
        let pool = Pool::on(3, 3).unwrap();
        let calls = [const { AtomicU64::new(0) }; 3];
        for region in 1..=200 {
            pool.run(&|i| {
                calls[i].fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(calls[0].load(Ordering::Relaxed), region);
            assert!(calls.iter().all(|c| c.load(Ordering::Relaxed) <= region));
        }
    }

    /// A region waits for those that are in it: each thread holds the other up until both are there.
    #[test]
    fn threads_work_at_the_same_time_and_wake_from_sleep() {
        let pool = Pool::on(2, 2).unwrap();
        for _ in 0..3 {
            let inside = AtomicU64::new(0);
            pool.run(&|_| {
                inside.fetch_add(1, Ordering::SeqCst);
                while inside.load(Ordering::SeqCst) < 2 {
                    thread::yield_now();
                }
            });
            assert_eq!(inside.into_inner(), 2);
            while pool.shared.awake.load(Ordering::SeqCst) > 0 {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn threads_that_no_core_is_left_for_sleep() {
        let pool = Pool::on(2, 8).unwrap();
        assert_eq!(pool.threads(), 8);
        while pool.shared.awake.load(Ordering::SeqCst) > 1 {
            pool.run(&|_| {});
        }
        for _ in 0..100 {
            pool.run(&|_| {});
            assert!(pool.shared.awake.load(Ordering::SeqCst) <= 1);
        }
    }

    #[test]
    fn ranges_cover_everything_once() {
        for threads in 1..4 {
            let pool = Pool::on(2, threads).unwrap();
            for total in [0, 1, 7, 64] {
                let hits: Vec<AtomicU64> = (0..total).map(|_| AtomicU64::new(0)).collect();
                pool.for_each(total, 3, &|range| {
                    for i in range {
                        hits[i].fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::on(2, 2).unwrap();
        for bad in 0..2 {
            // Both are inside before one panics.
            let inside = AtomicU64::new(0);
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|i| {
                    inside.fetch_add(1, Ordering::SeqCst);
                    while inside.load(Ordering::SeqCst) < 2 {
                        thread::yield_now();
                    }
                    assert!(i != bad, "thread {i}");
                });
            }));
            assert!(caught.is_err());
        }
        let sum = AtomicU64::new(0);
        pool.for_each(5, 1, &|range| {
            sum.fetch_add(range.start as u64, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 10);
    }

    #[test]
    fn callers_on_several_threads_take_turns() {
        let pool = Pool::on(2, 2).unwrap();
        let sum = AtomicU64::new(0);
        thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for _ in 0..20 {
                        pool.for_each(2, 1, &|_| {
                            sum.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 120);
    }

    #[test]
    fn zero_threads_is_refused() {
        assert!(Pool::new(0).is_err());
    }
}
