//! `hearth bench`: the speed of a model in this process, through the same engine that serves.

mod submit;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use engine::{Event, Handle, Request, Sampling, Usage};
use serde::{Deserialize, Serialize};

use crate::env::Environment;
use crate::load::{self, Crowd, LoadArgs, Opened};
use crate::progress::Meter;
use crate::store::catalog::DEFAULT_ALIAS;

const EXAMPLES: &str = "\
Examples:
  hearth bench --prompt 512,2048 --gen 128 --depth 0,2048
  hearth bench ./model.gguf --threads 4 --json
  hearth bench --markdown --submit bench.json";

/// Measure the speed of a model in this process
///
/// Prefill and decode are measured apart, each cell --runs times after one warm-up; medians are
/// shown. Prompts are random tokens, different in every run, so that the prefix cache never helps.
/// Decoding is greedy and starts after --depth tokens of prompt.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Model to measure
    #[arg(default_value = DEFAULT_ALIAS)]
    model: String,
    /// Prompt lengths to read
    #[arg(long, value_delimiter = ',', default_value = "512", value_name = "TOKENS")]
    prompt: Vec<usize>,
    /// Numbers of tokens to generate
    #[arg(long = "gen", value_delimiter = ',', default_value = "128", value_name = "TOKENS")]
    generate: Vec<usize>,
    /// Prompt lengths to generate after
    #[arg(long, value_delimiter = ',', default_value = "0", value_name = "TOKENS")]
    depth: Vec<usize>,
    /// Measurements per cell
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Print an array of rows for programs
    #[arg(long)]
    json: bool,
    /// Print a table in Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Write the measurements with model and machine into a file, after showing it; nothing is sent
    #[arg(long, value_name = "FILE")]
    submit: Option<PathBuf>,
    #[command(flatten)]
    load: LoadArgs,
}

/// What is measured, and the measurements.
#[derive(Debug, Serialize)]
struct Row {
    model: String,
    kind: Kind,
    n_prompt: usize,
    n_gen: usize,
    depth: usize,
    threads: usize,
    /// Median.
    tok_s: f64,
    tok_s_runs: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Prefill,
    Decode,
}

/// One cell of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    kind: Kind,
    n_prompt: usize,
    n_gen: usize,
    depth: usize,
}

pub(super) fn run(args: &Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    let path = super::resolve(&args.model, env)?;
    let opened = Opened::new(&path, &args.load, Crowd::ONE)?;
    let cells = cells(args);
    let longest = cells.iter().map(|cell| cell.n_prompt.max(cell.depth) + cell.n_gen + 1).max();
    if longest.is_some_and(|longest| longest > opened.plan.context) {
        bail!(
            "the longest cell needs {} tokens and the context is {}: lower --prompt, --depth or --gen",
            longest.unwrap_or(0),
            opened.plan.context
        );
    }
    let mut bench = Bench::new(&opened, &args.load)?;
    let threads = args.load.options().n_threads();
    let meter = Meter::steps("measuring", cells.len() as u64 * u64::from(args.runs + 1));
    let mut rows = Vec::new();
    for cell in cells {
        let mut tok_s_runs = Vec::new();
        for run in 0..=args.runs {
            let tok_s = bench.measure(cell)?;
            meter.advance(1);
            // The first one warms up.
            if run > 0 {
                tok_s_runs.push(tok_s);
            }
        }
        rows.push(Row {
            model: load::model_id(&args.model),
            kind: cell.kind,
            n_prompt: cell.n_prompt,
            n_gen: cell.n_gen,
            depth: cell.depth,
            threads,
            tok_s: lab::stats::median(&tok_s_runs),
            tok_s_runs,
        });
    }
    drop(meter);
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
    } else if args.markdown {
        print_markdown(&rows, out)?;
    } else {
        print_table(&rows, out)?;
    }
    if let Some(path) = &args.submit {
        let text = submit::Payload::of(&rows, &opened).text()?;
        eprintln!("{text}");
        submit::write(path, &text)?;
    }
    Ok(())
}

fn cells(args: &Args) -> Vec<Cell> {
    let prefill = args.prompt.iter().filter(|&&n| n > 0);
    let prefill = prefill.map(|&n_prompt| Cell::prefill(n_prompt));
    let decode = args.depth.iter().flat_map(|&depth| {
        let lengths = args.generate.iter().filter(|&&n| n > 0);
        lengths.map(move |&n_gen| Cell::decode(n_gen, depth))
    });
    prefill.chain(decode).collect()
}

impl Cell {
    /// Reading a prompt.
    pub(super) fn prefill(n_prompt: usize) -> Cell {
        Cell { kind: Kind::Prefill, n_prompt, n_gen: 0, depth: 0 }
    }

    /// Writing after `depth` tokens.
    pub(super) fn decode(n_gen: usize, depth: usize) -> Cell {
        Cell { kind: Kind::Decode, n_prompt: 0, n_gen, depth }
    }
}

/// A loaded model whose speed is measured.
pub(super) struct Bench {
    engine: Handle,
    vocab: usize,
    /// Prompts so far.
    prompts: usize,
    state: u64,
}

impl Bench {
    /// Loads it.
    pub(super) fn new(opened: &Opened, load: &LoadArgs) -> Result<Bench> {
        let engine = opened.engine(&load.device()?)?;
        Ok(Bench { engine, vocab: opened.spec.vocab, prompts: 0, state: 0x9e37_79b9_7f4a_7c15 })
    }

    /// Tokens per second of one run.
    pub(super) fn measure(&mut self, cell: Cell) -> Result<f64> {
        match cell.kind {
            Kind::Prefill => {
                let usage = self.answer(cell.n_prompt, 1)?;
                Ok(cell.n_prompt as f64 / (usage.prefill_ms / 1e3))
            }
            // The first token comes out of the prompt's last pass, so one more is generated.
            Kind::Decode => {
                let usage = self.answer(cell.depth.max(1), cell.n_gen + 1)?;
                Ok(cell.n_gen as f64 / (usage.decode_ms / 1e3))
            }
        }
    }

    fn answer(&mut self, n_prompt: usize, max_tokens: usize) -> Result<Usage> {
        let (sink, answer) = engine::answer();
        // No two begin alike, or the prefix cache would have a token of the later one.
        let first = (self.prompts % self.vocab) as u32;
        self.prompts += 1;
        let prompt = (0..n_prompt).map(|i| if i == 0 { first } else { self.random_token() });
        let prompt = prompt.collect();
        self.engine.submit(Request {
            prompt,
            max_tokens,
            sampling: Sampling::default(),
            stop_tokens: Vec::new(),
            logprobs: None,
            constraint: None,
            priority: 0,
            timeout: None,
            pin: 0,
            marks: Vec::new(),
            sink: Box::new(sink),
        })?;
        for event in answer {
            match event {
                Event::Done { usage, .. } if usage.cached_tokens > 0 => {
                    bail!("the prefix cache answered, so this was no measurement")
                }
                Event::Done { usage, .. } => return Ok(usage),
                Event::Failed(failure) => bail!(failure),
                _ => (),
            }
        }
        bail!("the engine stopped")
    }

    /// SplitMix64: different in every run, the same in every process.
    fn random_token(&mut self) -> u32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.state;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % self.vocab as u64) as u32
    }
}

fn print_table(rows: &[Row], out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(
        out,
        "{:<8} {:>7} {:>7} {:>7} {:>8} {:>10}   range",
        "", "prompt", "gen", "depth", "threads", "tok/s"
    )?;
    for row in rows {
        let kind = match row.kind {
            Kind::Prefill => "prefill",
            Kind::Decode => "decode",
        };
        let low = row.tok_s_runs.iter().copied().fold(f64::INFINITY, f64::min);
        let high = row.tok_s_runs.iter().copied().fold(0.0, f64::max);
        writeln!(
            out,
            "{kind:<8} {:>7} {:>7} {:>7} {:>8} {:>10.2}   {low:.2} to {high:.2}",
            row.n_prompt, row.n_gen, row.depth, row.threads, row.tok_s
        )?;
    }
    Ok(())
}

/// Names of tests are those of llama-bench: `pp512`, `tg128 @ d2048`.
fn print_markdown(rows: &[Row], out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "| model | threads | test | tok/s |")?;
    writeln!(out, "| --- | ---: | ---: | ---: |")?;
    for row in rows {
        let test = match (row.kind, row.depth) {
            (Kind::Prefill, _) => format!("pp{}", row.n_prompt),
            (Kind::Decode, 0) => format!("tg{}", row.n_gen),
            (Kind::Decode, depth) => format!("tg{} @ d{depth}", row.n_gen),
        };
        let sd = lab::stats::sd(&row.tok_s_runs);
        let (model, threads, tok_s) = (&row.model, row.threads, row.tok_s);
        writeln!(out, "| {model} | {threads} | {test} | {tok_s:.2} ± {sd:.2} |")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            model: "m".to_owned(),
            kind: Kind::Prefill,
            n_prompt: 512,
            n_gen: 0,
            depth: 0,
            threads: 2,
            tok_s: 1.5,
            tok_s_runs: vec![1.5],
        }
    }

    #[test]
    fn a_table_in_markdown() {
        let decode = Row { kind: Kind::Decode, n_gen: 64, depth: 2048, ..row() };
        let mut text = Vec::new();
        print_markdown(&[row(), decode], &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.ends_with(
            "| m | 2 | pp512 | 1.50 ± 0.00 |\n| m | 2 | tg64 @ d2048 | 1.50 ± 0.00 |\n"
        ));
    }

    #[test]
    fn rows_have_the_promised_shape() {
        let row = row();
        let expected = r#"{"model":"m","kind":"prefill","n_prompt":512,"n_gen":0,"depth":0,"threads":2,"tok_s":1.5,"tok_s_runs":[1.5]}"#;
        assert_eq!(serde_json::to_string(&row).unwrap(), expected);
    }
}
