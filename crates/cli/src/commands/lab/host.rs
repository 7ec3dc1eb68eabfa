//! What the lab cannot do itself: models' tokenizers and costs, the arithmetic peak, the terminal, Ctrl-C.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lab::engine::Format;
use lab::plan::{Arm, Model};
use lab::prompt::CountTokens;
use lab::record::Costs;
use lab::run::Host;

use crate::load::{Budget, Crowd, LoadArgs, Opened};
use crate::progress::Meter;
use crate::signals;

/// Multiply-adds of one try of one thread.
const TRY: u64 = 4 << 30;
/// Time for engines to be ended before a second signal ends this program without them.
const PATIENCE: Duration = Duration::from_secs(3);
/// Tries; the fastest counts.
const TRIES: usize = 4;

/// The terminal, and this machine.
pub(in crate::commands) struct Terminal {
    meter: Meter,
    stopped: Arc<AtomicBool>,
}

impl Terminal {
    /// From now on Ctrl-C asks for an end; the second one ends the program.
    pub(in crate::commands) fn new(what: &str) -> Result<Terminal> {
        let stopped = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stopped);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot wait for Ctrl-C")?;
        thread::spawn(move || {
            runtime.block_on(async {
                signals::stop_requested().await;
                asked.store(true, Ordering::Relaxed);
                eprintln!("ending; again to end at once");
                // Engines are ended meanwhile. Some signal twice at once: a program and its group.
                tokio::time::sleep(PATIENCE).await;
                signals::stop_requested().await;
                std::process::exit(130);
            });
        });
        Ok(Terminal { meter: Meter::steps(what, 0), stopped })
    }

    pub(in crate::commands) fn finish(self) {
        drop(self.meter);
    }
}

struct Tokens(text::Tokenizer);

impl CountTokens for Tokens {
    fn count(&self, text: &str) -> usize {
        // What the lab writes and models answer are texts like any other; one that cannot be cut into
        // tokens has none.
        self.0.encode_raw(text).map_or(0, |tokens| tokens.len())
    }
}

fn opened(path: &str) -> Option<Opened> {
    let args = LoadArgs::default();
    let planned = Opened::planned(Budget::of(&args), Path::new(path), &args, Crowd::ONE);
    planned.ok().map(|(opened, _)| opened)
}

/// Paths of a model's files, in forms that we read.
fn paths(model: &Model) -> impl Iterator<Item = &str> {
    let ours = model.forms.iter().filter(|(format, _)| **format != Format::Name);
    ours.map(|(_, path)| path.as_str())
}

impl Host for Terminal {
    fn tokenizer(&self, model: &Model) -> Option<Box<dyn CountTokens>> {
        let tokenizer = paths(model).find_map(|path| opened(path)?.tokenizer().ok())?;
        Some(Box::new(Tokens(tokenizer)))
    }

    fn costs(&self, model: &Model, arm: &Arm) -> Option<Costs> {
        let (_, path) = model.form(&arm.engine)?;
        let opened = opened(path).or_else(|| paths(model).find_map(opened))?;
        let spec = &opened.spec;
        let head = (spec.vocab * spec.hidden) as u64;
        Some(Costs {
            weight_bytes: opened.footprint.bytes_per_token as f64,
            kv_bytes: spec.kv_bytes_per_token() as f64,
            // Only the last token of a prompt meets the output matrix.
            prompt_macs: spec.n_active_params().saturating_sub(head) as f64,
        })
    }

    fn int8_macs(&self, threads: usize) -> Option<f64> {
        let rate = || -> Option<f64> {
            let start = Instant::now();
            let done: Option<u64> = thread::scope(|scope| {
                let all: Vec<_> =
                    (0..threads).map(|_| scope.spawn(|| cpu::multiply_adds_int8(TRY))).collect();
                all.into_iter().map(|one| one.join().ok()?).sum()
            });
            Some(done? as f64 / start.elapsed().as_secs_f64())
        };
        (0..TRIES).filter_map(|_| rate()).reduce(f64::max)
    }

    fn progress(&self, done: usize, of: usize, next: &str) {
        self.meter.set_of(done as u64, of as u64);
        self.meter.say(next);
    }

    fn note(&self, text: &str) {
        self.meter.above(text);
    }

    fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}
