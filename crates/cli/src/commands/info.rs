//! `hearth info`: what a model is made of and what it needs, without loading it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use anyhow::Result;
use backend::{BLOCK, KvGroup};
use engine::Shares;
use models::ModelSpec;
use models::modules::{ExpertLinear, Module};
use serde::Serialize;
use server::{ContextLimit, Generation};
use weights::{Checkpoint, Format, GgufType, Matrix, Packing};

use crate::env::Environment;
use crate::load::{Budget, Crowd, DEFAULT_SEQS, LoadArgs, Opened, model_id};
use crate::machine::{self, human_bytes};
use crate::store::catalog::DEFAULT_ALIAS;

const EXAMPLES: &str = "\
Examples:
  hearth info
  hearth info ./model.gguf --context 4096";

/// Show what a model is made of and what it needs
///
/// Reads the headers of the files only.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Model to look at
    #[arg(default_value = DEFAULT_ALIAS)]
    model: String,
    /// Print an object for programs
    #[arg(long)]
    json: bool,
    /// Requests that are worked on at once
    #[arg(long, default_value_t = DEFAULT_SEQS, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    max_seqs: u16,
    #[command(flatten)]
    load: LoadArgs,
}

/// Everything worth knowing, in the order it is told.
#[derive(Serialize)]
struct Facts {
    path: String,
    format: &'static str,
    family: &'static str,
    parameters: u64,
    /// Read for one token; fewer where there are experts.
    active_parameters: u64,
    layers: usize,
    hidden: usize,
    vocabulary: usize,
    /// What the files have to guess tokens ahead with, if anything.
    draft_heads: Option<DraftHeads>,
    /// Matrices by packing.
    packings: BTreeMap<String, usize>,
    weights_bytes: u64,
    bytes_read_per_token: u64,
    trained_context: usize,
    context: usize,
    /// How keys and values are stored.
    kv_format: &'static str,
    kv_bytes_per_token: usize,
    /// Layers that see only a window, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<Window>,
    /// Cache for that many tokens of context at once.
    cache_tokens: usize,
    /// Context with keys and values in 8 bits, where that is longer because memory is short.
    #[serde(skip_serializing_if = "Option::is_none")]
    context_in_8_bits: Option<usize>,
    memory: Memory,
    /// Has a chat template.
    chats: bool,
    /// How tokens are chosen for requests that do not say.
    sampling: Sampled,
    notes: Vec<String>,
}

/// Heads that guess tokens ahead.
#[derive(Serialize)]
struct DraftHeads {
    /// How many, one for each token ahead.
    n: usize,
    parameters: u64,
    bytes: u64,
}

/// How tokens are chosen for requests that do not say.
#[derive(Serialize)]
struct Sampled {
    temperature: f32,
    top_p: f32,
    top_k: usize,
    min_p: f32,
    repetition_penalty: f32,
    /// Tokens that are never chosen, or not at some places, whatever a request says.
    suppressed_tokens: usize,
}

/// Layers that see only a window. They keep the latest positions of a request, and a few chosen ones for
/// others that begin alike.
#[derive(Clone, Copy, Serialize)]
struct Window {
    /// Positions that they see.
    positions: usize,
    /// What they take of [`Facts::kv_bytes_per_token`].
    kv_bytes_per_token: usize,
    /// What they have room for, in all.
    cache_tokens: usize,
}

/// Bytes of memory, by what they are for.
#[derive(Serialize)]
struct Memory {
    weights_mapped: u64,
    weights_copied: u64,
    /// Of layers that see everything.
    kv_per_1000_tokens: u64,
    kv_for_context: u64,
    kv: u64,
    /// Recurrent states, of running requests and kept ones, in models that have them.
    states: u64,
    /// How many states that is.
    n_states: usize,
    scratch: u64,
    text: u64,
    total: u64,
    limit: u64,
    process: u64,
    machine_total: u64,
    machine_available: u64,
    /// It can be served within the limit.
    fits: bool,
}

pub(super) fn run(args: &Args, env: &Environment, out: &mut dyn Write) -> Result<()> {
    let path = super::resolve(&args.model, env)?;
    let budget = Budget::of(&args.load);
    let crowd = Crowd { seqs: args.max_seqs.into(), queue: 0, stall_target: None };
    let (opened, does_not_fit) = Opened::planned(budget, &path, &args.load, crowd)?;
    let (spec, checkpoint) = (&opened.spec, &opened.checkpoint);
    let tokenizer = opened.tokenizer()?;
    let mut notes = checkpoint.warnings().to_vec();
    let draft_heads = draft_heads(spec, checkpoint, &mut notes);
    let template = opened.template(&tokenizer)?;
    let stop_tokens = opened.stop_tokens(&tokenizer, template.as_ref());
    let generation = opened.generation(&model_id(&args.model), &stop_tokens)?;
    notes.extend(generation.notes.iter().cloned());
    let facts = Facts {
        path: path.display().to_string(),
        format: match checkpoint.format() {
            Format::Mlx => "MLX",
            Format::HuggingFace => "Hugging Face",
            Format::Gguf => "GGUF",
            Format::Memory => "memory",
        },
        family: spec.family,
        parameters: spec.n_params(),
        active_parameters: spec.n_active_params(),
        layers: spec.layers.len(),
        hidden: spec.hidden,
        vocabulary: spec.vocab,
        draft_heads,
        packings: packings(spec, checkpoint),
        weights_bytes: opened.footprint.weight_bytes,
        bytes_read_per_token: opened.footprint.bytes_per_token,
        trained_context: models::recipe(&checkpoint.config)?.max_positions,
        context: opened.plan.context,
        kv_format: spec.kv_format.name(),
        kv_bytes_per_token: spec.kv_bytes_per_token(),
        window: Window::of(&opened),
        cache_tokens: opened.plan.shape.n_blocks * BLOCK,
        memory: Memory::of(&opened, budget, does_not_fit.is_none()),
        context_in_8_bits: match opened.plan.context_limit {
            ContextLimit::Memory { in_8_bits, .. } => in_8_bits,
            ContextLimit::Model | ContextLimit::Setting => None,
        },
        chats: template.is_some(),
        sampling: Sampled::of(&generation),
        notes,
    };
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&facts)?)?;
    } else {
        for (label, text) in facts.lines() {
            writeln!(out, "{label:<14} {text}")?;
        }
    }
    // The sum is said; what is wrong with it and what to do is the error.
    does_not_fit.map_or(Ok(()), |why| Err(why.into()))
}

/// Those that `checkpoint` has. One that is not whole is a note: the model runs without it.
fn draft_heads(
    spec: &ModelSpec,
    checkpoint: &Checkpoint,
    notes: &mut Vec<String>,
) -> Option<DraftHeads> {
    match models::stored_drafts(spec, checkpoint) {
        Ok(found) if found.n == 0 => None,
        Ok(found) => {
            Some(DraftHeads { n: found.n, parameters: found.n_params, bytes: found.n_bytes })
        }
        Err(error) => {
            notes.push(format!("the draft head is not whole: {error}"));
            None
        }
    }
}

impl Sampled {
    fn of(generation: &Generation) -> Sampled {
        let Generation { defaults, suppressed, .. } = generation;
        Sampled {
            temperature: defaults.temperature,
            top_p: defaults.top_p,
            top_k: defaults.top_k,
            min_p: defaults.min_p,
            repetition_penalty: defaults.repetition_penalty,
            suppressed_tokens: suppressed.tokens().collect::<BTreeSet<_>>().len(),
        }
    }

    /// For people: what is not off.
    fn line(&self) -> String {
        let mut parts = vec![format!("temperature {}", self.temperature)];
        if self.temperature > 0.0 {
            parts.extend((self.top_k > 0).then(|| format!("top-k {}", self.top_k)));
            parts.extend((self.top_p < 1.0).then(|| format!("top-p {}", self.top_p)));
            parts.extend((self.min_p > 0.0).then(|| format!("min-p {}", self.min_p)));
        }
        let penalty = self.repetition_penalty;
        parts.extend((penalty != 1.0).then(|| format!("repetition penalty {penalty}")));
        let n = self.suppressed_tokens;
        parts.extend((n > 0).then(|| format!("{n} tokens suppressed, always or at some places")));
        parts.join(", ")
    }
}

impl Window {
    fn of(opened: &Opened) -> Option<Window> {
        let bytes = opened.spec.group_bytes_per_block(KvGroup::Windowed);
        opened.spec.window().map(|positions| Window {
            positions,
            kv_bytes_per_token: bytes.div_ceil(BLOCK),
            cache_tokens: opened.plan.shape.n_windowed * BLOCK,
        })
    }

    /// For people.
    fn line(self) -> String {
        let bytes = |tokens: usize| human_bytes((tokens * self.kv_bytes_per_token) as u64);
        format!(
            "layers that see {} positions keep no more of a request: {} of the cache are for {} tokens \
             of theirs",
            self.positions,
            bytes(self.cache_tokens),
            self.cache_tokens,
        )
    }
}

impl Memory {
    fn of(opened: &Opened, budget: Budget, fits: bool) -> Memory {
        let (plan, machine) = (&opened.plan, machine::Memory::now());
        let per_block = opened.spec.group_bytes_per_block(KvGroup::Full);
        let blocks = plan.context.div_ceil(BLOCK);
        let one = Shares::for_one(&opened.spec, blocks, plan.shape.max_rows);
        Memory {
            weights_mapped: plan.cost.mapped,
            weights_copied: plan.cost.copied,
            kv_per_1000_tokens: 1000 * per_block.div_ceil(BLOCK) as u64,
            kv_for_context: one.bytes(&opened.spec),
            kv: plan.cost.cache,
            states: plan.cost.states,
            n_states: if plan.cost.states > 0 { plan.shape.n_slots } else { 0 },
            scratch: plan.cost.scratch,
            text: plan.text_bytes,
            total: plan.total(),
            limit: budget.limit,
            process: budget.baseline,
            machine_total: machine.total,
            machine_available: machine.available,
            fits,
        }
    }

    /// Labels and texts for people.
    fn lines(&self, context: usize, cache_tokens: usize) -> Vec<(&'static str, String)> {
        let contexts = cache_tokens as f64 / context.max(1) as f64;
        let mut lines = vec![
            (
                "cache",
                format!(
                    "{} per 1000 tokens, {} for a context of {context}",
                    human_bytes(self.kv_per_1000_tokens),
                    human_bytes(self.kv_for_context),
                ),
            ),
            (
                "",
                format!(
                    "{} in all: {cache_tokens} tokens, {contexts:.1} contexts",
                    human_bytes(self.kv)
                ),
            ),
            (
                "memory",
                format!(
                    "{}: {} of weights mapped and {} copied, {} of cache, {} to compute in, {} of text \
                     tables",
                    human_bytes(self.total),
                    human_bytes(self.weights_mapped),
                    human_bytes(self.weights_copied),
                    human_bytes(self.kv + self.states),
                    human_bytes(self.scratch),
                    human_bytes(self.text),
                ),
            ),
            (
                if self.fits { "fits" } else { "does not fit" },
                format!(
                    "in the limit of {}, of which the process takes {}; the machine has {}, {} free",
                    human_bytes(self.limit),
                    human_bytes(self.process),
                    human_bytes(self.machine_total),
                    human_bytes(self.machine_available),
                ),
            ),
        ];
        if self.states > 0 {
            let (n, states) = (self.n_states, human_bytes(self.states));
            let text = format!(
                "{states} for {n} recurrent states: two for each request, the others to go on from"
            );
            lines.insert(2, ("", text));
        }
        lines
    }
}

impl Facts {
    /// Labels and texts for people.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let bits = self.weights_bytes as f64 * 8.0 / self.parameters.max(1) as f64;
        let mut packings: Vec<_> = self.packings.iter().collect();
        packings.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        let packings: Vec<String> =
            packings.into_iter().map(|(packing, n)| format!("{n} x {packing}")).collect();
        let mut lines = vec![
            ("path", self.path.clone()),
            ("format", self.format.to_owned()),
            ("family", self.family.to_owned()),
            ("parameters", self.parameter_count()),
            ("layers", format!("{} of width {}", self.layers, self.hidden)),
            ("vocabulary", format!("{} tokens", self.vocabulary)),
            ("chats", if self.chats { "yes" } else { "no: it has no chat template" }.to_owned()),
            ("sampling", self.sampling.line()),
            (
                "weights",
                format!("{}, {bits:.2} bits per parameter", human_bytes(self.weights_bytes)),
            ),
            ("matrices", packings.join(", ")),
            ("one token", format!("reads {} of weights", human_bytes(self.bytes_read_per_token))),
            ("context", format!("{} tokens; made for {}", self.context, self.trained_context)),
        ];
        if let Some(DraftHeads { n, parameters, bytes }) = self.draft_heads {
            let (millions, bytes) = (parameters as f64 / 1e6, human_bytes(bytes));
            let text = format!("{n} with {millions:.1} million parameters, {bytes}; not used yet");
            lines.push(("draft heads", text));
        }
        lines.push(("keys, values", format!("in {}", self.kv_format)));
        if let Some(tokens) = self.context_in_8_bits {
            let text =
                format!("with --kv-format q8 the context is {tokens} tokens in the same memory");
            lines.push(("", text));
        }
        lines.extend(self.memory.lines(self.context, self.cache_tokens));
        if let Some(window) = self.window {
            let after =
                lines.iter().position(|(label, _)| *label == "cache").map_or(0, |at| at + 2);
            lines.insert(after, ("", window.line()));
        }
        lines.extend(self.notes.iter().map(|note| ("note", note.clone())));
        lines
    }

    fn parameter_count(&self) -> String {
        let millions = |n: u64| format!("{:.1} million", n as f64 / 1e6);
        if self.active_parameters < self.parameters / 2 {
            let (all, active) = (millions(self.parameters), millions(self.active_parameters));
            format!("{all}, of which one token meets {active}")
        } else {
            millions(self.parameters)
        }
    }
}

/// How many matrices there are of each packing. Experts that are stored as one stack are one.
fn packings(spec: &ModelSpec, checkpoint: &Checkpoint) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for module in spec.modules() {
        let matrix = match &module {
            Module::Linear(l) | Module::Embedding(l) => checkpoint.matrix(&l.name, l.rows, l.cols),
            Module::Experts(e) => expert_stack(checkpoint, e),
            Module::LatentUp(up) => {
                let (heads, rank) = (up.shape.heads, up.shape.rank);
                checkpoint
                    .matrix(&up.joined(), heads * up.rows_per_head(), rank)
                    .or_else(|_| checkpoint.experts(&up.keys(), heads, rank, up.shape.plain))
            }
            Module::Gain { .. } | Module::Vector { .. } => continue,
        };
        // A head that the config leaves open need not be there; nothing else is missing here.
        if let Ok(matrix) = matrix {
            *counts.entry(name_of(matrix.packing)).or_insert(0) += 1;
        }
    }
    counts
}

/// The projection of all experts where it is a stack, else that of the first one.
fn expert_stack(checkpoint: &Checkpoint, e: &ExpertLinear) -> Result<Matrix, weights::Error> {
    let has_weight = |name: &String| checkpoint.has_weight(name);
    if let Some(name) = e.stacked().into_iter().find(has_weight) {
        return checkpoint.experts(&name, e.n, e.rows, e.cols);
    }
    if let Some(name) = e.joined().into_iter().find(has_weight) {
        return checkpoint.experts(&name, e.n, 2 * e.rows, e.cols);
    }
    let name = e.single(0).into_iter().find(has_weight).unwrap_or_default();
    checkpoint.matrix(&name, e.rows, e.cols)
}

fn name_of(packing: Packing) -> String {
    match packing {
        Packing::Plain(float) => format!("{float:?}").to_uppercase(),
        Packing::Affine { bits, group, .. } => format!("affine {bits} bit / {group}"),
        Packing::Fp8Blocks { .. } => "FP8".to_owned(),
        Packing::DividedNvfp4(_) => "nvfp4".to_owned(),
        Packing::Int8 { .. } => "int8".to_owned(),
        Packing::Mxfp4 | Packing::Mxfp8 | Packing::Nvfp4 => format!("{packing:?}").to_lowercase(),
        Packing::Gguf(ty) => gguf_name(ty),
    }
}

/// `Q4_K` where Rust says `Q4K`.
fn gguf_name(ty: GgufType) -> String {
    let name = format!("{ty:?}").to_uppercase();
    match name.strip_suffix('K') {
        Some(stem) => format!("{stem}_K"),
        None => name.replace("IQ4NL", "IQ4_NL"),
    }
}
