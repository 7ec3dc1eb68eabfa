//! From a path to something that answers: checkpoint, recipe, device, engine, tokenizer. The one
//! place where a device is named.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use backend::BLOCK;
use engine::{Executor, ExecutorShape, Limits, ModelExecutor};
use models::{Decoder, ModelSpec};
use weights::{Checkpoint, TokenizerFile, gguf};

use crate::disk_cache::{DiskCache, Identity};
use crate::machine;
use crate::progress::Meter;
use crate::store::catalog::{self, ModelName, Recommended};

/// Choices that every command which loads a model has.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct LoadArgs {
    /// Threads that compute [default: one per physical core]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<usize>,
    /// Tokens of prompt and answer together [default: what the model was made for, if it fits]
    #[arg(long, value_name = "N")]
    pub(crate) context: Option<usize>,
    /// Memory for keys and values, in MiB [default: a quarter of what is free, at most 4 contexts]
    #[arg(long, value_name = "MIB")]
    pub(crate) kv_memory: Option<u64>,
    /// Multiply with f32 activations instead of 8-bit ones: slower, for checking
    #[arg(long)]
    pub(crate) exact_activations: bool,
}

/// More threads than this only stand in each other's way, unless the machine has more processors.
const MANY_THREADS: usize = 16;

fn threads(text: &str) -> Result<usize, String> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let most = processors.max(MANY_THREADS);
    match text.parse() {
        Ok(n) if (1..=most).contains(&n) => Ok(n),
        _ => Err(format!("must be 1 to {most}; this machine has {processors} processors")),
    }
}

impl LoadArgs {
    /// The device that was asked for.
    pub(crate) fn device(&self) -> cpu::Options {
        cpu::Options {
            threads: self.threads.unwrap_or(0),
            activations: match self.exact_activations {
                true => cpu::Activations::Exact,
                false => cpu::Activations::Int8,
            },
            isa: None,
        }
    }
}

/// How many requests are worked on at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    /// Sequences per pass.
    pub(crate) seqs: usize,
    /// Requests that may wait.
    pub(crate) queue: usize,
    /// How long a pass may take while answers are flowing.
    pub(crate) stall_target: Option<Duration>,
}

/// A checkpoint whose family is known.
pub(crate) struct Opened {
    /// The files.
    pub(crate) checkpoint: Checkpoint,
    /// The recipe, for the context that will be served.
    pub(crate) spec: ModelSpec,
    /// Tokens of prompt and answer together.
    pub(crate) context: usize,
    /// Where cached blocks are kept beyond memory. `None`: nowhere.
    pub(crate) disk: Option<DiskCache>,
    /// KV blocks to make room for.
    n_blocks: usize,
}

/// Rows of one pass: enough to use the arithmetic units, few enough to keep streams flowing.
const MAX_ROWS: usize = 256;

impl Opened {
    /// Opens the files and plans the memory. Loads nothing yet.
    pub(crate) fn new(path: &Path, args: &LoadArgs) -> Result<Opened> {
        let checkpoint = Checkpoint::open(path)?;
        let made_for = models::recipe(&checkpoint.config)
            .with_context(|| format!("cannot run the model at {}", path.display()))?;
        let asked = args.context.unwrap_or(made_for.max_positions);
        if asked == 0 || asked > made_for.max_positions {
            bail!(
                "--context {asked} is out of range: this model was made for 1 to {} tokens",
                made_for.max_positions
            );
        }
        let budget = match args.kv_memory {
            Some(mib) => mib.saturating_mul(1 << 20),
            None => machine::available_memory() / 4,
        };
        let per_block = made_for.kv_bytes_per_block().max(1) as u64;
        let fits = usize::try_from(budget / per_block).unwrap_or(usize::MAX);
        let per_context = asked.div_ceil(BLOCK);
        if fits == 0 || (args.context.is_some() && fits < per_context) {
            bail!(
                "{asked} tokens of context take {} of keys and values, and the budget is {}: \
                 lower --context or raise --kv-memory",
                machine::human_bytes(per_context as u64 * per_block),
                machine::human_bytes(budget),
            );
        }
        let n_blocks = match args.kv_memory {
            Some(_) => fits,
            None => fits.min(4 * per_context),
        };
        let context = asked.min(n_blocks * BLOCK);
        let spec = models::recipe_for_context(&checkpoint.config, context)?;
        Ok(Opened { checkpoint, spec, context, disk: None, n_blocks })
    }

    /// Gives the weights to the CPU.
    pub(crate) fn executor(
        &self,
        args: &LoadArgs,
        shape: ExecutorShape,
    ) -> Result<Box<dyn Executor>> {
        let device = cpu::Cpu::new(&args.device());
        let meter = Meter::steps("loading", self.spec.layers.len() as u64);
        let decoder =
            Decoder::load_with_progress(&self.spec, &self.checkpoint, &device, &mut |done, _| {
                meter.set(done as u64)
            })?;
        drop(meter);
        for note in self.checkpoint.warnings().iter().chain(decoder.notes()) {
            eprintln!("note: {note}");
        }
        Ok(Box::new(ModelExecutor::new(device, decoder, shape)))
    }

    /// An engine on its thread.
    pub(crate) fn engine(&self, args: &LoadArgs, crowd: Crowd) -> Result<engine::Handle> {
        let shape = ExecutorShape {
            n_blocks: self.n_blocks,
            max_rows: MAX_ROWS.max(crowd.seqs),
            max_want: crowd.seqs,
        };
        let executor = self.executor(args, shape)?;
        let limits = Limits {
            rows: shape.max_rows,
            seqs: crowd.seqs,
            queue: crowd.queue,
            context: self.context,
            stall_target: crowd.stall_target,
        };
        let Some(disk) = &self.disk else { return Ok(engine::start(executor, limits)) };
        let activations = args.device().activations;
        let identity = Identity { checkpoint: &self.checkpoint, spec: &self.spec, activations };
        Ok(engine::start_with_disk(executor, limits, &disk.of(&identity)))
    }

    /// Blocks of KV memory that were planned.
    pub(crate) fn kv_bytes(&self) -> u64 {
        self.n_blocks as u64 * self.spec.kv_bytes_per_block() as u64
    }

    /// The model's tokenizer.
    pub(crate) fn tokenizer(&self) -> Result<text::Tokenizer> {
        let files = &self.checkpoint.text;
        let Some(tokenizer) = &files.tokenizer else {
            bail!("the model has no tokenizer.json; copy the one it was trained with beside it");
        };
        let beside = |tokenizer_json| text::TokenizerFiles {
            tokenizer_json,
            config: files.tokenizer_config.as_ref(),
            special_tokens_map: files.special_tokens_map.as_ref(),
        };
        Ok(match tokenizer {
            TokenizerFile::Json(json) => text::Tokenizer::from_files(beside(json))?,
            TokenizerFile::Gguf { frame, vocabulary } => {
                let joins = match vocabulary.joins() {
                    gguf::Joins::Ranked(pairs) => text::Joins::Ranked(pairs),
                    gguf::Joins::Scored(best_first) => text::Joins::Scored(best_first),
                };
                let vocabulary = text::Vocabulary { tokens: Box::new(vocabulary.tokens()), joins };
                text::Tokenizer::from_vocabulary(beside(frame), vocabulary)?
            }
        })
    }

    /// The model's chat template, if it has one.
    pub(crate) fn template(&self, tokenizer: &text::Tokenizer) -> Result<Option<text::Template>> {
        let files = &self.checkpoint.text;
        let Some(default) = files.chat_template.as_deref() else { return Ok(None) };
        let sources = text::TemplateFiles { default, tool_use: files.tool_template.as_deref() };
        Ok(Some(text::Template::new(sources, tokenizer)?))
    }

    /// Sampling settings for requests that bring none: what the model's files recommend, else the
    /// alias table, else our own.
    fn defaults(&self, id: &str) -> server::Defaults {
        let generation_config = self.checkpoint.generation_config.as_ref();
        let defaults = server::Defaults::from_generation_config(generation_config);
        let says = |key| generation_config.is_some_and(|config| config.get(key).is_some());
        let entry = catalog::entries().into_iter().find(|entry| entry.alias == id);
        match entry.and_then(|entry| entry.sampling) {
            Some(Recommended { temperature, top_p }) if !says("temperature") => {
                server::Defaults { temperature, top_p, ..defaults }
            }
            _ => defaults,
        }
    }

    /// Everything the server needs, under the name `id`.
    pub(crate) fn serve(
        &self,
        id: String,
        aliases: Vec<String>,
        args: &LoadArgs,
        crowd: Crowd,
    ) -> Result<server::Model> {
        let tokenizer = self.tokenizer()?;
        let template = self.template(&tokenizer)?;
        let generation_config = self.checkpoint.generation_config.as_ref();
        let stop_tokens = text::eos_ids(
            &tokenizer,
            text::EosSources {
                config: Some(&self.checkpoint.config),
                generation_config,
                template: template.as_ref().map(|template| template.source(&[])),
            },
        );
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let defaults = self.defaults(&id);
        Ok(server::Model {
            id,
            aliases,
            engine: self.engine(args, crowd)?,
            tokenizer: Arc::new(tokenizer),
            template,
            stop_tokens,
            defaults,
            context: self.context,
            created: since.map_or(0, |since| since.as_secs()),
        })
    }
}

/// What a model is called in answers: its short name, or the last part of its path.
pub(crate) fn model_id(name: &str) -> String {
    match ModelName::parse(name) {
        Ok(ModelName::Alias(entry)) => entry.alias,
        Ok(ModelName::Local(path)) => {
            let path = path.canonicalize().unwrap_or(path);
            path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
        }
        _ => name.to_owned(),
    }
}
