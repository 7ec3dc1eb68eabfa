//! Carries out a plan: blocks of interleaved runs in random order, every one of them written down as soon
//! as it is over.
//!
//! In a block every engine is launched once for every model, in random order, and measures every cell once,
//! in random order. So whatever the machine does in the meantime, it does to all of them, and the runs of a
//! block are comparable in pairs.

mod anchors;
mod perform;
mod process;
mod served;
mod system;

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use anchors::{bandwidth, client_overhead_us};
pub use perform::{Memory, Request, play};
pub use system::machine;

use crate::clock::{Clock, Monotonic};
use crate::error::Error;
use crate::journal::{self, Journal};
use crate::plan::{Arm, Cells, Model, Plan};
use crate::prompt::{CountTokens, Guess};
use crate::record::{
    Cell, Costs, End, Lab, Machine, Phase, Record, Run, SCHEMA, Start, State, Stop, Turn,
};
use crate::rng::Rng;
use crate::workload::{Script, Step, User, Workload, Writer};
use served::Served;

/// What only the caller can do or know.
pub trait Host: Sync {
    /// The tokenizer of a model, where it is at hand.
    fn tokenizer(&self, model: &Model) -> Option<Box<dyn CountTokens>>;
    /// What a token costs.
    fn costs(&self, model: &Model, arm: &Arm) -> Option<Costs>;
    /// 8-bit multiply-adds per second of this machine, with so many threads.
    fn int8_macs(&self, threads: usize) -> Option<f64>;
    /// So many runs of so many are over; what comes next.
    fn progress(&self, done: usize, of: usize, next: &str);
    /// Something that the user should read.
    fn note(&self, text: &str);
    /// Whether the user wants it to end.
    fn stopped(&self) -> bool;
}

/// Bytes that are read to find out how fast memory is: much more than caches hold.
const BANDWIDTH_BYTES: usize = 512 << 20;

/// A plan on its way.
pub struct Bench<'a> {
    plan: &'a Plan,
    host: &'a dyn Host,
    folder: PathBuf,
    journal: Journal,
    done: HashSet<Key>,
    /// Engines that could not be started: with which model, and as which arm.
    dead: HashSet<(String, String)>,
    /// Never the same in two launches of the lab, so that nothing of an earlier one is in a cache on disk.
    nonce: u64,
    n_done: usize,
}

/// Asks one question.
pub type Ask<'a> = dyn FnMut(&Step) -> Turn + 'a;

/// Launches the first arm of a plan with its first model and lets `work` ask it one question after the
/// other, each without what was before.
///
/// # Errors
/// [`Error`] if the engine cannot be started.
pub fn ask_one(
    plan: &Plan,
    folder: &Path,
    host: &dyn Host,
    work: &mut dyn FnMut(&mut Ask),
) -> Result<(), Error> {
    let Some((model, arm)) = plan.pairs().into_iter().next() else {
        return Err(Error::Plan("no engine reads this model".to_owned()));
    };
    let logs = folder.join("logs");
    std::fs::create_dir_all(&logs).map_err(|source| Error::file(&logs, source))?;
    let mut served = Served::new(plan, model, arm, folder, 0);
    let stopped = || host.stopped();
    served.start(&stopped).map_err(|why| Error::Unavailable(format!("{}: {why}", arm.label)))?;
    let clock = Monotonic::start();
    let tokens = Guess::default();
    let mut session = served.session(&clock, &tokens, &stopped);
    unless_stopped(host, &served, || {
        work(&mut |step| Memory::default().ask(step, &served.request, &mut session));
    });
    Ok(())
}

/// Ends a process that was started as the first of its group, and whatever it started.
pub(crate) fn end_group(leader: u32) {
    process::Group::of(leader).kill();
}

/// Does it; when the user wants an end meanwhile, the engine is ended, so that nobody waits for it.
fn unless_stopped<T>(host: &dyn Host, served: &Served, work: impl FnOnce() -> T) -> T {
    let group = served.group();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if host.stopped() {
                    group.into_iter().for_each(process::Group::kill);
                    break;
                }
                thread::park_timeout(Duration::from_millis(200));
            }
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        done
    })
}

/// A run that counts: model, arm, block, cell.
type Key = (String, String, u32, Cell);

/// Where the records of a folder are.
pub fn records_path(folder: &Path) -> PathBuf {
    folder.join("records.jsonl")
}

impl<'a> Bench<'a> {
    /// Opens the folder of results. One that has results of the same plan is gone on with.
    ///
    /// # Errors
    /// [`Error`], also when the folder has results of another plan.
    pub fn open(plan: &'a Plan, folder: &Path, host: &'a dyn Host) -> Result<Bench<'a>, Error> {
        let logs = folder.join("logs");
        std::fs::create_dir_all(&logs).map_err(|source| Error::file(&logs, source))?;
        let path = records_path(folder);
        let (mut journal, records) = Journal::open(&path)?;
        let fingerprint = plan.fingerprint();
        if records.is_empty() {
            journal.write(&Record::Lab(head(plan, &fingerprint)))?;
        } else if journal::head(&path, &records)?.fingerprint != fingerprint {
            let why = "has results of another plan: choose another folder";
            return Err(Error::malformed(&path, why));
        }
        let done: HashSet<Key> = records.iter().filter_map(key).collect();
        Ok(Bench {
            plan,
            host,
            folder: folder.to_owned(),
            journal,
            n_done: done.len(),
            done,
            dead: HashSet::new(),
            nonce: nonce(),
        })
    }

    /// How many runs there are in all, and how many are over.
    pub fn extent(&self) -> (usize, usize) {
        (self.plan.n_runs(), self.n_done)
    }

    /// Does all that is missing. Gives whether everything is there now.
    ///
    /// # Errors
    /// [`Error`] if nothing can be written any more. Engines that fail are records, not errors.
    pub fn run(&mut self) -> Result<bool, Error> {
        let machine = self.machine();
        self.journal.write(&Record::Machine(machine))?;
        for block in 0..self.plan.runs {
            let mut pairs = self.plan.pairs();
            Rng::of(self.plan.seed, &format!("pairs {block}")).shuffle(&mut pairs);
            for (model, arm) in pairs {
                if self.host.stopped() {
                    break;
                }
                self.block_of(model, arm, block)?;
            }
        }
        let (all, done) = self.extent();
        // An engine that does not start is a result, not an interruption.
        let complete = all == done || !self.host.stopped();
        self.journal.write(&Record::End(End { complete }))?;
        Ok(all == done)
    }

    fn machine(&self) -> Machine {
        self.host.note("measuring the machine");
        let mut machine = system::machine();
        let threads = match self.plan.threads {
            0 => machine.processors,
            threads => threads,
        };
        machine.at = now();
        let foreign = system::Foreign::start(0.0);
        thread::sleep(Duration::from_millis(500));
        machine.foreign = foreign.end(0.0);
        machine.bandwidth = Some(bandwidth(threads, BANDWIDTH_BYTES));
        machine.int8_macs = self.host.int8_macs(threads);
        machine.client_us = client_overhead_us().ok();
        machine
    }

    /// All runs of a block that one engine has to make with one model.
    fn block_of(&mut self, model: &Model, arm: &Arm, block: u32) -> Result<(), Error> {
        let mut cells = self.missing(model, arm, block);
        let pair = (model.name.clone(), arm.label.clone());
        if cells.is_empty() || self.dead.contains(&pair) {
            return Ok(());
        }
        let what = format!("{} with {}", arm.label, model.name);
        self.progress(&format!("{what}: starting"));
        let tokens = self.host.tokenizer(model).unwrap_or_else(|| Box::new(Guess::default()));
        let mut served = Served::new(self.plan, model, arm, &self.folder, block);
        self.rest(&served);
        if let Err(why) = self.launch(&mut served, block)? {
            self.host.note(&format!("{what}: {why}"));
            self.dead.insert(pair);
            return Ok(());
        }
        let place = format!("{} {block}", model.name);
        let template = self.warm_up(&mut served, &*tokens, block, &place)?;
        Rng::of(self.plan.seed, &format!("cells {place} {}", arm.label)).shuffle(&mut cells);
        for (workload, cell) in cells {
            if self.host.stopped() {
                break;
            }
            self.progress(&format!("{what}: {} {}", workload.title, cell.at));
            let place = format!("{place} {} {}", cell.workload, cell.at);
            let mut writer = self.writer(&*tokens, template, &place, arm);
            let script = workload.script(&cell, &mut writer);
            let run =
                self.one_run(&mut served, &script, (block, Phase::Measured, cell), &*tokens)?;
            if let Some(run) = run {
                let record = Record::Run(run);
                self.n_done += usize::from(key(&record).is_some_and(|key| self.done.insert(key)));
                self.journal.write(&record)?;
            }
        }
        self.stop(&mut served, block)?;
        served.clean();
        Ok(())
    }

    fn missing(&self, model: &Model, arm: &Arm, block: u32) -> Vec<(&'a Workload, Cell)> {
        let mut cells = self.plan.cells(model, arm);
        cells.retain(|(_, cell)| {
            let key = (model.name.clone(), arm.label.clone(), block, cell.clone());
            !self.done.contains(&key)
        });
        cells
    }

    fn progress(&self, next: &str) {
        let (all, done) = self.extent();
        self.host.progress(done, all, next);
    }

    fn writer<'t>(
        &self,
        tokens: &'t dyn CountTokens,
        template: u32,
        place: &str,
        arm: &Arm,
    ) -> Writer<'t> {
        let salt = Rng::of(self.plan.seed ^ self.nonce, &format!("{place} {}", arm.label));
        Writer { tokens, template, body: Rng::of(self.plan.seed, place), salt }
    }

    /// Starts the engine and writes down how that went.
    fn launch(&mut self, served: &mut Served, block: u32) -> Result<Result<(), String>, Error> {
        let started = served.start(&|| self.host.stopped());
        let costs = self.host.costs(served.model, served.arm);
        self.journal.write(&Record::Start(Start {
            arm: served.arm.label.clone(),
            model: served.model.name.clone(),
            block,
            command: served.command.clone(),
            version: served.version.clone(),
            ready_s: started.as_ref().ok().copied().flatten(),
            error: started.as_ref().err().cloned(),
            costs,
        }))?;
        Ok(started.map(|_| ()))
    }

    fn stop(&mut self, served: &mut Served, block: u32) -> Result<(), Error> {
        let memory = served.stop();
        self.journal.write(&Record::Stop(Stop {
            arm: served.arm.label.clone(),
            model: served.model.name.clone(),
            block,
            peak_private: memory.map(|memory| memory.0),
            peak_resident: memory.map(|memory| memory.1),
        }))
    }

    /// The first request after a start, and some that are thrown away, as many at once as there will be.
    /// Gives how many tokens the template adds.
    fn warm_up(
        &mut self,
        served: &mut Served,
        tokens: &dyn CountTokens,
        block: u32,
        place: &str,
    ) -> Result<u32, Error> {
        let cell =
            |workload: &str| Cell { workload: workload.to_owned(), axis: String::new(), at: 0 };
        let mut template = 0;
        for n in 0..=self.plan.warm_up {
            let (phase, users) = match n {
                0 => (Phase::ColdStart, 1),
                _ => (Phase::WarmUp, self.plan.users(served.model)),
            };
            let mut writer = self.writer(tokens, 0, &format!("{place} warm-up {n}"), served.arm);
            let user = |_| User { comes_us: 0, steps: vec![writer.cold(96, 16)] };
            let script = Script { users: (0..users).map(user).collect() };
            let name = if n == 0 { "cold start" } else { "warm-up" };
            let run = self.one_run(served, &script, (block, phase, cell(name)), tokens)?;
            let Some(run) = run else { break };
            for turn in &run.turns {
                if let (Some(usage), Some(prompt)) = (turn.usage, turn.counted.prompt) {
                    template = usage.prompt.saturating_sub(prompt);
                }
            }
            self.journal.write(&Record::Run(run))?;
        }
        Ok(template)
    }

    /// One run. `None`: the user wanted it to end meanwhile.
    fn one_run(
        &mut self,
        served: &mut Served,
        script: &Script,
        (block, phase, cell): (u32, Phase, Cell),
        tokens: &dyn CountTokens,
    ) -> Result<Option<Run>, Error> {
        served.clear();
        let foreign = if phase == Phase::Measured { self.rest(served) } else { None };
        let before = State { foreign, ..system::state() };
        let relaunches = script.users.iter().flat_map(|user| &user.steps).any(|step| step.relaunch);
        let turns = match relaunches {
            true => self.play_with_restarts(served, script, block, tokens)?,
            false => {
                let clock = Monotonic::start();
                let stopped = || self.host.stopped();
                let session = || served.session(&clock, tokens, &stopped);
                unless_stopped(self.host, served, || play(&script.users, &served.request, &session))
            }
        };
        let after = system::state();
        let (arm, model) = (served.arm.label.clone(), served.model.name.clone());
        let run = Run { arm, model, block, phase, cell, before, after, turns };
        let interrupted = perform::was_interrupted(&run.turns) || self.host.stopped();
        Ok((!interrupted).then_some(run))
    }

    /// One user, for whom the engine is started again where the script says so.
    fn play_with_restarts(
        &mut self,
        served: &mut Served,
        script: &Script,
        block: u32,
        tokens: &dyn CountTokens,
    ) -> Result<Vec<Turn>, Error> {
        let clock = Monotonic::start();
        let (mut memory, mut turns) = (Memory::default(), Vec::new());
        for step in script.users.iter().flat_map(|user| &user.steps) {
            if step.relaunch {
                self.stop(served, block)?;
                if self.launch(served, block)?.is_err() {
                    break;
                }
            }
            let stopped = || self.host.stopped();
            let mut session = served.session(&clock, tokens, &stopped);
            let turn = unless_stopped(self.host, served, || {
                memory.ask(step, &served.request, &mut session)
            });
            turns.push(turn);
        }
        Ok(turns)
    }

    /// The pause before a run; gives what others did in it.
    fn rest(&self, served: &Served) -> Option<f64> {
        let foreign = system::Foreign::start(served.cpu_seconds());
        let clock = Monotonic::start();
        let end = (self.plan.cool_down_s * 1e6) as u64;
        while clock.now() < end && !self.host.stopped() {
            clock.wait_until((clock.now() + 100_000).min(end));
        }
        foreign.end(served.cpu_seconds())
    }
}

impl Plan {
    /// Most users at once of a model.
    pub fn users(&self, model: &Model) -> u32 {
        let measured = |workload: &&Workload| {
            workload.cells().iter().any(|cell| wanted(model.cells.as_ref(), cell))
        };
        self.workloads.iter().filter(measured).map(Workload::users).max().unwrap_or(1)
    }

    /// Runs in all.
    pub fn n_runs(&self) -> usize {
        let pairs = self.pairs().into_iter();
        let each = pairs.map(|(model, arm)| self.cells(model, arm).len());
        each.sum::<usize>() * self.runs as usize
    }

    /// All that is measured of an arm with a model.
    pub(crate) fn cells(&self, model: &Model, arm: &Arm) -> Vec<(&Workload, Cell)> {
        // Nobody can restart what somebody else runs.
        let able = |workload: &&Workload| arm.url.is_none() || !workload.restarts();
        let workloads = self.workloads.iter().filter(able);
        let all = workloads.flat_map(|w| w.cells().into_iter().map(move |cell| (w, cell)));
        all.filter(|(_, cell)| {
            wanted(model.cells.as_ref(), cell) && wanted(arm.cells.as_ref(), cell)
        })
        .collect()
    }

    /// Tokens of context that a user needs at most.
    pub fn context(&self) -> u32 {
        self.workloads.iter().map(Workload::context).max().unwrap_or(0).next_multiple_of(256)
    }
}

fn wanted(cells: Option<&Cells>, cell: &Cell) -> bool {
    cells.is_none_or(|cells| cells.has(cell))
}

fn key(record: &Record) -> Option<Key> {
    match record {
        Record::Run(run) if run.phase == Phase::Measured => {
            Some((run.model.clone(), run.arm.clone(), run.block, run.cell.clone()))
        }
        _ => None,
    }
}

fn head(plan: &Plan, fingerprint: &str) -> Lab {
    Lab {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: now(),
        name: plan.name.clone(),
        plan: plan.text.clone(),
        fingerprint: fingerprint.to_owned(),
        null: plan.null.clone(),
        target: plan.target,
        sampling: plan.sampling.clone(),
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Another number every time. No clock tells two launches apart that follow each other at once.
fn nonce() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_that_follow_each_other_at_once_ask_differently() {
        let nonces: HashSet<u64> = (0..100).map(|_| nonce()).collect();
        assert_eq!(nonces.len(), 100);
    }
}
