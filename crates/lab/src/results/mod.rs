//! What records amount to, for whoever shows it: values by model, cell, measure and arm; doubts; verdicts.

mod compare;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub use compare::{Comparison, between, within};

use crate::error::Error;
use crate::flag::Flag;
use crate::journal;
use crate::measure::{Context, Measure, Values};
use crate::record::{Cell, Costs, Lab, Machine, Phase, Record, Run, Start, Stop, Turn};
use crate::run::records_path;
use crate::stats::Summary;

/// All of one folder of results.
#[derive(Clone, Debug)]
pub struct Results {
    /// What was to be done.
    pub lab: Lab,
    /// What it was measured on, the latest time.
    pub machine: Machine,
    /// Every start of an engine.
    pub starts: Vec<Start>,
    /// Every stop.
    pub stops: Vec<Stop>,
    /// Every run that counts.
    pub runs: Vec<Judged>,
    /// Models in the order of their names.
    pub models: Vec<String>,
    /// Arms in the order in which they are shown: as they come in the alphabet, twins last.
    pub arms: Vec<String>,
    /// Everything of the plan is there.
    pub complete: bool,
    cold_starts: Vec<Run>,
}

/// A run, what it amounts to, and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The run.
    pub run: Run,
    /// Flags of each of its requests.
    pub each: Vec<Vec<Flag>>,
    /// Flags of the run.
    pub flags: Vec<Flag>,
    /// Of its sound requests.
    pub values: Values,
}

/// What was doubted about some requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Doubts {
    /// How many requests there were.
    pub requests: usize,
    /// How many times each flag was raised.
    pub flags: BTreeMap<String, usize>,
}

/// One value for each run of the same thing, by block.
pub type Series = BTreeMap<u32, f64>;

/// What is summed up together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The model.
    pub model: String,
    /// The cell.
    pub cell: Cell,
    /// The measure.
    pub measure: Measure,
}

/// Values of all arms at all places.
pub type Table = BTreeMap<Place, BTreeMap<String, Series>>;

impl Results {
    /// Of a folder, or of a file of records.
    ///
    /// # Errors
    /// [`Error`] if it cannot be read.
    pub fn read(path: &Path) -> Result<Results, Error> {
        let path = if path.is_dir() { records_path(path) } else { path.to_owned() };
        let records = journal::read(&path)?;
        let lab = journal::head(&path, &records)?.clone();
        Ok(Results::of(lab, records))
    }

    fn of(lab: Lab, records: Vec<Record>) -> Results {
        let mut results = Results {
            lab,
            machine: Machine::default(),
            starts: Vec::new(),
            stops: Vec::new(),
            runs: Vec::new(),
            models: Vec::new(),
            arms: Vec::new(),
            complete: false,
            cold_starts: Vec::new(),
        };
        let (mut measured, mut templates) = (Vec::new(), BTreeMap::new());
        for record in records {
            match record {
                Record::Lab(_) => (),
                Record::Machine(machine) => results.machine = best(&results.machine, machine),
                Record::Start(start) => results.starts.push(start),
                Record::Stop(stop) => results.stops.push(stop),
                Record::End(end) => results.complete = end.complete,
                Record::Run(run) => match run.phase {
                    Phase::Measured => measured.push(run),
                    Phase::ColdStart => results.cold_starts.push(run),
                    Phase::WarmUp => {
                        if let Some(tokens) = template_tokens(&run) {
                            templates.insert((run.model, run.arm), tokens);
                        }
                    }
                },
            }
        }
        let costs = results.costs();
        for run in measured {
            let key = (run.model.clone(), run.arm.clone());
            let context = Context {
                costs: costs.get(&key).copied(),
                machine: Some(&results.machine),
                target: results.lab.target,
            };
            results.runs.push(Judged::of(run, &context, templates.get(&key).copied()));
        }
        results.name_all();
        results
    }

    fn costs(&self) -> BTreeMap<(String, String), Costs> {
        let costs = self.starts.iter().filter_map(|start| {
            start.costs.map(|costs| ((start.model.clone(), start.arm.clone()), costs))
        });
        costs.collect()
    }

    fn name_all(&mut self) {
        let starts = self.starts.iter().map(|start| (start.model.clone(), start.arm.clone()));
        let runs = self.runs.iter().map(|run| (run.run.model.clone(), run.run.arm.clone()));
        let (models, arms): (BTreeSet<_>, BTreeSet<_>) = starts.chain(runs).unzip();
        self.models = models.into_iter().collect();
        self.arms = arms.into_iter().collect();
        if let Some([_, twin]) = self.lab.null.clone() {
            self.arms.sort_by_key(|arm| *arm == twin);
        }
    }

    /// The second of the two arms that are the same.
    pub fn twin(&self) -> Option<&str> {
        self.lab.null.as_ref().map(|null| null[1].as_str())
    }

    /// All values. Those of an engine as a whole have a cell of workload `process`.
    pub fn table(&self) -> Table {
        let mut table = Table::new();
        let mut put = |model: &str, arm: &str, block: u32, cell: &Cell, (measure, value)| {
            let place = Place { model: model.to_owned(), cell: cell.clone(), measure };
            table.entry(place).or_default().entry(arm.to_owned()).or_default().insert(block, value);
        };
        for Judged { run, values, .. } in &self.runs {
            for &value in values {
                put(&run.model, &run.arm, run.block, &run.cell, value);
            }
        }
        let process = Cell { workload: "process".to_owned(), axis: String::new(), at: 0 };
        // Workloads may start an engine several times; the first start of a block counts.
        for start in self.starts.iter().rev() {
            if let Some(seconds) = start.ready_s {
                let value = (Measure::Ready, seconds);
                put(&start.model, &start.arm, start.block, &process, value);
            }
        }
        for run in &self.cold_starts {
            let sound = run.turns.first().filter(|turn| turn.error.is_none());
            if let Some(ms) = sound.and_then(|turn| turn.ttft_ms()) {
                let value = (Measure::ColdStart, ms);
                put(&run.model, &run.arm, run.block, &process, value);
            }
        }
        for stop in &self.stops {
            let megabytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / 1e6);
            let private = megabytes(stop.peak_private).map(|mb| (Measure::PeakPrivate, mb));
            let resident = megabytes(stop.peak_resident).map(|mb| (Measure::PeakResident, mb));
            for value in private.into_iter().chain(resident) {
                put(&stop.model, &stop.arm, stop.block, &process, value);
            }
        }
        table
    }

    /// How often each doubt was raised, by model, arm and workload, and how many requests there were.
    pub fn doubts(&self) -> BTreeMap<[String; 3], Doubts> {
        let mut doubts: BTreeMap<_, Doubts> = BTreeMap::new();
        for Judged { run, each, flags, .. } in &self.runs {
            let key = [&run.model, &run.arm, &run.cell.workload].map(String::clone);
            let entry = doubts.entry(key).or_default();
            entry.requests += run.turns.len();
            for flag in each.iter().flatten().chain(flags) {
                *entry.flags.entry(flag.name()).or_default() += 1;
            }
        }
        doubts
    }

    /// Every failure, in words, and how often it happened.
    pub fn failures(&self) -> BTreeMap<String, usize> {
        let mut failures = BTreeMap::new();
        let requests = self.runs.iter().flat_map(|judged| {
            let turns = judged.run.turns.iter();
            turns.filter_map(|turn| Some((&judged.run, turn.error.as_ref()?)))
        });
        for (run, trouble) in requests {
            let trouble = serde_json::to_string(trouble).unwrap_or_default();
            *failures.entry(format!("{}, {}: {trouble}", run.arm, run.model)).or_default() += 1;
        }
        for start in &self.starts {
            if let Some(error) = &start.error {
                *failures.entry(format!("{}, {}: {error}", start.arm, start.model)).or_default() +=
                    1;
            }
        }
        failures
    }
}

impl Judged {
    /// Its requests whose numbers may be used.
    pub fn sound(&self) -> impl Iterator<Item = &Turn> {
        let judged = self.run.turns.iter().zip(&self.each);
        judged.filter(|(_, flags)| !flags.iter().any(Flag::is_fatal)).map(|(turn, _)| turn)
    }

    fn of(run: Run, context: &Context, template: Option<u32>) -> Judged {
        let (each, flags) = run.flags(context, template);
        let sound: Vec<bool> = each.iter().map(|flags| !flags.iter().any(Flag::is_fatal)).collect();
        let of = |turn: &Turn| {
            run.turns.iter().position(|other| std::ptr::eq(other, turn)).is_some_and(|i| sound[i])
        };
        let values = run.measures(context, of);
        Judged { each, flags, values, run }
    }
}

/// The latest description of the machine, with the most that was ever measured of it.
fn best(before: &Machine, machine: Machine) -> Machine {
    let most = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
    Machine {
        bandwidth: most(before.bandwidth, machine.bandwidth),
        int8_macs: most(before.int8_macs, machine.int8_macs),
        foreign: match before.at {
            0 => machine.foreign,
            _ => before.foreign.into_iter().chain(machine.foreign).reduce(f64::min),
        },
        ..machine
    }
}

/// Tokens that the template adds, as far as warm-up shows.
fn template_tokens(run: &Run) -> Option<u32> {
    let turn = run.turns.iter().find(|turn| turn.error.is_none())?;
    turn.usage?.prompt.checked_sub(turn.counted.prompt?)
}

/// A summary of a series.
pub fn summary(series: &Series) -> Option<Summary> {
    Summary::of(series.values().copied().collect())
}
