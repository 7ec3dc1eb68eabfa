//! The engine on its thread: what is accepted is answered, whatever happens to the others.

mod common;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use common::*;
use hearth_engine::{
    Batch, Cleared, DeviceError, Event, Executor, ExecutorShape, Failure, Handle, Refused, Sink,
    start,
};

/// A toy that makes each pass only when it is told to, or as it likes once nobody can tell it.
struct Gated(Toy, Receiver<()>);

impl Executor for Gated {
    fn vocab(&self) -> usize {
        self.0.vocab()
    }

    fn max_positions(&self) -> usize {
        self.0.max_positions()
    }

    fn shape(&self) -> ExecutorShape {
        self.0.shape()
    }

    fn step(&mut self, batch: &Batch, logits: &mut Vec<f32>) -> Result<(), DeviceError> {
        let _ = self.1.recv();
        self.0.step(batch, logits)
    }
}

fn gated(seqs: usize, queue: usize) -> (Handle, Sender<()>) {
    let (gate, passes) = channel();
    let limits = hearth_engine::Limits { queue, ..limits(64, seqs, 500) };
    (start(Box::new(Gated(Toy::new(24), passes)), limits), gate)
}

fn ask(salt: u32) -> Ask {
    Ask::greedy(&[salt, 3, 7, salt], 5)
}

fn expected(salt: u32) -> Outcome {
    alone(&ask(salt), 24, 500)
}

#[test]
fn the_queue_is_bounded() {
    let (handle, gate) = gated(2, 3);
    let submit = |salt| {
        let (request, answer) = ask(salt).request();
        handle.submit(request).map(|_| answer)
    };
    let answers: Vec<_> = (0..5).map(|salt| submit(salt).unwrap()).collect();
    let Some(Refused::QueueFull { running, waiting, limit, retry_after }) = submit(5).err() else {
        panic!("accepted, or refused for another reason");
    };
    assert_eq!((running + waiting, limit, retry_after), (5, 3, Duration::from_secs(1)));
    drop(gate);
    for (salt, answer) in (0..).zip(answers) {
        assert_eq!(outcome(answer).said(), expected(salt).said());
    }
    handle.shutdown();
    assert_eq!(handle.stats().running + handle.stats().waiting, 0);
    assert_eq!(handle.stats().totals.done, 5);
}

#[test]
fn refusals_come_before_the_queue() {
    let (handle, _gate) = gated(1, 0);
    let refused = |ask: Ask| handle.submit(ask.request().0).err();
    assert_eq!(refused(Ask::greedy(&[], 5)), Some(Refused::Empty));
    let too_long = Refused::TooLong { prompt: 500, context: 500 };
    assert_eq!(refused(Ask::greedy(&[1; 500], 5)), Some(too_long));
    assert_eq!(handle.bounds().context, 500);
}

#[test]
fn shutdown_finishes_what_was_accepted() {
    let (handle, gate) = gated(2, 10);
    let answers: Vec<_> = (0..6)
        .map(|salt| {
            let (request, answer) = ask(salt).request();
            handle.submit(request).unwrap();
            answer
        })
        .collect();
    drop(gate);
    handle.shutdown();
    assert!(!handle.is_alive());
    let late = handle.submit(ask(0).request().0);
    assert_eq!(late.err(), Some(Refused::ShuttingDown));
    for (salt, answer) in (0..).zip(answers) {
        assert_eq!(outcome(answer).said(), expected(salt).said());
    }
    handle.clone().shutdown();
}

#[test]
fn accepted_answers_outlive_the_handle() {
    let (handle, gate) = gated(2, 10);
    let (request, answer) = ask(1).request();
    handle.submit(request).unwrap();
    drop(handle);
    drop(gate);
    assert_eq!(outcome(answer).said(), expected(1).said());
}

#[test]
fn who_leaves_makes_room() {
    let (handle, gate) = gated(1, 1);
    let mut answers = Vec::new();
    for salt in 0..2 {
        let (request, answer) = ask(salt).request();
        handle.submit(request).unwrap();
        answers.push(answer);
    }
    drop(answers);
    drop(gate);
    // The engine notices at its next step; until then the queue is full.
    let answer = loop {
        let (request, answer) = ask(2).request();
        match handle.submit(request) {
            Ok(_) => break answer,
            Err(refused) => assert!(matches!(refused, Refused::QueueFull { limit: 1, .. })),
        }
        std::thread::yield_now();
    };
    assert_eq!(outcome(answer).said(), expected(2).said());
    handle.shutdown();
    assert_eq!(handle.stats().totals.cancelled, 2);
    assert_eq!(handle.stats().blocks.held, 0);
}

/// A receiver that breaks whatever it is sent.
struct Bomb;

impl Sink for Bomb {
    fn send(&mut self, event: Event) {
        panic!("cannot take {event:?}");
    }

    fn is_closed(&self) -> bool {
        false
    }
}

#[test]
fn a_panic_costs_what_was_running_and_nothing_else() {
    let toy = Toy::with_accident(24, 2, Accident::OutOfBounds);
    let handle = start(Box::new(toy), limits(64, 2, 500));
    let run = |salt| {
        let (request, answer) = ask(salt).request();
        handle.submit(request).unwrap();
        outcome(answer)
    };
    assert!(matches!(run(0).end, End::Failed(Failure::Internal(_))));
    assert_eq!(run(1).said(), expected(1).said());
    let mut bomb = ask(2).request().0;
    bomb.sink = Box::new(Bomb);
    handle.submit(bomb).unwrap();
    // Whether this one runs beside the broken sink or after it is a matter of luck.
    let beside = run(3);
    assert!(beside.said() == expected(3).said() || matches!(beside.end, End::Failed(_)));
    assert_eq!(run(4).said(), expected(4).said());
    assert!(handle.is_alive());
    handle.shutdown();
    assert_eq!(handle.stats().totals.book_faults, 0);
}

#[test]
fn an_abort_ends_what_was_accepted() {
    let (handle, gate) = gated(1, 10);
    let answers: Vec<_> = (0..3)
        .map(|salt| {
            let (request, answer) = ask(salt).request();
            handle.submit(request).unwrap();
            answer
        })
        .collect();
    let aborting = handle.clone();
    let aborting = std::thread::spawn(move || aborting.abort());
    // The engine waits at the gate until it has been told; it then makes the pass it was in.
    while handle.is_alive() {
        std::thread::yield_now();
    }
    drop(gate);
    aborting.join().unwrap();
    for answer in answers {
        assert_eq!(outcome(answer).end, End::Failed(Failure::ShuttingDown));
    }
    let stats = handle.stats();
    assert_eq!((stats.running, stats.waiting, stats.blocks.held), (0, 0, 0));
    assert_eq!(stats.totals.failed, 3);
    assert_eq!(handle.submit(ask(0).request().0).err(), Some(Refused::ShuttingDown));
}

#[test]
fn the_cache_can_be_cleared() {
    let (handle, gate) = gated(1, 10);
    drop(gate);
    let long = Ask::greedy(&(0..70).map(|i| i % 20).collect::<Vec<_>>(), 3);
    let cached = || {
        let (request, answer) = long.request();
        handle.submit(request).unwrap();
        outcome(answer).cached
    };
    assert_eq!((cached(), cached()), (Some(0), Some(64)));
    assert_eq!(handle.clear_cache(), Ok(Cleared { blocks: 3, disk: None }));
    assert_eq!(handle.clear_cache(), Ok(Cleared { blocks: 0, disk: None }));
    assert_eq!(cached(), Some(0));
    handle.shutdown();
    assert_eq!(handle.clear_cache(), Err(Refused::ShuttingDown));
}
