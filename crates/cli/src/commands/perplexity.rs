//! `hearth perplexity`: how well a model predicts a text, and what 8-bit activations, or 8-bit keys
//! and values, cost.

mod npy;
mod score;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use backend::{BLOCK, Batch, KvFormat, Span, TokenId};
use engine::{Executor, ExecutorShape};

use self::score::{Comparison, Score};
use crate::env::Environment;
use crate::load::{Crowd, LoadArgs, Opened};
use crate::progress::Meter;

const EXAMPLES: &str = "\
Examples:
  hearth perplexity default README.md
  hearth perplexity ./model.gguf book.txt --window 512 --compare-exact
  hearth perplexity default README.md --kv-format q8 --compare-f16-kv
  hearth perplexity ./model-q4.gguf book.txt --against ./model-q8.gguf";

/// Measure how well a model predicts a text
///
/// Reads the text in windows of --window tokens that know nothing of each other, and scores every
/// token of a window but the first. A file that ends in .json is read as a list of token ids.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Model to measure
    model: String,
    /// Text to predict
    file: PathBuf,
    /// Tokens of one window
    #[arg(long, default_value_t = 1024, value_name = "N")]
    window: usize,
    /// Read no more than this many tokens
    #[arg(long, value_name = "N")]
    tokens: Option<usize>,
    /// Also run with f32 activations and compare: perplexity, KL divergence, top-1 agreement
    #[arg(long, conflicts_with = "exact_activations")]
    compare_exact: bool,
    /// Also run with keys and values in f16 and compare likewise
    #[arg(long, conflicts_with = "compare_exact")]
    compare_f16_kv: bool,
    /// Also run another format of the same model and compare likewise
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["compare_exact", "compare_f16_kv"])]
    against: Option<String>,
    /// Write the logits of all positions, f32 [tokens, vocabulary], in NumPy's format
    #[arg(long, value_name = "FILE")]
    logits: Option<PathBuf>,
    #[command(flatten)]
    load: LoadArgs,
}

impl Args {
    /// What the model is compared with: its name, and how it is loaded.
    fn against(&self) -> Option<(&str, LoadArgs)> {
        let load = self.load.clone();
        if self.compare_exact {
            Some(("f32 activations", LoadArgs { exact_activations: true, ..load }))
        } else if self.compare_f16_kv {
            Some(("f16 keys and values", LoadArgs { kv_format: Some(KvFormat::F16), ..load }))
        } else {
            self.against.as_deref().map(|model| (model, load))
        }
    }
}

/// Rows per pass. All of them are wanted, so this bounds the memory for logits.
const ROWS: usize = 64;

pub(super) fn run(args: &Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    if args.compare_f16_kv && args.load.kv_format() == KvFormat::F16 {
        bail!(
            "--compare-f16-kv compares with f16, which is what --kv-format says: leave that out, or say q8"
        );
    }
    let path = super::resolve(&args.model, env)?;
    let opened = Opened::new(&path, &args.load, Crowd::ONE)?;
    let mut tokens = read_tokens(&args.file, &opened)?;
    tokens.truncate(args.tokens.unwrap_or(usize::MAX));
    if tokens.len() < 2 {
        bail!("{} holds fewer than two tokens: there is nothing to predict", args.file.display());
    }
    let window = args.window.clamp(2, opened.plan.context);
    let mut model = Model::new(&opened, &args.load, window)?;
    let against = args.against();
    let mut reference = match &against {
        Some((_, load)) => {
            let other = args.against.as_ref().map(|name| super::resolve(name, env)).transpose()?;
            let other = Opened::new(other.as_ref().unwrap_or(&path), load, Crowd::ONE)?;
            if other.spec.vocab != opened.spec.vocab {
                let (own, others) = (opened.spec.vocab, other.spec.vocab);
                bail!("the models have other vocabularies, {own} and {others}: nothing to compare");
            }
            Some(Model::new(&other, load, window)?)
        }
        None => None,
    };
    let vocab = opened.spec.vocab;
    let mut file = match &args.logits {
        Some(path) => Some(npy::Writer::create(path, [tokens.len(), vocab])?),
        None => None,
    };

    let (mut score, mut reference_score) = (Score::default(), Score::default());
    let mut comparison = Comparison::default();
    let meter = Meter::steps("reading", tokens.len() as u64);
    for window in tokens.chunks(window) {
        for start in (0..window.len()).step_by(ROWS) {
            let rows = &window[start..window.len().min(start + ROWS)];
            let logits = model.run(rows, start)?;
            let next = &window[start + 1..window.len().min(start + ROWS + 1)];
            score.add_rows(logits.chunks_exact(vocab), next);
            if let Some(reference) = &mut reference {
                let wanted = reference.run(rows, start)?;
                reference_score.add_rows(wanted.chunks_exact(vocab), next);
                for (p, q) in wanted.chunks_exact(vocab).zip(logits.chunks_exact(vocab)) {
                    comparison.add(p, q);
                }
            }
            if let Some(file) = &mut file {
                file.append(logits)?;
            }
            meter.advance(rows.len() as u64);
        }
    }
    drop(meter);
    if let Some(file) = file {
        file.finish()?;
    }
    writeln!(out, "{score}")?;
    if let Some((what, _)) = against {
        writeln!(out, "with {what}: {reference_score}")?;
        let own = match (args.compare_exact, &args.against) {
            (true, _) => "8-bit",
            (false, Some(_)) => args.model.as_str(),
            (false, None) => args.load.kv_format().name(),
        };
        writeln!(out, "{own} against {what}: {comparison}")?;
    }
    Ok(())
}

fn read_tokens(path: &Path, opened: &Opened) -> Result<Vec<TokenId>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read {} as text", path.display()))?;
    let tokens: Vec<TokenId> = if path.extension().is_some_and(|extension| extension == "json") {
        serde_json::from_str(&text)
            .with_context(|| format!("{} is not a list of token ids", path.display()))?
    } else {
        opened.tokenizer()?.encode_raw(&text)?
    };
    // Of the text too: a tokenizer may be another model's.
    let vocab = opened.spec.vocab;
    if let Some(bad) = tokens.iter().find(|&&token| token as usize >= vocab) {
        bail!("token {bad} is outside of the model's vocabulary of {vocab}");
    }
    Ok(tokens)
}

/// An executor that reads one window at a time.
struct Model {
    executor: Box<dyn Executor>,
    logits: Vec<f32>,
}

impl Model {
    fn new(opened: &Opened, load: &LoadArgs, window: usize) -> Result<Model> {
        let n_blocks = window.div_ceil(BLOCK);
        let n_windowed = n_blocks;
        let shape =
            ExecutorShape { n_blocks, n_windowed, n_slots: 2, max_rows: ROWS, max_want: ROWS };
        let executor = load.device()?.executor(opened, shape)?;
        Ok(Model { executor, logits: Vec::new() })
    }

    /// Logits after each of `tokens`, which stand at position `start` of the window.
    fn run(&mut self, tokens: &[TokenId], start: usize) -> Result<&[f32]> {
        let n_blocks = (start + tokens.len()).div_ceil(BLOCK) as u32;
        let mut span = Span::new(0..tokens.len(), start, (0..n_blocks).collect());
        // From one slot to the other and back, if the model has states.
        let chunk = (start / ROWS) as u32;
        span.state_in = (start > 0).then_some(chunk % 2);
        span.states_out = vec![(tokens.len() - 1, (chunk + 1) % 2)];
        let batch = Batch {
            tokens: tokens.to_vec(),
            spans: vec![span],
            want: (0..tokens.len() as u32).collect(),
        };
        self.executor.step(&batch, &mut self.logits)?;
        Ok(&self.logits)
    }
}
