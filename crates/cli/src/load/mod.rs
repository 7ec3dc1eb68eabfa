//! From a path to something that answers: checkpoint, recipe, device, engine, tokenizer.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use backend::KvFormat;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use engine::{Limits, TokenId};
use models::{Footprint, ModelSpec};
use weights::{Checkpoint, TokenizerFile, gguf};

use crate::disk_cache::{DiskCache, Identity};
use crate::size::Size;
use crate::store::catalog::{self, ModelName, Recommended};

mod device;
mod files;
mod plan;

#[cfg(with_mlx)]
pub(crate) use device::open_mlx;
pub(crate) use device::{Choice, Device, about_mlx};
pub(crate) use files::{FileLoader, find_models};
pub(crate) use plan::{Budget, DoesNotFit, MAX_ROWS, Plan, Wanted};

/// Choices that every command which loads a model has.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct LoadArgs {
    /// What computes
    #[arg(long, value_enum, default_value_t)]
    pub(crate) device: Choice,
    /// MLX's C library [default: where Homebrew puts it]
    #[cfg(with_mlx)]
    #[arg(long, value_name = "FILE", env = "HEARTH_MLX")]
    pub(crate) mlx_library: Option<std::path::PathBuf>,
    /// Threads that compute [default: one per physical core]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<usize>,
    /// Tokens of prompt and answer together [default: what the model was made for, if it fits]
    #[arg(long, value_name = "N")]
    pub(crate) context: Option<usize>,
    /// Memory for keys and values of a model, such as 512MiB or 20% of the limit [default: a quarter
    /// of the limit, at most 4 contexts]
    #[arg(long, value_name = "SIZE")]
    pub(crate) kv_memory: Option<Size>,
    /// How keys and values are kept: in 16 bits (i16, with a scale, is more exact than f16, and faster), or
    /// in 8 (q8 takes 40 % less memory and is a little less exact) [default: i16; with MLX f16]
    #[arg(long, value_name = "FORMAT", value_parser = kv_formats())]
    pub(crate) kv_format: Option<KvFormat>,
    /// Rows of one pass, which is how long prompts are cut: more of them may be faster, and take more
    /// memory. Answers do not depend on it [default: 256]
    #[arg(long, value_name = "N", value_parser = pass_rows)]
    pub(crate) pass_rows: Option<usize>,
    /// Memory for everything, mapped weights included, such as 8GiB or 80% of the machine's
    /// [default: 90% of what is free]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_limit: Option<Size>,
    /// What activations are on MLX
    #[cfg(with_mlx)]
    #[arg(long, value_enum, default_value_t)]
    pub(crate) mlx_precision: device::Precision,
    /// Multiply with f32 activations instead of 8-bit ones: slower, for checking
    #[arg(long)]
    pub(crate) exact_activations: bool,
    /// Machines that share every model, where there are several.
    #[cfg(with_mlx)]
    #[arg(skip)]
    pub(crate) shared: Option<crate::ranks::Shared>,
}

/// More threads than this only stand in each other's way, unless the machine has more processors.
const MANY_THREADS: usize = 16;

/// Numbers of threads that may be asked for.
pub(crate) fn threads_range() -> RangeInclusive<usize> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    1..=processors.max(MANY_THREADS)
}

fn threads(text: &str) -> Result<usize, String> {
    let range = threads_range();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    match text.parse() {
        Ok(n) if range.contains(&n) => Ok(n),
        _ => Err(format!("must be 1 to {}; this machine has {processors} processors", range.end())),
    }
}

/// Rows of one pass that may be asked for.
pub(crate) const PASS_ROWS: RangeInclusive<usize> = 16..=8192;

fn pass_rows(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if PASS_ROWS.contains(&n) => Ok(n),
        _ => Err(format!("must be {} to {}", PASS_ROWS.start(), PASS_ROWS.end())),
    }
}

fn kv_formats() -> impl TypedValueParser<Value = KvFormat> {
    let names = KvFormat::ALL.map(KvFormat::name);
    PossibleValuesParser::new(names).map(|name| KvFormat::named(&name).unwrap_or_default())
}

impl LoadArgs {
    /// The device that was asked for.
    pub(crate) fn device(&self) -> Result<Device> {
        Device::new(self, None)
    }

    /// The same, with so many threads where that means anything.
    pub(crate) fn device_with(&self, threads: usize) -> Result<Device> {
        Device::new(self, Some(threads))
    }

    /// How keys and values are kept.
    pub(crate) fn kv_format(&self) -> KvFormat {
        self.kv_format.unwrap_or_else(|| device::default_kv_format(self))
    }

    /// Whether several machines share every model.
    pub(crate) fn is_shared(&self) -> bool {
        #[cfg(with_mlx)]
        return self.shared.is_some();
        #[cfg(not(with_mlx))]
        false
    }

    /// What this machine has of a model, and what that takes. Of several machines it is the first, and
    /// others have as much room.
    fn own(&self, model: &ModelSpec, checkpoint: &Checkpoint) -> Result<(ModelSpec, Footprint)> {
        #[cfg(with_mlx)]
        if let Some(shared) = self.shared {
            let piece = shared.piece(model, 0)?;
            return Ok((piece.spec(model)?, piece.footprint(model, checkpoint)?));
        }
        Ok((model.clone(), Footprint::of(model, checkpoint)?))
    }

    /// How the processor works.
    pub(crate) fn options(&self) -> cpu::Options {
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
    /// How long a flowing answer may wait for its next token.
    pub(crate) stall_target: Option<Duration>,
}

impl Crowd {
    /// One request after the other.
    pub(crate) const ONE: Crowd = Crowd { seqs: 1, queue: 1, stall_target: None };
}

/// Requests that are worked on at once unless told otherwise.
pub(crate) const DEFAULT_SEQS: u16 = 16;

/// A checkpoint whose family is known.
pub(crate) struct Opened {
    /// The files.
    pub(crate) checkpoint: Checkpoint,
    /// The recipe, for the context that will be served.
    pub(crate) spec: ModelSpec,
    /// What its weights take.
    pub(crate) footprint: Footprint,
    /// The memory it gets.
    pub(crate) plan: Plan,
    /// Where cached blocks are kept beyond memory. `None`: nowhere.
    pub(crate) disk: Option<DiskCache>,
    crowd: Crowd,
}

/// Bytes that a tokenizer takes in memory for each byte of its files, at most. Measured on GGUF
/// files of 49,000 and 152,000 tokens: 2.0 and 2.2.
const TEXT_BYTES_PER_FILE_BYTE: u64 = 3;

impl Opened {
    /// Opens the files and plans the memory, as the only model here. Loads nothing yet.
    pub(crate) fn new(path: &Path, args: &LoadArgs, crowd: Crowd) -> Result<Opened> {
        Opened::within(Budget::of(args), path, args, crowd)
    }

    /// [`Opened::new`], within a budget that was found before.
    pub(crate) fn within(
        budget: Budget,
        path: &Path,
        args: &LoadArgs,
        crowd: Crowd,
    ) -> Result<Opened> {
        match Opened::planned(budget, path, args, crowd)? {
            (opened, None) => Ok(opened),
            (_, Some(why)) => Err(why.into()),
        }
    }

    /// [`Opened::within`], also of a model that does not fit: with the memory it would need, and why
    /// it cannot have it.
    pub(crate) fn planned(
        budget: Budget,
        path: &Path,
        args: &LoadArgs,
        crowd: Crowd,
    ) -> Result<(Opened, Option<DoesNotFit>)> {
        let checkpoint = Checkpoint::open(path)?;
        let made_for = models::recipe(&checkpoint.config)
            .with_context(|| format!("cannot run the model at {}", path.display()))?
            .with_kv_format(args.kv_format());
        let most = made_for.max_positions;
        if let Some(asked) = args.context.filter(|asked| !(1..=most).contains(asked)) {
            bail!("--context {asked} is out of range: this model was made for 1 to {most} tokens");
        }
        let (own, footprint) = args.own(&made_for, &checkpoint)?;
        let text_files = checkpoint.text.tokenizer.as_ref().map_or(0, |t| t.n_bytes() as u64);
        let text_bytes = text_files * TEXT_BYTES_PER_FILE_BYTE;
        let wanted = Wanted { spec: &own, footprint, text_bytes, crowd };
        let (plan, why) = match Plan::new(&wanted, args, budget) {
            Ok(plan) => (plan, None),
            Err(why) => (*why.asked, Some(why)),
        };
        let spec = models::recipe_for_context(&checkpoint.config, plan.context)?
            .with_kv_format(args.kv_format());
        let opened = Opened { checkpoint, spec, footprint, plan, disk: None, crowd };
        Ok((opened, why))
    }

    /// An engine on its thread.
    pub(crate) fn engine(&self, device: &Device) -> Result<engine::Handle> {
        let shape = self.plan.shape;
        let executor = device.executor(self, shape)?;
        let limits = Limits {
            rows: shape.max_rows,
            seqs: self.crowd.seqs,
            queue: self.crowd.queue,
            context: self.plan.context,
            stall_target: self.crowd.stall_target,
        };
        let Some(disk) = &self.disk else { return Ok(engine::start(executor, limits)) };
        let arithmetic = device.arithmetic();
        let identity =
            Identity { checkpoint: &self.checkpoint, spec: &self.spec, arithmetic: &arithmetic };
        Ok(engine::start_with_disk(executor, limits, &disk.of(&identity)))
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

    /// Tokens that end an answer.
    pub(crate) fn stop_tokens(
        &self,
        tokenizer: &text::Tokenizer,
        template: Option<&text::Template>,
    ) -> Vec<TokenId> {
        let sources = text::EosSources {
            config: Some(&self.checkpoint.config),
            generation_config: self.checkpoint.generation_config.as_ref(),
            template: template.map(|template| template.source(&[])),
        };
        text::eos_ids(tokenizer, sources)
    }

    /// How tokens are chosen: what the model's files say. Settings of which they say nothing are those of the
    /// alias table, else our own.
    pub(crate) fn generation(
        &self,
        id: &str,
        stop_tokens: &[TokenId],
    ) -> Result<server::Generation> {
        let generation_config = self.checkpoint.generation_config.as_ref();
        let mut generation = server::Generation::read(server::GenerationFiles {
            generation_config,
            config: &self.checkpoint.config,
            vocab: self.spec.vocab,
            stop_tokens,
        })?;
        let says = |key| generation_config.is_some_and(|config| config.get(key).is_some());
        let entry = catalog::entries().into_iter().find(|entry| entry.alias == id);
        if let Some(Recommended { temperature, top_p }) = entry.and_then(|entry| entry.sampling)
            && !says("temperature")
            && !says("do_sample")
        {
            generation.defaults.temperature = temperature;
            generation.defaults.top_p = top_p;
        }
        Ok(generation)
    }

    /// Everything the server needs.
    pub(crate) fn serve(&self, name: &server::Name, device: &Device) -> Result<server::Model> {
        let tokenizer = self.tokenizer()?;
        let template = self.template(&tokenizer)?;
        let stop_tokens = self.stop_tokens(&tokenizer, template.as_ref());
        let generation = self.generation(&name.id, &stop_tokens)?;
        for note in &generation.notes {
            eprintln!("note: {note}");
        }
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let tokenizer = Arc::new(tokenizer);
        let engine = self.engine(device)?;
        let vocab = engine.bounds().vocab;
        Ok(server::Model {
            id: name.id.clone(),
            aliases: name.aliases.clone(),
            engine,
            shapes: server::Shapes::new(Arc::clone(&tokenizer), vocab, stop_tokens.clone()),
            tokenizer,
            template,
            stop_tokens,
            defaults: generation.defaults,
            suppressed: Arc::new(generation.suppressed),
            context: self.plan.context,
            context_limit: self.plan.context_limit,
            kv_format: self.spec.kv_format.name(),
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
