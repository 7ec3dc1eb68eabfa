//! How much memory a model gets: what it needs whatever happens, and what is left for its cache.
//! Arithmetic only; the formula of what things weigh is the engine's.

use backend::{BLOCK, KvFormat};
use engine::{Cost, ExecutorShape, KvGroup, Shares, Traffic};
use models::{Footprint, ModelSpec};
use server::ContextLimit;

use super::{Crowd, LoadArgs};
use crate::machine::{self, Memory, human_bytes};

/// Rows of one pass unless told otherwise: enough to use the arithmetic units, few enough to keep streams
/// flowing.
pub(crate) const MAX_ROWS: usize = 256;
/// Share of the free memory that models may use when nobody says how much.
const DEFAULT_SHARE: f64 = 0.9;

/// Room for what a process grows by while it serves: connections, requests, bodies.
const GROWTH: u64 = 32 << 20;

/// Memory that this process may use, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// All of it.
    pub(crate) limit: u64,
    /// What it takes without any model.
    pub(crate) baseline: u64,
}

impl Budget {
    /// What the flags say, or what the machine has.
    pub(crate) fn of(args: &LoadArgs) -> Budget {
        let memory = Memory::now();
        let limit = match args.memory_limit {
            Some(size) => size.of(memory.total),
            None => (memory.available as f64 * DEFAULT_SHARE) as u64,
        };
        Budget { limit, baseline: machine::anonymous_bytes() + GROWTH }
    }
}

/// A model's share of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// What its executor has room for.
    pub(crate) shape: ExecutorShape,
    /// Tokens of prompt and answer together.
    pub(crate) context: usize,
    /// Why it is not more.
    pub(crate) context_limit: ContextLimit,
    /// What the engine takes.
    pub(crate) cost: Cost,
    /// What its tokenizer takes.
    pub(crate) text_bytes: u64,
}

/// A model that cannot be served in the memory there is. The text has the numbers and says what to
/// lower.
#[derive(Debug)]
pub(crate) struct DoesNotFit {
    /// What was asked for: with nothing said, one whole context.
    pub(crate) asked: Box<Plan>,
    text: String,
}

impl std::error::Error for DoesNotFit {}

impl std::fmt::Display for DoesNotFit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// What there is to plan for.
pub(crate) struct Wanted<'a> {
    /// The recipe for the longest context.
    pub(crate) spec: &'a ModelSpec,
    pub(crate) footprint: Footprint,
    pub(crate) text_bytes: u64,
    pub(crate) crowd: Crowd,
}

impl Plan {
    /// Everything that is taken, its cache full.
    pub(crate) fn total(&self) -> u64 {
        self.cost.total().saturating_add(self.text_bytes)
    }

    /// Plans within `budget`, as if this were the only model: what a model can do must not depend
    /// on what else happens to be loaded. Where keys and values in 8 bits would make a model fit, or
    /// more of its context, it is told.
    pub(crate) fn new(
        wanted: &Wanted<'_>,
        args: &LoadArgs,
        budget: Budget,
    ) -> Result<Plan, DoesNotFit> {
        let mut plan = Plan::within(wanted, args, budget);
        let in_8_bits = || {
            let spec = wanted.spec.clone().with_kv_format(KvFormat::Int8);
            let smaller = spec.kv_bytes_per_block() < wanted.spec.kv_bytes_per_block();
            let wanted = Wanted { spec: &spec, ..*wanted };
            smaller.then(|| Plan::within(&wanted, args, budget).ok()).flatten()
        };
        match &mut plan {
            Err(why) => {
                if let Some(smaller) = in_8_bits() {
                    why.text.push_str(&eight_bit_advice(&why.asked, &smaller));
                }
            }
            Ok(Plan {
                context,
                context_limit: ContextLimit::Memory { in_8_bits: tokens, .. },
                ..
            }) => {
                *tokens = in_8_bits().map(|smaller| smaller.context).filter(|more| more > context);
            }
            Ok(_) => {}
        }
        plan
    }

    fn within(wanted: &Wanted<'_>, args: &LoadArgs, budget: Budget) -> Result<Plan, DoesNotFit> {
        let Wanted { spec, footprint, text_bytes, crowd } = *wanted;
        let asked = args.context.unwrap_or(spec.max_positions);
        let rows = args.pass_rows.unwrap_or(MAX_ROWS).max(crowd.seqs);
        let shape = |Shares { blocks, panes, states }| ExecutorShape {
            n_blocks: blocks,
            n_windowed: panes,
            n_slots: 2 * crowd.seqs + states,
            max_rows: rows,
            max_want: crowd.seqs,
        };
        let cost = |shares| Cost::of(spec, &footprint, shape(shares));
        let nothing = Shares::default();
        let fixed = cost(nothing).total().saturating_add(text_bytes);
        let room = budget.limit.saturating_sub(budget.baseline).saturating_sub(fixed);
        let per_block = spec.kv_bytes_per_block().max(1) as u64;
        let per_context = asked.div_ceil(BLOCK);
        let alone = |blocks| Shares::for_one(spec, blocks, rows);
        let whole = alone(per_context).bytes(spec);
        let cache = match args.kv_memory {
            Some(size) => size.of(budget.limit),
            // A quarter, unless a context that was asked for needs more.
            None => {
                (budget.limit / 4).max(if args.context.is_some() { whole } else { 0 }).min(room)
            }
        };
        let least = if args.context.is_some() { per_context } else { 1 };
        let shares = Shares::of(spec, cache, Traffic { least, seqs: crowd.seqs, rows });
        let fits = shares.blocks;
        let too_short = args.context.is_some() && fits < per_context;
        let plan = |shares, context, context_limit| Plan {
            shape: shape(shares),
            context,
            context_limit,
            cost: cost(shares),
            text_bytes,
        };
        let refused = |text| {
            let blocks = if args.kv_memory.is_some() { fits.max(1) } else { per_context };
            let asked_for = Shares { states: shares.states.min(blocks), ..alone(blocks) };
            DoesNotFit { asked: Box::new(plan(asked_for, asked, ContextLimit::Setting)), text }
        };
        if room < per_block || cache > room {
            let advice = match room / per_block {
                0 => "lower --max-seqs, or take a smaller model or fewer bits (hearth convert --bits 4)"
                    .to_owned(),
                _ => format!("lower --kv-memory to {}", human_bytes(room)),
            };
            let sum = sum(&cost(nothing), text_bytes, cache.max(per_block), budget);
            return Err(refused(format!("{sum}: raise --memory-limit, or {advice}")));
        }
        if fits == 0 || too_short {
            return Err(refused(no_context(asked, whole, cache, fits * BLOCK)));
        }
        let n_blocks = match args.kv_memory {
            Some(_) if spec.group_bytes_per_block(KvGroup::Full) > 0 => fits,
            // Where blocks weigh nothing they are only counted.
            _ => fits.min(4 * per_context),
        };
        let Shares { panes, states, .. } = shares;
        let (panes, states) = (panes.min(n_blocks), states.min(n_blocks));
        let shares = Shares { blocks: n_blocks, panes, states };
        let context = asked.min(n_blocks.saturating_mul(BLOCK));
        let context_limit = if context < asked {
            let per_token = spec.group_bytes_per_block(KvGroup::Full).div_ceil(BLOCK) as u64;
            ContextLimit::Memory { bytes: shares.bytes(spec), per_token, in_8_bits: None }
        } else if context < spec.max_positions {
            ContextLimit::Setting
        } else {
            ContextLimit::Model
        };
        Ok(plan(shares, context, context_limit))
    }
}

/// What is needed at least, and that it is too much.
fn sum(fixed: &Cost, text_bytes: u64, cache: u64, budget: Budget) -> String {
    let weights = fixed.mapped + fixed.copied;
    let needed = fixed.total() + text_bytes + cache + budget.baseline;
    format!(
        "the model does not fit: {} of weights, {} to compute in, {} of text tables, at least {} of \
         keys, values and recurrent states and {} for the process are {}, and the memory limit is {}",
        human_bytes(weights),
        human_bytes(fixed.scratch),
        human_bytes(text_bytes),
        human_bytes(cache + fixed.states),
        human_bytes(budget.baseline),
        human_bytes(needed),
        human_bytes(budget.limit),
    )
}

/// Says that it would fit with keys and values in 8 bits, and how.
fn eight_bit_advice(asked: &Plan, smaller: &Plan) -> String {
    let cost = |plan: &Plan| human_bytes(plan.cost.cache / plan.shape.n_blocks.max(1) as u64);
    format!(
        "; or store keys and values in 8 bits with --kv-format q8: a block of {BLOCK} tokens takes {} \
         instead of {}, and {} tokens of context fit in {}",
        cost(smaller),
        cost(asked),
        smaller.context,
        human_bytes(smaller.total()),
    )
}

/// Says what would fit: a context of `fitting` tokens.
fn no_context(asked: usize, whole: u64, cache: u64, fitting: usize) -> String {
    let lower = match fitting {
        0 => String::new(),
        fitting => format!("lower --context to {fitting}, or "),
    };
    format!(
        "{asked} tokens of context take {} of keys and values, and the budget is {}: {lower}raise \
         --kv-memory or --memory-limit",
        human_bytes(whole),
        human_bytes(cache),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::Size;
    use serde_json::json;

    /// A llama with 3 KiB of cache per token (96 KiB per block), 4096 tokens long.
    fn spec() -> ModelSpec {
        let spec = models::recipe(&json!({
            "model_type": "llama", "vocab_size": 1000, "hidden_size": 256, "intermediate_size": 512,
            "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 64, "max_position_embeddings": 4096, "tie_word_embeddings": true,
        }));
        // Two bytes a number make round figures.
        spec.unwrap().with_kv_format(backend::KvFormat::F16)
    }

    fn plan(args: &LoadArgs, limit: u64) -> Result<Plan, DoesNotFit> {
        let spec = spec();
        let footprint =
            Footprint { weight_bytes: 100 << 20, copied_bytes: 1 << 20, bytes_per_token: 0 };
        let crowd = Crowd { seqs: 4, ..Crowd::ONE };
        let wanted = Wanted { spec: &spec, footprint, text_bytes: 1 << 20, crowd };
        Plan::new(&wanted, args, Budget { limit, baseline: 10 << 20 })
    }

    #[test]
    fn the_cache_is_a_quarter_of_the_limit_and_at_most_four_contexts() {
        let roomy = plan(&LoadArgs::default(), 8 << 30).unwrap();
        assert_eq!((roomy.context, roomy.shape.n_blocks), (4096, 4 * 128));
        assert_eq!(roomy.context_limit, ContextLimit::Model);
        assert_eq!(roomy.cost.cache, 4 * 4096 * 3072);
        assert!(roomy.total() > (148 << 20) && roomy.total() < 8 << 30);
        // Of 120 MiB there are less than 9 left, and a quarter would be 30.
        let tight = plan(&LoadArgs::default(), 120 << 20).unwrap();
        assert!(tight.context < 4096 && tight.context >= 32);
        assert!(matches!(tight.context_limit, ContextLimit::Memory { per_token: 3072, .. }));
        assert!(tight.total() + (10 << 20) <= 120 << 20);
    }

    /// States that are kept come out of the memory for the cache, and are counted once.
    #[test]
    fn a_hybrid_shares_its_cache_between_blocks_and_states() {
        let config = models::tiny::config("qwen3_next").unwrap();
        let spec = models::recipe(&config).unwrap();
        let footprint =
            Footprint { weight_bytes: 1 << 20, copied_bytes: 1 << 10, bytes_per_token: 0 };
        let crowd = Crowd { seqs: 4, ..Crowd::ONE };
        let wanted = Wanted { spec: &spec, footprint, text_bytes: 0, crowd };
        let (block, state) = (spec.kv_bytes_per_block() as u64, spec.state_bytes() as u64);
        let plan = |budget: u64, context| {
            let args =
                LoadArgs { kv_memory: Some(Size::Bytes(budget)), context, ..LoadArgs::default() };
            Plan::new(&wanted, &args, Budget { limit: 1 << 30, baseline: 1 << 20 }).unwrap()
        };
        let check = |budget, context, kept: u64| {
            let Plan { shape, cost, .. } = plan(budget, context);
            assert_eq!(shape.n_slots as u64, 8 + kept, "{budget}");
            assert_eq!(cost.states, (8 + kept) * state);
            assert_eq!(cost.cache, (budget - kept * state) / block * block);
        };
        // A quarter; four of them, if half is enough; what half is enough for; none.
        check(40 * state, None, 10);
        check(9 * state, None, 4);
        check(5 * state, None, 2);
        check(state + block, None, 0);
        // Never at the cost of a context that was asked for.
        check(4096 / 32 * block, Some(4096), 0);
    }

    /// 19 bytes for 16 numbers, where f16 takes 32.
    #[test]
    fn the_format_decides_what_the_cache_takes() {
        let spec = spec().with_kv_format(backend::KvFormat::Int8);
        assert_eq!(spec.kv_bytes_per_token(), 6 * 2 * (2 * 64 + 64 / 4 + 64 / 16 + 64 / 16));
        let footprint = Footprint { weight_bytes: 0, copied_bytes: 0, bytes_per_token: 0 };
        let wanted = Wanted { spec: &spec, footprint, text_bytes: 0, crowd: Crowd::ONE };
        let args = LoadArgs::default();
        let plan = Plan::new(&wanted, &args, Budget { limit: 8 << 30, baseline: 0 }).unwrap();
        assert_eq!(plan.cost.cache, 4 * 4096 * spec.kv_bytes_per_token() as u64);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_numbers() {
        let message = plan(&LoadArgs::default(), 64 << 20).unwrap_err().to_string();
        for part in ["100.00 MiB of weights", "the memory limit is 64.00 MiB", "--memory-limit"] {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
        let kv_memory = Some(Size::Bytes(1 << 30));
        let message = plan(&LoadArgs { kv_memory, ..LoadArgs::default() }, 512 << 20);
        // 512 MiB without 100 of weights, 10 for the process and what is computed in.
        let message = message.unwrap_err().to_string();
        assert!(message.contains("or lower --kv-memory to 3"), "{message}");
        let args = LoadArgs {
            kv_memory: Some(Size::Bytes(6 << 20)),
            context: Some(4096),
            ..LoadArgs::default()
        };
        let refused = plan(&args, 512 << 20).unwrap_err();
        let message = refused.to_string();
        assert!(message.contains("4096 tokens of context take 12.00 MiB"), "{message}");
        assert!(message.contains("lower --context to 2048, or"), "{message}");
        assert_eq!((refused.asked.context, refused.asked.cost.cache), (4096, 6 << 20));
        // What follows the advice fits.
        assert!(plan(&LoadArgs { context: Some(2048), ..args }, 512 << 20).is_ok());
        let refused = plan(&LoadArgs::default(), 64 << 20).unwrap_err();
        assert_eq!(refused.asked.cost.cache, 4096 * 3072, "a whole context");
    }

    /// A model that keeps states and nothing else: the context costs nothing. Two states for each
    /// running request, and those that are kept for others, fit beside all else.
    #[test]
    fn a_model_without_keys_and_values_has_all_its_context() {
        let spec = models::recipe(&models::tiny::config("mamba2").unwrap()).unwrap();
        let footprint =
            Footprint { weight_bytes: 1 << 20, copied_bytes: 1 << 10, bytes_per_token: 0 };
        let crowd = Crowd { seqs: 4, ..Crowd::ONE };
        let wanted = Wanted { spec: &spec, footprint, text_bytes: 1 << 20, crowd };
        let budget = Budget { limit: 64 << 20, baseline: 10 << 20 };
        for kv_memory in [None, Some(Size::Bytes(8 << 20))] {
            let args = LoadArgs { kv_memory, ..LoadArgs::default() };
            let plan = Plan::new(&wanted, &args, budget).unwrap();
            assert_eq!((plan.context, plan.shape.n_blocks), (4096, 4 * 128));
            assert_eq!(plan.cost.cache, 0);
            assert!(plan.shape.n_slots > 8);
            assert_eq!(plan.cost.states, (plan.shape.n_slots * spec.state_bytes()) as u64);
            assert!(plan.total() + budget.baseline <= budget.limit);
            assert_eq!(plan.context_limit, ContextLimit::Model);
        }
    }

    /// 10 MiB of cache in f16 and 6 in 8 bits, where there is room for 8.
    #[test]
    fn eight_bits_are_offered_where_they_would_make_it_fit() {
        let fixed = plan(&LoadArgs::default(), 8 << 30).unwrap();
        let fixed = fixed.total() - fixed.cost.cache + (10 << 20);
        let asked = LoadArgs { context: Some(3400), ..LoadArgs::default() };
        let refused = plan(&asked, fixed + (8 << 20)).unwrap_err().to_string();
        let advice = "--kv-format q8: a block of 32 tokens takes 57.00 KiB instead of 96.00 KiB, and \
                      3400 tokens of context fit in";
        assert!(refused.contains(advice), "{refused}");
        // Not where that would not help, either.
        let refused = plan(&asked, fixed + (5 << 20)).unwrap_err().to_string();
        assert!(!refused.contains("q8"), "{refused}");
        // With nothing asked for, it says how much longer the context would be.
        let short = plan(&LoadArgs::default(), fixed + (6 << 20)).unwrap();
        let ContextLimit::Memory { in_8_bits: Some(tokens), .. } = short.context_limit else {
            panic!("{:?}", short.context_limit);
        };
        assert_eq!((short.context, tokens), (6 * 1024 / 96 * 32, 6 * 1024 / 57 * 32));
    }

    /// Gemma 3 1B: 22 of 26 layers see 512 positions; a position takes a KiB in each layer. In f16 its
    /// context of 32,768 would take 832 MiB if all layers kept all of it.
    #[test]
    fn layers_with_a_window_cost_no_more_than_that() {
        let spec = models::recipe(&json!({
            "model_type": "gemma3_text", "vocab_size": 262_144, "hidden_size": 1152,
            "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4,
            "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512,
            "sliding_window_pattern": 6, "max_position_embeddings": 32_768,
            "query_pre_attn_scalar": 256, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        }));
        let spec = spec.unwrap().with_kv_format(KvFormat::F16);
        assert_eq!(spec.kv_bytes_per_token(), 26 << 10);
        // 512 positions and the block at hand, and the 256 rows of a pass.
        let panes = 512 / 32 + 1 + 256 / 32;
        let one = Shares::for_one(&spec, 1024, 256);
        assert_eq!((one.blocks, one.panes), (1024, panes));
        assert_eq!(one.bytes(&spec), (128 << 20) + panes as u64 * 32 * (22 << 10));
        let footprint = Footprint { weight_bytes: 0, copied_bytes: 0, bytes_per_token: 0 };
        let plan = |seqs, limit, args: &LoadArgs| {
            let crowd = Crowd { seqs, ..Crowd::ONE };
            let wanted = Wanted { spec: &spec, footprint, text_bytes: 0, crowd };
            Plan::new(&wanted, args, Budget { limit, baseline: 0 })
        };
        let roomy = plan(4, 16 << 30, &LoadArgs::default()).unwrap();
        // Four contexts, four windows that run and eight that are kept.
        assert_eq!((roomy.shape.n_blocks, roomy.shape.n_windowed), (4096, 12 * 17 + 8));
        assert_eq!(roomy.cost.cache, (512 << 20) + 212 * 32 * (22 << 10));
        // What one context takes is enough for one, and less is not.
        let check = |kv_memory, fits: bool| {
            let args = LoadArgs {
                kv_memory: Some(Size::Bytes(kv_memory)),
                context: Some(32_768),
                ..LoadArgs::default()
            };
            assert_eq!(plan(4, 16 << 30, &args).is_ok(), fits, "{kv_memory}");
        };
        check(one.bytes(&spec), true);
        check(one.bytes(&spec) - 1, false);
    }

    #[test]
    fn a_context_that_was_asked_for_may_take_more_than_a_quarter() {
        let args = LoadArgs { context: Some(3000), ..LoadArgs::default() };
        let plan = plan(&args, 130 << 20).unwrap();
        assert_eq!((plan.context, plan.context_limit), (3000, ContextLimit::Setting));
    }
}
