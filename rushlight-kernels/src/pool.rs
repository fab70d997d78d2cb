//! A fork-join pool for regions of a few microseconds.
//!
//! One step of a small model is some two hundred parallel regions. Threads that were put to sleep and
//! woken in each would cost more than the work, so workers spin for a while before they sleep: inside
//! a step they are always awake, between requests always asleep. Which thread does what never changes a
//! result: a region only hands out ranges, and every kernel's arithmetic is fixed by position.
//!
//! It lives with the kernels because running a borrowed closure on long-lived threads needs `unsafe`:
//! [`Pool::run`] does not return before every worker is done with the closure.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Spins before a worker sleeps: about 0.3 ms, longer than sampling a token takes.
const SPINS: usize = if cfg!(miri) { 10 } else { 20_000 };
/// Spins before a waiting caller begins to yield its core.
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
        let others = threads.checked_sub(1).ok_or_else(|| {
            std::io::Error::new(std::io::ErrorKind::InvalidInput, "a pool of 0 threads")
        })?;
        // The pool drops (and joins) what was spawned if a later spawn fails.
        let mut pool = Pool {
            shared: Arc::new(Shared::default()),
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

    /// Calls `job` once on every thread, with the thread's index, and returns when all are done.
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
        // SAFETY: only the lifetime changes. Workers touch the job between the epoch's change and
        // their count-down of `running`, and this function waits for all count-downs below, also
        // when its own call of the job panics.
        let erased: *const (dyn Fn(usize) + Sync + 'static) =
            unsafe { std::mem::transmute(std::ptr::from_ref(job)) };
        // SAFETY: no worker reads the cell now: all have counted down for the last region, and none
        // reads it before the epoch changes. Callers exclude each other by `region`.
        unsafe { *self.shared.job.get() = Some(Job(erased)) };
        self.shared
            .running
            .store(self.workers.len(), Ordering::Relaxed);
        self.shared.next_epoch();

        let own = catch_unwind(AssertUnwindSafe(|| job(0)));
        let mut spins = 0;
        while self.shared.running.load(Ordering::Acquire) != 0 {
            spins += 1;
            if spins < CALLER_SPINS {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
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
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.next_epoch();
        for worker in self.workers.drain(..) {
            // A worker's panic was already reported by the region it happened in.
            let _ = worker.join();
        }
    }
}

struct Job(*const (dyn Fn(usize) + Sync));

#[derive(Default)]
struct Shared {
    job: UnsafeCell<Option<Job>>,
    /// Changes once a region.
    epoch: AtomicUsize,
    /// Workers still inside the region.
    running: AtomicUsize,
    sleepers: AtomicUsize,
    panicked: AtomicBool,
    stop: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

// SAFETY: `job` is written only while no worker reads it (see `Pool::run`), and points to a `Sync` closure.
unsafe impl Send for Shared {}
// SAFETY: as above; everything else in it is `Sync`.
unsafe impl Sync for Shared {}

impl Shared {
    fn next_epoch(&self) {
        // SeqCst pairs with the sleeper's count and check: either it sees this epoch, or we see it.
        self.epoch.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.wake.notify_all();
        }
    }

    fn work(&self, index: usize) {
        let mut seen = 0;
        loop {
            seen = self.wait(seen);
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            // SAFETY: the epoch changed, so the job is set and stays alive until we count down.
            let done = catch_unwind(AssertUnwindSafe(|| unsafe {
                if let Some(job) = &*self.job.get() {
                    (*job.0)(index);
                }
            }));
            if done.is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.running.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for an epoch other than `seen`.
    fn wait(&self, seen: usize) -> usize {
        for _ in 0..SPINS {
            let epoch = self.epoch.load(Ordering::Acquire);
            if epoch != seen {
                return epoch;
            }
            std::hint::spin_loop();
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let epoch = loop {
            let epoch = self.epoch.load(Ordering::SeqCst);
            if epoch != seen {
                break epoch;
            }
            guard = self
                .wake
                .wait(guard)
                .unwrap_or_else(PoisonError::into_inner);
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_thread_runs_the_job_once_a_region() {
        let pool = Pool::new(3).unwrap();
        let calls = [const { AtomicU64::new(0) }; 3];
        for _ in 0..50 {
            pool.run(&|i| {
                calls[i].fetch_add(1, Ordering::Relaxed);
            });
        }
        assert!(calls.iter().all(|c| c.load(Ordering::Relaxed) == 50));
    }

    #[test]
    fn ranges_cover_everything_once() {
        for threads in 1..4 {
            let pool = Pool::new(threads).unwrap();
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
        let pool = Pool::new(2).unwrap();
        for bad in 0..2 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|i| assert!(i != bad, "thread {i}"));
            }));
            assert!(caught.is_err());
        }
        let sum = AtomicU64::new(0);
        pool.run(&|i| {
            sum.fetch_add(i as u64, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 1);
    }

    #[test]
    fn callers_on_several_threads_take_turns() {
        let pool = Pool::new(2).unwrap();
        let sum = AtomicU64::new(0);
        thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for _ in 0..20 {
                        pool.run(&|_| {
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
