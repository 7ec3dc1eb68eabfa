//! The ways of asking that must not matter. Each makes its engines, asks, and compares with the
//! answers that the same questions got alone, on an engine that had seen nothing.

use std::path::{Path, PathBuf};

use anyhow::Result;
use engine::{BLOCK, ExecutorShape, Handle};
use serde::Serialize;

use super::ask::{Answer, Comparison, Difference, Promise, Question, greedy_pair};

/// Rows that take every prompt in one pass.
const WHOLE: usize = 256;
/// Chunks that prompts are cut into.
const CHUNKS: [usize; 3] = [1, 7, 64];

/// How an arm's engine is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) threads: usize,
    /// Rows of a pass, and so of a chunk of a prompt.
    pub(super) rows: usize,
    /// Requests at once.
    pub(super) seqs: usize,
    /// Cache blocks.
    pub(super) blocks: usize,
    /// Where cached blocks are kept on disk.
    pub(super) disk: Option<PathBuf>,
}

impl Setup {
    /// What its executor has room for.
    pub(super) fn shape(&self) -> ExecutorShape {
        ExecutorShape {
            n_blocks: self.blocks,
            n_windowed: self.blocks,
            // Two for each request, and one at the end of each block.
            n_slots: 2 * self.seqs + self.blocks,
            max_rows: self.rows,
            max_want: self.seqs,
        }
    }
}

/// Makes engines.
pub(super) type Factory<'a> = dyn Fn(&Setup) -> Result<Handle> + 'a;

/// What one arm found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Report {
    pub(super) arm: String,
    pub(super) answers: usize,
    pub(super) verdict: Verdict,
    /// Why it was not tested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'static str>,
    /// The first of its differences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) difference: Option<Difference>,
    /// How far logarithms of probabilities are apart, the most that any are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) off: Option<f32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Equal,
    /// As near as the device promises.
    Near,
    Differs,
    /// What the arm is about did not happen.
    NotTested,
}

/// What is to be proven, and with what.
pub(super) struct Proof<'a> {
    pub(super) questions: &'a [Question],
    pub(super) promise: Promise,
    /// Threads of the arms that are not about threads.
    pub(super) threads: usize,
    pub(super) depth: Depth,
    /// A folder for this alone, for blocks on disk.
    pub(super) folder: &'a Path,
    pub(super) factory: &'a Factory<'a>,
}

/// How much is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// All of it.
    Full,
    /// All but what takes long answers.
    Quick,
}

/// A proof on its way.
struct Bench<'a> {
    proof: &'a Proof<'a>,
    /// What the questions got alone.
    expected: Vec<Answer>,
    base: Setup,
    advance: &'a mut dyn FnMut(),
    reports: Vec<Report>,
}

/// Questions that the arms ask which make an engine for each answer or go slowly: of each kind of
/// sampling one, with the longest prompt.
fn few(questions: &[Question]) -> std::ops::Range<usize> {
    questions.len().saturating_sub(2)..questions.len()
}

impl Proof<'_> {
    /// Numbers of threads that are tried beside the one asked for. Who does not promise bits has none.
    fn other_threads(&self) -> Vec<usize> {
        if self.promise != Promise::Bits {
            return Vec::new();
        }
        let threads = self.threads;
        // One more than there are processors is a case of its own: some thread always waits.
        (1..=threads + 1).filter(|n| *n != threads && (*n <= 4 || *n > threads)).collect()
    }

    /// Answers that [`Proof::run`] will ask for, for progress.
    pub(super) fn n_answers(&self) -> u64 {
        let few = few(self.questions).len();
        let one_by_one = 1 + CHUNKS.len() + self.other_threads().len();
        let long = match self.depth {
            Depth::Full => 4,
            Depth::Quick => 0,
        };
        (2 * self.questions.len() + (one_by_one + 4) * few + long) as u64
    }

    /// Runs all arms; `advance` is called after each answer.
    pub(super) fn run(&self, advance: &mut dyn FnMut()) -> Result<Vec<Report>> {
        let blocks = self
            .questions
            .iter()
            .map(|question| (question.prompt.len() + question.max_tokens).div_ceil(BLOCK));
        let base =
            Setup { threads: self.threads, rows: WHOLE, seqs: 1, blocks: blocks.sum(), disk: None };
        let reports = Vec::new();
        let mut bench = Bench { proof: self, expected: Vec::new(), base, advance, reports };
        for question in self.questions {
            let answer = bench.alone(question)?;
            bench.expected.push(answer);
        }
        bench.one_by_one("alone again, on a fresh engine".to_owned(), bench.base.clone())?;
        bench.crowd()?;
        for rows in CHUNKS {
            let setup = Setup { rows, ..bench.base.clone() };
            bench.one_by_one(format!("prompts in chunks of {rows}"), setup)?;
        }
        for threads in self.other_threads() {
            let plural = if threads == 1 { "" } else { "s" };
            let setup = Setup { threads, ..bench.base.clone() };
            bench.one_by_one(format!("on {threads} thread{plural}"), setup)?;
        }
        bench.warm_cache()?;
        bench.disk()?;
        if self.depth == Depth::Full {
            bench.parked()?;
        }
        Ok(bench.reports)
    }
}

impl Bench<'_> {
    fn engine(&self, setup: &Setup) -> Result<Handle> {
        (self.proof.factory)(setup)
    }

    /// The answer of an engine that has seen nothing, whole prompt in one pass.
    fn alone(&mut self, question: &Question) -> Result<Answer> {
        self.ask(&self.engine(&self.base)?, question)
    }

    fn ask(&mut self, engine: &Handle, question: &Question) -> Result<Answer> {
        let answer = question.ask(engine)?;
        (self.advance)();
        Ok(answer)
    }

    /// Asks a few questions one after the other.
    fn a_few(&mut self, engine: &Handle) -> Result<Vec<(usize, Answer)>> {
        let questions = self.proof.questions;
        few(questions).map(|at| Ok((at, self.ask(engine, &questions[at])?))).collect()
    }

    /// Asks a few questions, of which none finds anything in the cache.
    fn one_by_one(&mut self, arm: String, setup: Setup) -> Result<()> {
        let engine = self.engine(&setup)?;
        let questions = self.proof.questions;
        let mut answers = Vec::new();
        for at in few(questions) {
            engine.clear_cache()?;
            answers.push((at, self.ask(&engine, &questions[at])?));
        }
        self.report(arm, &answers, None);
        Ok(())
    }

    /// Asks questions at once.
    fn at_once(&mut self, engine: &Handle, questions: &[Question]) -> Result<Vec<Answer>> {
        let pending: Result<Vec<_>> = questions.iter().map(|q| q.submit(engine)).collect();
        let mut answers = Vec::new();
        for pending in pending? {
            answers.push(pending.wait()?);
            (self.advance)();
        }
        Ok(answers)
    }

    fn crowd(&mut self) -> Result<()> {
        let questions = self.proof.questions;
        let seqs = questions.len();
        let engine = self.engine(&Setup { seqs, ..self.base.clone() })?;
        let answers = self.at_once(&engine, questions)?;
        let answers: Vec<_> = answers.into_iter().enumerate().collect();
        self.report(format!("in a crowd of {seqs}"), &answers, None);
        Ok(())
    }

    /// The same prompts again on one engine: their beginning comes from the cache.
    fn warm_cache(&mut self) -> Result<()> {
        let engine = self.engine(&self.base)?;
        self.a_few(&engine)?;
        let answers = self.a_few(&engine)?;
        self.report("with a warm prefix cache".to_owned(), &answers, not_cached(&answers));
        Ok(())
    }

    /// The same prompts again after a restart: their beginning comes from disk.
    fn disk(&mut self) -> Result<()> {
        let setup = Setup { disk: Some(self.proof.folder.to_owned()), ..self.base.clone() };
        let before = self.engine(&setup)?;
        self.a_few(&before)?;
        before.flush()?;
        before.shutdown();
        let answers = self.a_few(&self.engine(&setup)?)?;
        self.report("after a restart, from disk".to_owned(), &answers, not_cached(&answers));
        Ok(())
    }

    /// Two long answers with room for one: the other gives up its blocks and comes back.
    fn parked(&mut self) -> Result<()> {
        let (pair, blocks) = greedy_pair(self.proof.questions);
        let mut expected = Vec::new();
        for question in &pair {
            expected.push(self.alone(question)?);
        }
        let engine = self.engine(&Setup { seqs: 2, blocks, ..self.base.clone() })?;
        let answers = self.at_once(&engine, &pair)?;
        let parked = engine.stats().totals.preemptions > 0;
        let promise = self.proof.promise;
        let both = pair.iter().zip(&expected).zip(&answers);
        let found = both.map(|((question, was), is)| is.compare(was, question, promise)).collect();
        let missed = (!parked).then_some("nobody had to give way");
        self.keep("after giving way to another".to_owned(), found, missed);
        Ok(())
    }

    fn report(&mut self, arm: String, answers: &[(usize, Answer)], missed: Option<&'static str>) {
        let Proof { questions, promise, .. } = *self.proof;
        let compare = |(at, answer): &(usize, Answer)| {
            answer.compare(&self.expected[*at], &questions[*at], promise)
        };
        let found = answers.iter().map(compare).collect();
        self.keep(arm, found, missed);
    }

    fn keep(&mut self, arm: String, found: Vec<Comparison>, missed: Option<&'static str>) {
        let answers = found.len();
        let (mut difference, mut off) = (None, None);
        for comparison in found {
            match comparison {
                Comparison::Same => {}
                Comparison::Near(apart) => off = Some(apart.max(off.unwrap_or(0.0))),
                Comparison::Different(first) => difference = difference.or(Some(first)),
            }
        }
        let verdict = match (&difference, missed, off) {
            (Some(_), ..) => Verdict::Differs,
            (None, Some(_), _) => Verdict::NotTested,
            (None, None, Some(_)) => Verdict::Near,
            (None, None, None) => Verdict::Equal,
        };
        let reason = missed.filter(|_| verdict == Verdict::NotTested);
        self.reports.push(Report { arm, answers, verdict, reason, difference, off });
    }
}

fn not_cached(answers: &[(usize, Answer)]) -> Option<&'static str> {
    let hit = answers.iter().all(|(_, answer)| answer.cached > 0);
    (!hit).then_some("the cache did not have the prompt")
}
