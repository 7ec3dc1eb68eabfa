//! What a report says, whatever it is written in.

use std::collections::BTreeMap;

use crate::chart::{Chart, Reference, charts};
use crate::lang::Lang;
use crate::measure::Measure;
use crate::results::{Comparison, Results, Table, summary, within};
use crate::stats::{Summary, Verdict};

/// A report.
#[derive(Debug)]
pub struct Document {
    /// Its title.
    pub title: String,
    /// What follows.
    pub blocks: Vec<Block>,
}

/// A piece of a report.
#[derive(Debug)]
pub enum Block {
    /// A heading.
    Heading(String),
    /// A paragraph.
    Paragraph(String),
    /// Rows under a head.
    Table {
        /// The head.
        head: Vec<String>,
        /// The rows, each as long as the head.
        rows: Vec<Vec<String>>,
    },
    /// A picture.
    Chart(Chart),
}

/// Measures of the summary, and of verdicts.
const SHOWN: &[Measure] = &[
    Measure::DecodeTps,
    Measure::PrefillTps,
    Measure::TtftCold,
    Measure::TtftWarm,
    Measure::TtftRestarted,
    Measure::FirstAnswer,
    Measure::GapP95,
    Measure::GapMax,
    Measure::Aggregate,
    Measure::PerUser,
    Measure::TtftP95,
    Measure::Goodput,
    Measure::Accepted,
    Measure::Roofline,
    Measure::Arithmetic,
    Measure::Ready,
    Measure::ColdStart,
    Measure::PeakPrivate,
    Measure::PeakResident,
    Measure::Energy,
];

/// The report of one folder of results.
pub fn report(results: &Results, lang: Lang, references: &[Reference]) -> Document {
    let say = |text: &'static str| lang.say(text).to_owned();
    let mut blocks = Vec::new();
    if !results.complete {
        blocks.push(Block::Paragraph(say("This run was interrupted: some of it is missing.")));
    }
    blocks.push(Block::Heading(say("Measured on")));
    blocks.push(machine(results, lang));
    let table = results.table();
    for model in &results.models {
        blocks.push(Block::Heading(format!("{} · {model}", say("Charts"))));
        blocks.extend(charts(results, model, lang, references).into_iter().map(Block::Chart));
        blocks.push(Block::Heading(format!("{} · {model}", say("Summary"))));
        let note = "Median with its 95 % interval; n is the number of runs.";
        blocks.push(Block::Paragraph(say(note)));
        blocks.push(summary_table(results, &table, model, lang));
    }
    if let Some(base) = results.arms.first() {
        let all = within(results, base);
        if !all.is_empty() {
            blocks.push(Block::Heading(say("Verdicts")));
            let note = "A verdict needs the whole interval to be beyond what the same engine differs \
                        from itself by.";
            blocks.push(Block::Paragraph(say(note)));
            blocks.push(comparison_table(&all, lang));
        }
    }
    blocks.extend(floors(results, lang));
    blocks.push(Block::Heading(say("Doubts")));
    blocks.push(doubts(results, lang));
    blocks.push(Block::Heading(say("Failures")));
    blocks.push(failures(results, lang));
    blocks.push(Block::Heading(say("How it was started")));
    blocks.push(commands(results, lang));
    Document { title: format!("{}: {}", say("Benchmark report"), results.lab.name), blocks }
}

fn machine(results: &Results, lang: Lang) -> Block {
    let machine = &results.machine;
    let giga = |value: Option<f64>, unit: &str| {
        value.map_or_else(|| "?".to_owned(), |value| format!("{:.1} {unit}", value / 1e9))
    };
    let rows = [
        ("processor", format!("{} × {}", machine.processors, machine.cpu)),
        ("memory", giga(Some(machine.memory as f64), "GB")),
        ("system", machine.system.clone()),
        ("bandwidth, measured", giga(machine.bandwidth, "GB/s")),
        ("8-bit arithmetic, measured", giga(machine.int8_macs, "GMAC/s")),
        (
            "added by the client to each first token",
            machine.client_us.map_or_else(|| "?".to_owned(), |us| format!("{us:.0} µs")),
        ),
        ("plan", results.lab.name.clone()),
        (
            "sampling, sent with every request",
            serde_json::to_string(&results.lab.sampling).unwrap_or_default(),
        ),
    ];
    let rows = rows.into_iter().map(|(name, value)| vec![lang.say(name).to_owned(), value]);
    Block::Table { head: vec![String::new(), String::new()], rows: rows.collect() }
}

fn summary_table(results: &Results, table: &Table, model: &str, lang: Lang) -> Block {
    let mut head = vec!["workload", "at", "measure"];
    head.iter_mut().for_each(|word| *word = lang.say(word));
    let mut head: Vec<String> = head.into_iter().map(str::to_owned).collect();
    head.extend(results.arms.iter().cloned());
    let mut rows = Vec::new();
    let places =
        table.iter().filter(|(place, _)| place.model == model && SHOWN.contains(&place.measure));
    for (place, arms) in places {
        let at = if place.cell.axis.is_empty() { String::new() } else { place.cell.at.to_string() };
        let mut row =
            vec![lang.say(&place.cell.workload).to_owned(), at, measure(place.measure, lang)];
        row.extend(results.arms.iter().map(|arm| {
            let summary = arms.get(arm).and_then(summary);
            summary.map_or_else(|| "–".to_owned(), |summary| told(&summary))
        }));
        rows.push(row);
    }
    Block::Table { head, rows }
}

fn measure(measure: Measure, lang: Lang) -> String {
    let name = measure.name();
    format!("{}, {}", lang.say(&name), lang.say(measure.unit()))
}

fn told(summary: &Summary) -> String {
    let [low, high] = summary.ci;
    let outliers = summary.outliers.iter().filter(|outlier| **outlier).count();
    let marks = "*".repeat(outliers);
    let n = summary.values.len();
    format!("{} [{}–{}]{marks} n={n}", number(summary.median), number(low), number(high))
}

fn number(value: f64) -> String {
    match value.abs() {
        n if n >= 1000.0 => format!("{value:.0}"),
        n if n >= 10.0 => format!("{value:.1}"),
        n if n >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Verdicts as a table.
pub fn comparison_table(all: &[Comparison], lang: Lang) -> Block {
    let head =
        ["model", "workload", "at", "measure", "engine", "compared with", "ratio", "verdict"];
    let rows = all.iter().filter(|one| SHOWN.contains(&one.place.measure)).map(|one| {
        let place = &one.place;
        let [low, high] = one.contrast.ci;
        vec![
            place.model.clone(),
            lang.say(&place.cell.workload).to_owned(),
            if place.cell.axis.is_empty() { String::new() } else { place.cell.at.to_string() },
            measure(place.measure, lang),
            one.arm.clone(),
            one.base.clone(),
            format!("{:.3} [{low:.3}–{high:.3}]", one.contrast.ratio),
            lang.say(word(one)).to_owned(),
        ]
    });
    Block::Table {
        head: head.iter().map(|word| lang.say(word).to_owned()).collect(),
        rows: rows.collect(),
    }
}

/// Memory is not fast or slow.
fn word(one: &Comparison) -> &'static str {
    let is_size = one.place.measure.unit() == "MB";
    match one.verdict {
        Verdict::Same => "same",
        Verdict::Faster if is_size => "better",
        Verdict::Slower if is_size => "worse",
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::Unclear => "unclear",
    }
}

fn floors(results: &Results, lang: Lang) -> Vec<Block> {
    let floors = results.floors();
    if floors.is_empty() {
        return Vec::new();
    }
    let mut rows: BTreeMap<Measure, Vec<String>> = BTreeMap::new();
    for ((model, measure), floor) in floors.iter().filter(|(key, _)| SHOWN.contains(&key.1)) {
        let text = format!("{model}: ±{:.1} %", 100.0 * floor);
        rows.entry(*measure).or_default().push(text);
    }
    let note = "what the same engine, measured as if it were two, differed from itself by";
    let head = vec![lang.say("measure").to_owned(), lang.say("Noise floor").to_owned()];
    let rows = rows.into_iter().map(|(of, texts)| vec![measure(of, lang), texts.join("; ")]);
    vec![
        Block::Heading(lang.say("Noise floor").to_owned()),
        Block::Paragraph(lang.say(note).to_owned()),
        Block::Table { head, rows: rows.collect() },
    ]
}

fn doubts(results: &Results, lang: Lang) -> Block {
    let rows = results.doubts().into_iter().map(|([model, arm, workload], doubts)| {
        let flags: Vec<String> =
            doubts.flags.iter().map(|(flag, n)| format!("{flag} × {n}")).collect();
        let flags = if flags.is_empty() { lang.say("none").to_owned() } else { flags.join(", ") };
        vec![model, arm, lang.say(&workload).to_owned(), doubts.requests.to_string(), flags]
    });
    let head = ["model", "engine", "workload", "requests", "what was noticed"];
    Block::Table {
        head: head.iter().map(|word| lang.say(word).to_owned()).collect(),
        rows: rows.collect(),
    }
}

fn failures(results: &Results, lang: Lang) -> Block {
    let failures = results.failures();
    if failures.is_empty() {
        return Block::Paragraph(lang.say("none").to_owned());
    }
    let lines: Vec<String> =
        failures.into_iter().map(|(what, n)| format!("{n} × {what}")).collect();
    Block::Paragraph(lines.join("; "))
}

fn commands(results: &Results, lang: Lang) -> Block {
    let mut seen = BTreeMap::new();
    for start in &results.starts {
        seen.entry((start.model.clone(), start.arm.clone())).or_insert(start);
    }
    let rows = seen.into_iter().map(|((model, arm), start)| {
        vec![model, arm, start.version.clone().unwrap_or_default(), start.command.join(" ")]
    });
    let head = ["model", "engine", "version", "command"];
    Block::Table {
        head: head.iter().map(|word| lang.say(word).to_owned()).collect(),
        rows: rows.collect(),
    }
}
