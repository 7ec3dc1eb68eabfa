//! The threads of the device: started once, spinning for a moment between regions, then parked.
//!
//! A region is `n_tasks` calls of one closure. Each thread has a share of neighbouring tasks, and
//! helps the others when it is done; the caller takes part and returns when all are done. Starting a
//! region neither allocates nor locks. Which thread runs which task is chance, so a task must not
//! care: every result of this crate depends on its index alone.
//!
//! Regions that write share one slice out so that no two tasks hold the same element; the proofs of
//! that live here, so that ops stay safe code.
//!
//! Not a scheduler: one region at a time. A region started from inside another, or while another
//! thread's is running, runs on its caller alone.

#![allow(unsafe_code)]

mod places;

use std::any::Any;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use places::Places;

/// How long a thread waits for the next region before it parks. Regions of one pass follow each
/// other within microseconds; between passes the caller samples and talks to clients.
const SPIN: Duration = Duration::from_micros(60);
/// Tasks per thread and region, so that a thread that is held up leaves its share to the others.
const TASKS_PER_THREAD: usize = 4;
/// States of a [`Seat`]: nothing to do, a region waits, the worker is in it.
const EMPTY: usize = 0;
const OPEN: usize = 1;
const TAKEN: usize = 2;

/// A fixed set of threads that run one region at a time together with the caller.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// Some rows and columns of a row-major matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Rows of the matrix.
    pub rows: Range<usize>,
    /// Columns of the matrix.
    pub cols: Range<usize>,
}

/// A [`Block`] to write to.
pub struct BlockMut<'a> {
    block: &'a Block,
    matrix: &'a Slots<'a, f32>,
    matrix_cols: usize,
}

/// A region's closure. The lifetime is a lie that [`Pool::run`] makes good by not returning while a
/// worker is inside.
type Task = &'static (dyn Fn(usize) + Sync);

struct Shared {
    /// One per worker.
    seats: Vec<Seat>,
    /// Next task of the caller's own share of the region.
    next: Next,
    /// Held by the caller of the running region.
    busy: AtomicBool,
    /// Set when a worker's task panicked; the payload is in `panic`.
    panicked: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    /// One flag per worker: it is parked, or about to be.
    parked: Vec<AtomicBool>,
    places: Places,
}

/// Where a worker gets its region from. All of it is in one line of the cache, because every line
/// that goes from one core to another costs as much as unpacking some thousand codes.
#[repr(align(64))]
struct Seat {
    /// The caller turns `EMPTY` into `OPEN` and, when all tasks are taken, `OPEN` back into `EMPTY`.
    /// The worker turns `OPEN` into `TAKEN`, and that into `EMPTY` when it has left the region.
    state: AtomicUsize,
    /// Written by the caller while the seat is empty, read by the worker while it is taken.
    region: UnsafeCell<Region>,
    /// Next task of the worker's own share.
    next: AtomicUsize,
}

/// On a line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Next(AtomicUsize);

#[derive(Clone, Copy)]
struct Region {
    task: Task,
    n_tasks: usize,
}

// SAFETY: the `region` of a seat is the only field that is not `Sync`. It is written by the holder of
// `busy` while the seat is empty, and read by its worker only while it has the seat taken, so a write
// never meets a read.
unsafe impl Sync for Shared {}

impl Pool {
    /// Starts a pool of `threads` threads, the caller of [`Pool::run`] being one of them. Zero means
    /// one per physical core.
    pub fn new(threads: usize) -> Pool {
        let threads = n_threads(threads);
        let shared = Arc::new(Shared {
            seats: (1..threads).map(|_| Seat::new()).collect(),
            next: Next::default(),
            busy: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
            parked: (1..threads).map(|_| AtomicBool::new(false)).collect(),
            places: Places::new(threads - 1),
        });
        // A machine that refuses a thread gets a smaller pool, which is slower and nothing else.
        let start = |index: usize| {
            let shared = Arc::clone(&shared);
            let builder = thread::Builder::new().name(format!("cpu-{}", index + 1));
            builder.spawn(move || shared.work(index)).ok()
        };
        let workers = (0..threads - 1).map_while(start).collect();
        Pool { shared, workers }
    }

    /// Threads that take part in a region, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task(i)` once for every `i` in `0..n_tasks` and returns when all calls have returned.
    ///
    /// If a task panics, the tasks that have not started may be left out, and the panic goes on in
    /// the caller once no other thread is inside.
    pub fn run(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let alone = n_tasks < 2 || self.workers.is_empty();
        if alone || self.shared.busy.swap(true, SeqCst) {
            return (0..n_tasks).for_each(task);
        }
        self.shared.open(n_tasks, task);
        for (index, (parked, worker)) in self.shared.parked.iter().zip(&self.workers).enumerate() {
            if parked.load(SeqCst) && parked.swap(false, SeqCst) {
                self.shared.places.send_away(index);
                worker.thread().unpark();
            }
        }
        let own = catch_unwind(AssertUnwindSafe(|| self.shared.take_tasks(0, n_tasks, task)));
        let theirs = self.shared.close();
        self.shared.busy.store(false, SeqCst);
        if let Some(payload) = own.err().or(theirs) {
            resume_unwind(payload);
        }
    }

    /// Calls `f(row, values)` for every row of a row-major matrix of `cols` columns.
    pub fn rows<T: Send>(&self, data: &mut [T], cols: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        let n_rows = data.len().checked_div(cols).unwrap_or(0);
        let step = self.rows_per_task(n_rows);
        self.chunks(data, cols * step, |chunk, data| {
            for (row, values) in data.chunks_exact_mut(cols).enumerate() {
                f(chunk * step + row, values);
            }
        });
    }

    /// Rows a task should take when `n_rows` independent rows are shared out.
    pub fn rows_per_task(&self, n_rows: usize) -> usize {
        n_rows.div_ceil(self.threads() * TASKS_PER_THREAD).max(1)
    }

    /// Calls `f(i, chunk)` for every chunk of `size` elements, the last one as long as it comes out.
    pub fn chunks<T: Send>(&self, data: &mut [T], size: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        let data = Slots::new(data);
        self.run(data.n_chunks(size), &|i| {
            // SAFETY: each chunk is handed out once, because `run` runs each `i` once.
            f(i, unsafe { data.slice(data.chunk(i, size)) });
        });
    }

    /// Like [`Pool::chunks`], over two slices that are cut into the same number of chunks, each of
    /// the size that comes with it.
    pub fn zip_chunks<T: Send, U: Send>(
        &self,
        (a, a_size): (&mut [T], usize),
        (b, b_size): (&mut [U], usize),
        f: impl Fn(usize, &mut [T], &mut [U]) + Sync,
    ) {
        let (a, b) = (Slots::new(a), Slots::new(b));
        let n = a.n_chunks(a_size);
        assert_eq!(n, b.n_chunks(b_size), "both slices have the same number of chunks");
        self.run(n, &|i| {
            // SAFETY: each chunk is handed out once, because `run` runs each `i` once.
            let a = unsafe { a.slice(a.chunk(i, a_size)) };
            // SAFETY: as above.
            let b = unsafe { b.slice(b.chunk(i, b_size)) };
            f(i, a, b);
        });
    }

    /// Calls `f(i, a, b)` for chunk `numbers[i]` of two slices, for every `i`. Both are cut as
    /// [`Pool::zip_chunks`] does.
    ///
    /// The numbers ascend. Anything else would let two tasks write to one place, and panics.
    pub fn zip_some_chunks<T: Send, U: Send>(
        &self,
        numbers: &[usize],
        (a, a_size): (&mut [T], usize),
        (b, b_size): (&mut [U], usize),
        f: impl Fn(usize, &mut [T], &mut [U]) + Sync,
    ) {
        assert!(numbers.is_sorted_by(|a, b| a < b), "chunks come in order, each once: {numbers:?}");
        let (a, b) = (Slots::new(a), Slots::new(b));
        self.run(numbers.len(), &|i| {
            // SAFETY: each chunk is handed out once, because `run` runs each `i` once and no number
            // comes twice.
            let a = unsafe { a.slice(a.chunk(numbers[i], a_size)) };
            // SAFETY: as above.
            let b = unsafe { b.slice(b.chunk(numbers[i], b_size)) };
            f(i, a, b);
        });
    }

    /// Calls `f(i, block)` for every one of `blocks` of the row-major matrix `data` of `cols`
    /// columns.
    ///
    /// The blocks come in order: each has the rows of the one before and columns after its columns,
    /// or rows after its rows. Anything else would let two tasks write to one place, and panics.
    pub fn blocks(
        &self,
        data: &mut [f32],
        cols: usize,
        blocks: &[Block],
        f: impl Fn(usize, BlockMut<'_>) + Sync,
    ) {
        for pair in blocks.windows(2) {
            let right = pair[0].rows == pair[1].rows && pair[0].cols.end <= pair[1].cols.start;
            let below = pair[0].rows.end <= pair[1].rows.start;
            assert!(right || below, "blocks overlap or are out of order: {pair:?}");
        }
        let fits = |b: &Block| b.rows.end * cols <= data.len() && b.cols.end <= cols;
        assert!(blocks.iter().all(fits), "a block reaches outside the matrix");
        let shared = Slots::new(data);
        self.run(blocks.len(), &|i| {
            f(i, BlockMut { block: &blocks[i], matrix: &shared, matrix_cols: cols });
        });
    }
}

impl BlockMut<'_> {
    /// The block's part of row `row` of the block.
    pub fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.block.rows.len());
        let start = (self.block.rows.start + row) * self.matrix_cols;
        let range = start + self.block.cols.start..start + self.block.cols.end;
        // SAFETY: `Pool::blocks` checked that blocks do not overlap and gives each to one task, and
        // `&mut self` allows one row of it at a time.
        unsafe { self.matrix.slice(range) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches every panic of a task, so there is nothing to hear from it.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Publishes a region. The caller holds `busy`.
    fn open(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes, and `close` waits until no worker holds the reference.
        let task = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Task>(task) };
        self.next.0.store(0, SeqCst);
        for (i, seat) in self.seats.iter().enumerate() {
            // SAFETY: the seat is empty (`close` waited for it), and `busy` keeps other callers out,
            // so nobody else touches its region.
            unsafe { *seat.region.get() = Region { task, n_tasks } };
            seat.next.store(self.share(i + 1, n_tasks).start, SeqCst);
        }
        // Only now that every share is set: who is in may help the others.
        for seat in &self.seats {
            seat.state.store(OPEN, SeqCst);
        }
    }

    /// Lets nobody in any more, waits for those inside, and returns what one of them panicked with.
    fn close(&self) -> Option<Box<dyn Any + Send>> {
        for seat in &self.seats {
            if seat.state.compare_exchange(OPEN, EMPTY, SeqCst, SeqCst).is_ok() {
                continue;
            }
            let mut spins = 0u32;
            while seat.state.load(SeqCst) != EMPTY {
                std::hint::spin_loop();
                spins += 1;
                // Where cores are short, the thread waited for may need this one.
                if spins.is_multiple_of(4096) {
                    thread::yield_now();
                }
            }
        }
        if !self.panicked.swap(false, SeqCst) {
            return None;
        }
        self.panic.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Tasks of a thread's own share: neighbours, so that it walks through memory in order.
    fn share(&self, thread: usize, n_tasks: usize) -> Range<usize> {
        let n = self.seats.len() + 1;
        n_tasks * thread / n..n_tasks * (thread + 1) / n
    }

    /// Runs what is left of a thread's own share, then of the others'.
    fn take_tasks(&self, thread: usize, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let n = self.seats.len() + 1;
        for owner in (thread..n).chain(0..thread) {
            let next = match owner {
                0 => &self.next.0,
                worker => &self.seats[worker - 1].next,
            };
            let end = self.share(owner, n_tasks).end;
            loop {
                let index = next.fetch_add(1, SeqCst);
                if index >= end {
                    break;
                }
                task(index);
            }
        }
    }

    /// The life of worker `index`.
    fn work(&self, index: usize) {
        let seat = &self.seats[index];
        self.places.enter(index);
        while self.wait(index) {
            if seat.state.compare_exchange(OPEN, TAKEN, SeqCst, SeqCst).is_err() {
                continue;
            }
            // SAFETY: this worker has its seat taken, so the region stays as it is until it leaves.
            let region = unsafe { *seat.region.get() };
            let run = || self.take_tasks(index + 1, region.n_tasks, region.task);
            if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
                *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(payload);
                self.panicked.store(true, SeqCst);
            }
            seat.state.store(EMPTY, SeqCst);
        }
    }

    /// Returns as soon as the worker's seat is open; false when the pool is to stop.
    fn wait(&self, index: usize) -> bool {
        let seat = &self.seats[index];
        let mut started = Instant::now();
        while !self.stop.load(SeqCst) {
            for _ in 0..64 {
                if seat.state.load(SeqCst) == OPEN {
                    return true;
                }
                std::hint::spin_loop();
            }
            if started.elapsed() < SPIN {
                continue;
            }
            // The flag goes up before the last look; the seat opens, and the pool stops, before the
            // other side looks at the flag or unparks: one of the two sees the other.
            self.parked[index].store(true, SeqCst);
            if seat.state.load(SeqCst) != OPEN && !self.stop.load(SeqCst) {
                thread::park();
            }
            self.parked[index].store(false, SeqCst);
            // Also where it did not come to sleep. Whoever wakes it may still be about to send it away; then
            // it stays away until its next rest, which costs nothing but freedom.
            self.places.set_free();
            // Waking up may take longer than the region it was for. The next ones come at once.
            started = Instant::now();
        }
        false
    }
}

impl Seat {
    fn new() -> Seat {
        Seat {
            state: AtomicUsize::new(EMPTY),
            region: UnsafeCell::new(Region { task: &|_| (), n_tasks: 0 }),
            next: AtomicUsize::new(0),
        }
    }
}

/// Threads of a pool that is asked for so many; zero means one per physical core.
pub(crate) fn n_threads(asked: usize) -> usize {
    if asked == 0 { physical_cores() } else { asked }
}

/// Physical cores this process may use. Two hardware threads of one core share its vector units, so
/// the second one adds heat and barriers rather than speed.
fn physical_cores() -> usize {
    let usable = thread::available_parallelism().map_or(1, usize::from);
    usable.min(num_cpus::get_physical()).max(1)
}

/// A slice that several tasks write to, each in its own part.
struct Slots<'a, T> {
    data: *mut T,
    len: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: elements are reached through `slice` alone, whose callers hand each to one task.
unsafe impl<T: Send> Sync for Slots<'_, T> {}

impl<'a, T> Slots<'a, T> {
    fn new(data: &'a mut [T]) -> Slots<'a, T> {
        Slots { data: data.as_mut_ptr(), len: data.len(), owner: PhantomData }
    }

    fn n_chunks(&self, size: usize) -> usize {
        if self.len == 0 { 0 } else { self.len.div_ceil(size) }
    }

    fn chunk(&self, i: usize, size: usize) -> Range<usize> {
        i * size..((i + 1) * size).min(self.len)
    }

    /// # Safety
    /// No other slice that overlaps `range` may be alive.
    #[allow(clippy::mut_from_ref, reason = "the callers keep the slices apart")]
    unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: in bounds by the assertion, and not aliased by this function's contract.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests;
