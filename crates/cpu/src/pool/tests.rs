//! What the pool promises: every task once, panics not lost, no two tasks in one place.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::{Block, Pool};

#[test]
fn every_task_runs_once() {
    for threads in 1..=4 {
        let pool = Pool::new(threads);
        assert_eq!(pool.threads(), threads);
        for n in (0..50).chain([1000]) {
            let counts: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
            pool.run(n, &|i| {
                counts[i].fetch_add(1, SeqCst);
            });
            assert!(counts.iter().all(|c| c.load(SeqCst) == 1), "threads={threads} n={n}");
        }
    }
}

#[test]
fn regions_follow_each_other_across_parking() {
    let pool = Pool::new(3);
    let total = AtomicUsize::new(0);
    for round in 0..2000 {
        pool.run(5, &|i| {
            total.fetch_add(i, SeqCst);
        });
        // Now and then long enough for the workers to park.
        if round % 500 == 0 {
            let start = std::time::Instant::now();
            while start.elapsed() < 3 * super::SPIN {
                std::hint::spin_loop();
            }
        }
    }
    assert_eq!(total.load(SeqCst), 2000 * 10);
}

#[test]
fn a_region_inside_a_region_runs() {
    let pool = Pool::new(2);
    let total = AtomicUsize::new(0);
    pool.run(4, &|_| {
        pool.run(3, &|i| {
            total.fetch_add(i, SeqCst);
        });
    });
    assert_eq!(total.load(SeqCst), 12);
}

#[test]
fn regions_of_several_callers_do_not_mix() {
    let pool = Pool::new(2);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for n in 0..300 {
                    let mut data = vec![0usize; n];
                    pool.rows(&mut data, 1, |row, out| out[0] = row);
                    assert!(data.iter().copied().eq(0..n));
                }
            });
        }
    });
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
    let pool = Pool::new(3);
    for bad in 0..8 {
        let task = |i: usize| {
            if i == bad {
                std::panic::resume_unwind(Box::new("from a task"));
            }
        };
        let result = catch_unwind(AssertUnwindSafe(|| pool.run(8, &task)));
        let payload = result.expect_err("the panic was lost");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"from a task"));
        let mut data = [0; 16];
        pool.chunks(&mut data, 3, |i, chunk| chunk.fill(i));
        assert_eq!(data, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5]);
    }
}

#[test]
fn zipped_chunks_match() {
    let pool = Pool::new(2);
    let (mut a, mut b) = (vec![0; 10], vec![0u8; 5]);
    pool.zip_chunks((&mut a, 4), (&mut b, 2), |i, a, b| {
        a.fill(i);
        b.fill(a.len() as u8);
    });
    assert_eq!(a, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
    assert_eq!(b, [4, 4, 4, 4, 2]);
}

#[test]
fn some_chunks_are_those_named() {
    let pool = Pool::new(2);
    let (mut a, mut b) = (vec![0; 10], vec![0u8; 5]);
    let mut run = |numbers: &[usize]| {
        pool.zip_some_chunks(numbers, (&mut a, 4), (&mut b, 2), |i, a, b| {
            a.fill(i + 1);
            b.fill(a.len() as u8);
        });
    };
    run(&[0, 2]);
    for numbers in [[1, 1], [2, 0], [2, 3]] {
        let run = AssertUnwindSafe(|| run(&numbers));
        assert!(catch_unwind(run).is_err(), "{numbers:?}");
    }
    assert_eq!(b, [4, 4, 0, 0, 2]);
}

#[test]
fn blocks_cover_what_they_name() {
    let pool = Pool::new(2);
    let mut data = vec![0.0; 4 * 6];
    let blocks = [
        Block { rows: 0..2, cols: 0..3 },
        Block { rows: 0..2, cols: 4..6 },
        Block { rows: 3..4, cols: 0..6 },
    ];
    pool.blocks(&mut data, 6, &blocks, |i, mut block| {
        for row in 0..blocks[i].rows.len() {
            block.row(row).fill(i as f32 + 1.0);
        }
    });
    let expected =
        [[1.0, 1.0, 1.0, 0.0, 2.0, 2.0], [1.0, 1.0, 1.0, 0.0, 2.0, 2.0], [0.0; 6], [3.0; 6]];
    assert_eq!(data, expected.as_flattened());
}

#[test]
fn overlapping_blocks_are_refused() {
    let pool = Pool::new(2);
    let overlap = [Block { rows: 0..2, cols: 0..3 }, Block { rows: 1..2, cols: 3..4 }];
    let outside = [Block { rows: 0..2, cols: 0..9 }];
    for blocks in [&overlap[..], &outside[..]] {
        let mut data = vec![0.0; 4 * 6];
        let run = AssertUnwindSafe(|| pool.blocks(&mut data, 6, blocks, |_, _| ()));
        assert!(catch_unwind(run).is_err(), "{blocks:?}");
    }
}

/// Wherever a worker was sent when it was woken up, it may run anywhere when it is at work. One that was
/// just about to rest may miss that once.
#[cfg(target_os = "linux")]
#[test]
fn workers_are_tied_to_no_processor() {
    use std::sync::atomic::AtomicBool;

    use rustix::thread::sched_getaffinity;

    let pool = Pool::new(2);
    let all = sched_getaffinity(None).unwrap();
    let is_free = || {
        std::thread::sleep(std::time::Duration::from_millis(10));
        let (worked, free) = (AtomicBool::new(false), AtomicBool::new(true));
        pool.run(200, &|_| {
            if std::thread::current().name() == Some("cpu-1") {
                worked.store(true, SeqCst);
                free.fetch_and(sched_getaffinity(None).unwrap() == all, SeqCst);
            }
            std::thread::sleep(std::time::Duration::from_micros(20));
        });
        worked.into_inner() && free.into_inner()
    };
    assert!((0..50).any(|_| is_free()));
}

/// A worker that wakes up too late for the region it was woken for stays awake for the next ones.
#[test]
fn whoever_wakes_up_waits_again() {
    let pool = Pool::new(2);
    let parked = &pool.shared.parked[0];
    let wait_for_rest = || {
        while !parked.load(SeqCst) {
            std::thread::yield_now();
        }
    };
    for _ in 0..200 {
        wait_for_rest();
        // Long enough for it to sleep, not only to be about to.
        std::thread::sleep(std::time::Duration::from_micros(50));
        let woken = std::time::Instant::now();
        pool.run(2, &|_| ());
        wait_for_rest();
        assert!(woken.elapsed() >= super::SPIN, "it went back to sleep at once");
    }
}
