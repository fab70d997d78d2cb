//! A gate that lets a bounded number of callers through, first come, first served.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bounds how many generations run at once. Clones are handles to the same gate.
///
/// A place that comes free is handed to whoever has waited longest, before anyone who comes later
/// can take it, so that no one starves.
///
/// ```
/// # use std::num::NonZeroUsize;
/// # use rushlight_engine::gate::Gate;
/// let gate = Gate::new(NonZeroUsize::MIN);
/// let permit = gate.acquire();
/// assert!(gate.try_acquire().is_none());
/// drop(permit);
/// assert!(gate.try_acquire().is_some());
/// ```
#[derive(Debug, Clone)]
pub struct Gate {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    capacity: NonZeroUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_flight: usize,
    /// Longest wait first.
    waiters: VecDeque<Arc<Waiter>>,
}

#[derive(Debug, Default)]
struct Waiter {
    /// Whether a place has been handed over. Each waiter has a condition of its own, so that
    /// waking one wakes no other.
    granted: Mutex<bool>,
    wake: Condvar,
}

/// A place inside the gate, held until it is dropped.
#[derive(Debug)]
#[must_use = "the place is given back when the permit is dropped"]
pub struct Permit {
    shared: Arc<Shared>,
}

impl Gate {
    /// A gate that lets `capacity` callers through at once.
    pub fn new(capacity: NonZeroUsize) -> Self {
        Self {
            shared: Arc::new(Shared {
                capacity,
                state: Mutex::default(),
            }),
        }
    }

    /// Waits for a place, blocking the thread.
    pub fn acquire(&self) -> Permit {
        let waiter = {
            let mut state = lock(&self.shared.state);
            if self.has_room(&state) {
                state.in_flight += 1;
                return self.permit();
            }
            let waiter = Arc::<Waiter>::default();
            state.waiters.push_back(Arc::clone(&waiter));
            waiter
        };
        let mut granted = lock(&waiter.granted);
        while !*granted {
            granted = waiter
                .wake
                .wait(granted)
                .unwrap_or_else(PoisonError::into_inner);
        }
        self.permit()
    }

    /// A place, if there is one and no one waits for it.
    pub fn try_acquire(&self) -> Option<Permit> {
        let mut state = lock(&self.shared.state);
        self.has_room(&state).then(|| {
            state.in_flight += 1;
            self.permit()
        })
    }

    /// The most callers inside at once.
    pub fn capacity(&self) -> NonZeroUsize {
        self.shared.capacity
    }

    /// Callers inside now.
    pub fn in_flight(&self) -> usize {
        lock(&self.shared.state).in_flight
    }

    /// Callers waiting now.
    pub fn waiters(&self) -> usize {
        lock(&self.shared.state).waiters.len()
    }

    fn has_room(&self, state: &State) -> bool {
        state.waiters.is_empty() && state.in_flight < self.shared.capacity.get()
    }

    fn permit(&self) -> Permit {
        Permit {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let next = {
            let mut state = lock(&self.shared.state);
            let next = state.waiters.pop_front();
            if next.is_none() {
                state.in_flight -= 1;
            }
            // Otherwise the place changes hands and as many are inside as before.
            next
        };
        if let Some(waiter) = next {
            *lock(&waiter.granted) = true;
            waiter.wake.notify_one();
        }
    }
}

/// No code that can panic runs under these locks, so a poisoned one still holds a whole state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn gate(capacity: usize) -> Gate {
        Gate::new(NonZeroUsize::new(capacity).unwrap())
    }

    /// Starts a thread that waits at the gate and returns once it is in the queue.
    fn wait_in_queue<'scope>(
        scope: &'scope thread::Scope<'scope, '_>,
        gate: &'scope Gate,
        inside: impl FnOnce(Permit) + Send + 'scope,
    ) {
        let before = gate.waiters();
        scope.spawn(move || inside(gate.acquire()));
        while gate.waiters() == before {
            thread::yield_now();
        }
    }

    #[test]
    fn eng_17_waiters_are_let_in_in_order() {
        let gate = gate(1);
        let (order, woken) = mpsc::channel();
        let (leave, may_leave) = mpsc::channel::<()>();
        let may_leave = Mutex::new(may_leave);
        thread::scope(|scope| {
            let first = gate.acquire();
            for index in 0..4 {
                let order = order.clone();
                let may_leave = &may_leave;
                wait_in_queue(scope, &gate, move |permit| {
                    order.send(index).unwrap();
                    may_leave.lock().unwrap().recv().unwrap();
                    drop(permit);
                });
            }
            drop(first);
            for index in 0..4 {
                assert_eq!(woken.recv().unwrap(), index);
                // Handed over: never zero inside, never two.
                assert_eq!((gate.in_flight(), gate.waiters()), (1, 3 - index));
                assert!(gate.try_acquire().is_none());
                leave.send(()).unwrap();
            }
        });
        assert_eq!((gate.in_flight(), gate.waiters()), (0, 0));
    }

    #[test]
    fn eng_17_fifty_callers_at_capacity_three() {
        let gate = gate(3);
        let inside = AtomicUsize::new(0);
        let most = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| {
                    let permit = gate.acquire();
                    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                });
            }
        });
        assert!((1..=3).contains(&most.load(Ordering::SeqCst)));
        assert_eq!((gate.in_flight(), gate.waiters()), (0, 0));
    }

    #[test]
    fn a_panic_inside_gives_the_place_back() {
        let gate = gate(1);
        let inside = gate.clone();
        let result = thread::spawn(move || {
            let _permit = inside.acquire();
            panic!("on purpose");
        })
        .join();
        assert!(result.is_err());
        assert_eq!(gate.in_flight(), 0);
        assert!(gate.try_acquire().is_some());
    }
}
