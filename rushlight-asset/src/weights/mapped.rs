//! A memory-mapped file that survives being shortened.
//!
//! Reading a mapped page that lies past the end of its file raises `SIGBUS` on Unix, which ends
//! the process. So each mapping is entered in a fixed table, and one signal handler, installed
//! with the first mapping, looks the faulting address up: if it lies in one of ours, the rest of
//! that mapping becomes zero pages and the mapping is marked as damaged; any other address is
//! passed to the handler that was there before. Readers see zeros, and [`MappedFile::intact`]
//! turns the mark into an error.
//!
//! Windows keeps a mapped file from being shortened, so nothing is needed there.
//!
//! This is the one file of the crate with `unsafe`.
#![allow(unsafe_code)]

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::error::{AssetError, ErrorKind};

/// A regular file, mapped for reading.
pub(crate) struct MappedFile {
    path: PathBuf,
    file: File,
    // Before `map`, because fields drop in order and an entry must go before its pages do.
    guard: guard::Entry,
    map: Mmap,
}

impl MappedFile {
    /// Maps a whole file.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] or [`ErrorKind::Io`] where it cannot be opened or is no regular
    /// file, [`ErrorKind::Malformed`] where it is empty, [`ErrorKind::Limit`] where
    /// [`crate::limits::MAPPINGS`] files are open already.
    pub(crate) fn open(path: &Path) -> Result<MappedFile, AssetError> {
        let about = fs::metadata(path).map_err(|e| AssetError::io(path, "open the file", e))?;
        if !about.is_file() {
            // Opening a pipe would wait for a writer, and a device has no length.
            return Err(AssetError::new(ErrorKind::Io, "not a regular file").in_file(path));
        }
        if about.len() == 0 {
            return Err(AssetError::malformed(
                "the file is empty: the download or copy that made it did not finish",
            )
            .in_file(path));
        }
        let file = File::open(path).map_err(|e| AssetError::io(path, "open the file", e))?;
        // SAFETY: the mapping is read-only and only ever read as plain bytes, for which every
        // value is valid; a file that shrinks meanwhile is handled by `guard`. That another
        // process may write the file in place is inherent in mapping: readers may then see old or
        // new bytes, and nothing here relies on two reads agreeing.
        let map = unsafe { Mmap::map(&file) }
            .map_err(|e| AssetError::io(path, "map the file into memory", e))?;
        let guard = guard::Entry::new(map.as_ptr().addr(), map.len()).ok_or_else(|| {
            AssetError::new(ErrorKind::Limit, "too many files are mapped at once").in_file(path)
        })?;
        Ok(MappedFile {
            path: path.to_path_buf(),
            file,
            guard,
            map,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Whether every byte read so far came from the file, and the file still has its length.
    pub(crate) fn intact(&self) -> Result<(), AssetError> {
        let was = self.map.len();
        let now = self
            .file
            .metadata()
            .map_err(|e| AssetError::io(&self.path, "look at the file", e))?
            .len();
        if self.guard.damaged() || u64::try_from(was) != Ok(now) {
            return Err(AssetError::new(
                ErrorKind::Damaged,
                format!(
                    "the file had {was} bytes when it was opened and has {now} now; \
                     answers made since cannot be trusted: restore the file and load it again"
                ),
            )
            .in_file(&self.path));
        }
        Ok(())
    }
}

impl fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.path.display(), self.map.len())
    }
}

#[cfg(not(unix))]
mod guard {
    pub(super) struct Entry;

    impl Entry {
        pub(super) fn new(_start: usize, _len: usize) -> Option<Entry> {
            Some(Entry)
        }

        pub(super) fn damaged(&self) -> bool {
            false
        }
    }
}

#[cfg(unix)]
mod guard {
    use std::ptr;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use libc::{c_int, c_void, siginfo_t};

    use crate::limits;

    /// One mapping. `start` is 0 while the slot is free and [`CLAIMED`] while it is being filled;
    /// it is written last and cleared first, so that the handler never sees half an entry.
    struct Slot {
        start: AtomicUsize,
        len: AtomicUsize,
        damaged: AtomicBool,
    }

    /// No mapping starts at an odd address.
    const CLAIMED: usize = 1;

    /// A table of fixed size, because a signal handler may neither allocate nor lock.
    static SLOTS: [Slot; limits::MAPPINGS] = [const {
        Slot {
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            damaged: AtomicBool::new(false),
        }
    }; limits::MAPPINGS];

    /// What there was before our handler, and the page size, which the handler must not ask for.
    struct Installed {
        previous: libc::sigaction,
        page: usize,
    }

    static INSTALLED: OnceLock<Installed> = OnceLock::new();

    pub(super) struct Entry {
        slot: &'static Slot,
    }

    impl Entry {
        pub(super) fn new(start: usize, len: usize) -> Option<Entry> {
            install();
            let slot = SLOTS.iter().find(|slot| {
                slot.start
                    .compare_exchange(0, CLAIMED, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            })?;
            slot.len.store(len, Ordering::Relaxed);
            slot.damaged.store(false, Ordering::Relaxed);
            slot.start.store(start, Ordering::Release);
            Some(Entry { slot })
        }

        pub(super) fn damaged(&self) -> bool {
            self.slot.damaged.load(Ordering::Acquire)
        }
    }

    impl Drop for Entry {
        fn drop(&mut self) {
            self.slot.start.store(0, Ordering::Release);
        }
    }

    fn install() {
        INSTALLED.get_or_init(|| {
            // SAFETY: both structures are plain data for which all zeros is valid, and the calls
            // get pointers to live ones. Asking before setting leaves no moment at which our
            // handler runs without knowing its predecessor.
            unsafe {
                let mut previous: libc::sigaction = std::mem::zeroed();
                libc::sigaction(libc::SIGBUS, ptr::null(), &mut previous);
                let page = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).unwrap_or(4096);
                Installed { previous, page }
            }
        });
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_bus_error;
            // SAFETY: the structure is valid as above and the handler keeps to what is
            // async-signal-safe: atomics and bare system calls.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as libc::sighandler_t;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigemptyset(&mut action.sa_mask);
                libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
            }
        });
    }

    extern "C" fn on_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        // SAFETY: the kernel passes a valid `siginfo_t` to a handler set with SA_SIGINFO.
        let (address, from_kernel) = unsafe { ((*info).si_addr().addr(), (*info).si_code > 0) };
        if from_kernel && let Some(installed) = INSTALLED.get() {
            for slot in &SLOTS {
                if covers(slot, address) && zero_from(slot, address, installed.page) {
                    return;
                }
            }
        }
        pass_on(signal, info, context, from_kernel);
    }

    fn covers(slot: &Slot, address: usize) -> bool {
        let start = slot.start.load(Ordering::Acquire);
        let len = slot.len.load(Ordering::Relaxed);
        start > CLAIMED
            && address >= start
            && address - start < len
            && slot.start.load(Ordering::Acquire) == start
    }

    /// Replaces the pages from the fault to the mapping's end. All of them lie past the end of
    /// the file when the first does; taking them at once keeps random reads from cutting the
    /// mapping into more pieces than the kernel allows.
    fn zero_from(slot: &Slot, address: usize, page: usize) -> bool {
        let start = slot.start.load(Ordering::Relaxed);
        let end = start + slot.len.load(Ordering::Relaxed);
        let first = address - address % page;
        // SAFETY: `[first, end)` lies within a live mapping of ours: the faulting thread is
        // reading it through a borrow, so it cannot be unmapped, and only ever hands out shared
        // bytes. MAP_FIXED swaps those pages for readable zeros in one step.
        let mapped = unsafe {
            libc::mmap(
                ptr::without_provenance_mut(first),
                end - first,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        let done = mapped != libc::MAP_FAILED;
        if done {
            slot.damaged.store(true, Ordering::Release);
        }
        done
    }

    /// Does what would have happened without us.
    fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void, from_kernel: bool) {
        let Some(installed) = INSTALLED.get() else {
            return;
        };
        let previous = &installed.previous;
        match previous.sa_sigaction {
            libc::SIG_IGN if !from_kernel => {}
            // A fault cannot be ignored: it would only happen again.
            libc::SIG_IGN | libc::SIG_DFL => {
                // SAFETY: sets the default action and raises the signal, which stays blocked until
                // this handler returns and then ends the process.
                unsafe {
                    libc::signal(signal, libc::SIG_DFL);
                    libc::raise(signal);
                }
            }
            handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                // SAFETY: SA_SIGINFO says that this address is a function of three arguments.
                unsafe {
                    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                        std::mem::transmute(handler);
                    handler(signal, info, context);
                }
            }
            handler => {
                // SAFETY: without SA_SIGINFO this address is a function of one argument.
                unsafe {
                    let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
                    handler(signal);
                }
            }
        }
    }
}
