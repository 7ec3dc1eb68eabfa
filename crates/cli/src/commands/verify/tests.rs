//! A verification must be able to fail: executors with one flaw each, and the arm that finds it.

use std::collections::BTreeSet;

use engine::{
    Batch, BlockId, DeviceError, Executor, ExecutorShape, KvGroup, ModelExecutor, SlotId,
};
use models::{Decoder, tiny};

use super::ask::Question;
use super::*;

/// What is wrong with an executor: when a pass makes it lie.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    /// Other sequences in the pass change the logits.
    Batched,
    /// So does a prompt that comes in pieces.
    Chunked,
    /// So does a number of threads.
    Threads,
    /// Blocks that are copied, from disk or from another block, are not what they were.
    Copied,
    /// So it is with states, which are copied from disk.
    Restored,
    /// The first state of several that a pass leaves is that of another row.
    KeptLate,
}

/// A real tiny model whose first logit is a little off where the flaw says.
struct Flawed {
    inner: Box<dyn Executor>,
    flaw: Flaw,
    threads: usize,
}

impl Executor for Flawed {
    fn vocab(&self) -> usize {
        self.inner.vocab()
    }

    fn max_positions(&self) -> usize {
        self.inner.max_positions()
    }

    fn shape(&self) -> ExecutorShape {
        self.inner.shape()
    }

    fn step(&mut self, batch: &Batch, logits: &mut Vec<f32>) -> Result<(), DeviceError> {
        match self.flaw {
            Flaw::KeptLate => self.inner.step(&keeping_late(batch), logits)?,
            _ => self.inner.step(batch, logits)?,
        }
        let lone = |span: &engine::Span| batch.spans.len() == 1 && span.rows.len() > 1;
        let lies = match self.flaw {
            Flaw::None | Flaw::Copied | Flaw::Restored | Flaw::KeptLate => false,
            Flaw::Batched => batch.spans.len() > 1,
            Flaw::Chunked => batch.spans.iter().any(|span| lone(span) && span.start == 105),
            Flaw::Threads => self.threads == 1,
        };
        if lies {
            // The smallest change that there is, in every number, so that it shows in every sum.
            logits.iter_mut().for_each(|x| *x = f32::from_bits(x.to_bits() ^ 1));
        }
        Ok(())
    }

    fn state_bytes(&self) -> usize {
        self.inner.state_bytes()
    }

    fn read_state(&mut self, slot: SlotId, out: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read_state(slot, out)
    }

    fn write_state(&mut self, slot: SlotId, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut bytes = bytes.to_vec();
        if self.flaw == Flaw::Restored {
            bytes.iter_mut().skip(3).step_by(4).for_each(|byte| *byte ^= 0x80);
        }
        self.inner.write_state(slot, &bytes)
    }

    fn window(&self) -> Option<usize> {
        self.inner.window()
    }

    fn block_bytes(&self, group: KvGroup) -> usize {
        self.inner.block_bytes(group)
    }

    fn read_block(&mut self, block: (KvGroup, BlockId), out: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read_block(block, out)
    }

    fn write_block(&mut self, block: (KvGroup, BlockId), bytes: &[u8]) -> Result<(), DeviceError> {
        let mut bytes = bytes.to_vec();
        if self.flaw == Flaw::Copied {
            bytes.iter_mut().step_by(2).for_each(|byte| *byte ^= 0x40);
        }
        self.inner.write_block(block, &bytes)
    }
}

/// A batch whose first states that are kept before the end of a span come a row late.
fn keeping_late(batch: &Batch) -> Batch {
    let mut batch = batch.clone();
    for span in &mut batch.spans {
        if let [(row, _), (next, _), ..] = &mut span.states_out[..]
            && *row + 1 < *next
        {
            *row += 1;
        }
    }
    batch
}

const VOCAB: u32 = 260;

fn questions() -> Vec<Question> {
    let prompt = |i: u32, n: u32| (0..n).map(|at| (at * 31 + i * 57 + at / 7) % VOCAB).collect();
    let lengths = [4u32, 23, 40, 64, 110, 110];
    let question = |(i, n): (usize, &u32)| {
        let temperature = if i % 2 == 0 { 0.0 } else { 0.9 };
        let sampling = engine::Sampling { temperature, seed: i as u64, ..Default::default() };
        Question { prompt: prompt(i as u32, *n), sampling, max_tokens: 20 }
    };
    lengths.iter().enumerate().map(question).collect()
}

/// Names of the arms that found the flaw in a tiny model of `family`.
fn found(family: &str, flaw: Flaw) -> BTreeSet<String> {
    let config = tiny::config(family).unwrap();
    let spec = models::recipe(&config).unwrap();
    let checkpoint = tiny::checkpoint(config, 3).unwrap();
    let factory = |setup: &Setup| {
        let threads = setup.threads;
        let device = cpu::Cpu::new(&cpu::Options { threads, ..cpu::Options::default() });
        let decoder = Decoder::load(&spec, &checkpoint, &device)?;
        let inner = Box::new(ModelExecutor::new(device, decoder, setup.shape()));
        Ok(start(Box::new(Flawed { inner, flaw, threads }), setup, 1000))
    };
    let folder = tempfile::tempdir().unwrap();
    let questions = questions();
    let proof = Proof {
        questions: &questions,
        promise: Promise::Bits,
        threads: 2,
        depth: Depth::Full,
        folder: folder.path(),
        factory: &factory,
    };
    let mut n_answers = 0;
    let reports = proof.run(&mut || n_answers += 1).unwrap();
    assert_eq!(n_answers, proof.n_answers());
    let tested = reports.iter().filter(|report| report.verdict != Verdict::NotTested);
    assert_eq!(tested.count(), reports.len(), "{reports:?}");
    let differs = reports.into_iter().filter(|report| report.verdict == Verdict::Differs);
    let names = differs.map(|report| {
        let difference = report.difference.expect("it says where");
        assert!(difference.margin.is_some_and(|margin| margin >= 0.0), "{difference:?}");
        report.arm
    });
    names.collect()
}

#[track_caller]
fn check(flaw: Flaw, arms: &[&str]) {
    check_family("llama", flaw, arms);
}

#[track_caller]
fn check_family(family: &str, flaw: Flaw, arms: &[&str]) {
    let expected: BTreeSet<String> = arms.iter().map(|arm| (*arm).to_owned()).collect();
    assert_eq!(found(family, flaw), expected, "{family}, {flaw:?}");
}

#[test]
fn a_sound_executor_passes_every_arm() {
    check(Flaw::None, &[]);
}

/// A model with recurrent states finds its prompts in the cache too.
#[test]
fn a_sound_hybrid_passes_every_arm() {
    check_family("qwen3_next", Flaw::None, &[]);
}

#[test]
fn states_that_are_spoilt_are_found() {
    check_family("qwen3_next", Flaw::Restored, &["after a restart, from disk"]);
    let from_cache = ["with a warm prefix cache", "after a restart, from disk"];
    check_family("qwen3_next", Flaw::KeptLate, &from_cache);
}

#[test]
fn neighbours_that_matter_are_found() {
    check(Flaw::Batched, &["in a crowd of 6", "after giving way to another"]);
}

#[test]
fn a_thread_count_that_matters_is_found() {
    check(Flaw::Threads, &["on 1 thread"]);
}

#[test]
fn chunks_that_matter_are_found() {
    check(Flaw::Chunked, &["prompts in chunks of 7"]);
}

#[test]
fn caches_that_spoil_blocks_are_found() {
    check(Flaw::Copied, &["with a warm prefix cache", "after a restart, from disk"]);
}

/// An answer: the likeliest two tokens at each place, of which the first is chosen.
fn answer(places: &[[(u32, f32); 2]]) -> ask::Answer {
    let token = |top: &[(u32, f32); 2]| {
        (top[0].0, engine::TokenLogprob { logprob: top[0].1, top: top.to_vec() })
    };
    ask::Answer { tokens: places.iter().map(token).collect(), cached: 0 }
}

/// Nearness lets probabilities be a little off, and a token be another one only where these say that it
/// was close.
#[test]
fn what_is_near_is_told_from_what_differs() {
    const SURE: [(u32, f32); 2] = [(1, -0.1), (5, -3.0)];
    const CLOSE: [(u32, f32); 2] = [(2, -0.701), (3, -0.702)];
    let compare = |found: &[[(u32, f32); 2]], promise| {
        let expected = answer(&[SURE, CLOSE, SURE]);
        answer(found).compare(&expected, &questions()[0], promise)
    };
    let place = |comparison| match comparison {
        ask::Comparison::Different(difference) => Some(difference.position),
        ask::Comparison::Same | ask::Comparison::Near(_) => None,
    };
    let near = Promise::Within(0.01);
    assert_eq!(compare(&[SURE, CLOSE, SURE], near), ask::Comparison::Same);
    let off = [(1, -0.105), (5, -3.0)];
    let found = compare(&[off, CLOSE, SURE], near);
    assert!(matches!(found, ask::Comparison::Near(x) if (x - 0.005).abs() < 1e-6), "{found:?}");
    assert_eq!(place(compare(&[off, CLOSE, SURE], Promise::Bits)), Some(0));
    assert_eq!(place(compare(&[SURE, CLOSE, [(1, -0.2), (5, -3.0)]], near)), Some(2));
    assert_eq!(place(compare(&[SURE, CLOSE, [(1, f32::NAN), (5, -3.0)]], near)), Some(2));
    assert_eq!(place(compare(&[SURE, CLOSE], near)), Some(2), "it is shorter");
    // Both were as likely as each other: what follows is of another answer.
    let other_way_round = [(3, -0.7015), (2, -0.7018)];
    assert_eq!(place(compare(&[SURE, other_way_round, [(9, -1.0), (8, -2.0)]], near)), None);
    assert_eq!(place(compare(&[SURE, other_way_round, SURE], Promise::Bits)), Some(1));
    // It cannot become likely all at once.
    assert_eq!(place(compare(&[SURE, [(9, -0.701), (2, -0.702)], SURE], near)), Some(1));
    assert_eq!(place(compare(&[[(5, -0.1), (1, -3.0)], CLOSE, SURE], near)), Some(0));
}
