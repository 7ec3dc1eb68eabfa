//! Draft heads guess what transformers' do. The goldens come from `tools/goldens/heads.py`.

use std::path::PathBuf;

use backend::reference::Reference;
use backend::{BLOCK, Backend, Batch, KvFormat, Span, TokenId};
use cpu::{Activations, Cpu, Options};
use hearth_models::{
    Decoder, DraftHead, DraftScratch, ModelSpec, Room, Scratch, Store, recipe, stored_drafts,
};
use weights::{Checkpoint, Tensor};

use crate::common::{distance, fixtures, floats, tokens};

/// Twice as far as models may be from goldens, see `common.rs`: a head goes on from what one says.
const EXACT: f32 = 6e-3;
/// With activations in eight bits, of both the model and its heads.
const INT8: f32 = 0.4;
/// The same where the rounding may choose another expert for a row.
const INT8_EXPERTS: f32 = 3.0;

const CASES: [(&str, usize); 9] = [
    ("qwen3_5", 1),
    ("qwen3_5_moe", 1),
    ("qwen3_next", 1),
    ("deepseek_v3", 2),
    ("glm4_moe", 1),
    ("glm4_moe_lite", 1),
    ("mimo", 1),
    ("nemotron_h", 1),
    ("bailing_moe_v2", 1),
];

fn folder(case: &str) -> PathBuf {
    fixtures().join("heads").join(case)
}

fn spec_of(checkpoint: &Checkpoint) -> ModelSpec {
    recipe(&checkpoint.config).expect("a recipe").with_kv_format(KvFormat::F16)
}

/// What a head says about rows: logits, and what the next one goes on from.
struct Said<B: Backend> {
    logits: Vec<f32>,
    hidden: B::Buf,
}

/// A batch of consecutive rows of one sequence, all of them wanted.
const ROOM: Room = Room { n_blocks: 4, n_windowed: 4, n_slots: 2 };

fn batch(tokens: &[TokenId], start: usize) -> Batch {
    let blocks = [2, 0, 3, 1][..(start + tokens.len()).div_ceil(BLOCK)].to_vec();
    let mut span = Span::new(0..tokens.len(), start, blocks);
    span.states_out = vec![(tokens.len() - 1, 1)];
    Batch { tokens: tokens.to_vec(), spans: vec![span], want: (0..tokens.len() as u32).collect() }
}

/// What the model has made of all rows of `text`.
fn trunk<B: Backend>(b: &B, checkpoint: &Checkpoint, text: &[TokenId]) -> B::Buf {
    let decoder = Decoder::load(&spec_of(checkpoint), checkpoint, b).expect("loads");
    let spec = decoder.spec();
    let mut store = Store::new(spec, ROOM, b);
    let mut scratch = Scratch::new(spec, text.len(), text.len(), b);
    let mut staged = b.staged(text.len());
    b.stage(&batch(text, 0), &mut staged);
    decoder.forward(b, &staged, &mut store, &mut scratch);
    let mut hidden = b.buf(text.len() * spec.hidden);
    decoder.hidden(b, &scratch, &mut hidden);
    hidden
}

/// The rows `range` of `x`.
fn rows<B: Backend>(b: &B, x: &B::Buf, cols: usize, range: std::ops::Range<usize>) -> B::Buf {
    let mut all = Vec::new();
    b.read(x, range.end * cols, &mut all).expect("a sound device");
    let values = &all[range.start * cols..];
    let tensor = Tensor::from_f32("rows.weight", &[range.len(), cols], values);
    let held = Checkpoint::from_tensors(serde_json::json!({}), vec![tensor]);
    let table = b.weight(&[held.matrix("rows", range.len(), cols).expect("a table")]);
    let mut staged = b.staged(range.len());
    let ids: Vec<TokenId> = (0..range.len() as TokenId).collect();
    b.stage(&batch(&ids, 0), &mut staged);
    let mut out = b.buf(range.len() * cols);
    b.embed(&table, &staged, 1.0, &mut out);
    out
}

/// Runs a head over `text`, which follows the rows of `hidden`, in pieces of at most `chunk`.
fn head<B: Backend>(
    b: &B,
    head: &DraftHead<B>,
    (text, hidden): (&[TokenId], &B::Buf),
    chunk: usize,
) -> Said<B> {
    let (spec, n) = (head.spec(), text.len());
    let (mut store, mut scratch) = (Store::new(spec, ROOM, b), DraftScratch::new(spec, n, n, b));
    let mut staged = b.staged(n);
    let mut said = Said { logits: Vec::new(), hidden: b.buf(n * spec.hidden) };
    for (i, piece) in text.chunks(chunk).enumerate() {
        let start = i * chunk;
        let before = rows(b, hidden, spec.hidden, start..start + piece.len());
        b.stage(&batch(piece, start), &mut staged);
        head.forward(b, (&staged, &before), &mut store, &mut scratch);
        let mut logits = Vec::new();
        b.read(scratch.logits(), piece.len() * spec.vocab, &mut logits).expect("a sound device");
        said.logits.extend(logits);
        head.hidden(b, &scratch, &mut said.hidden);
    }
    said
}

/// What the first and the second head say, the same one twice where there is only one.
fn drafts<B: Backend>(b: &B, checkpoint: &Checkpoint, text: &[TokenId]) -> [Vec<f32>; 2] {
    let heads = DraftHead::load(&spec_of(checkpoint), checkpoint, b).expect("heads load");
    let hidden = trunk(b, checkpoint, text);
    let first = head(b, &heads[0], (&text[1..], &hidden), text.len());
    for chunk in [1, 7, 32] {
        let cut = head(b, &heads[0], (&text[1..], &hidden), chunk);
        assert!(cut.logits == first.logits, "chunks of {chunk} change the logits");
    }
    let second = heads.last().expect("a head");
    let second = head(b, second, (&text[2..], &first.hidden), text.len());
    [first.logits, second.logits]
}

fn check<B: Backend>(case: &str, b: &B, tolerance: f32) {
    let folder = folder(case);
    let checkpoint = Checkpoint::open(&folder).expect(case);
    let text = tokens(&folder.join("input.json"));
    let found = drafts(b, &checkpoint, &text);
    for (name, logits) in ["first", "second"].into_iter().zip(found) {
        let golden = floats(&folder.join(format!("{name}_kv16.f32")));
        let (worst, rms) = distance(&logits, &golden);
        assert!(worst < tolerance, "{case}: {name} is {worst} deviations off (rms {rms})");
    }
}

#[test]
fn heads_say_what_those_of_transformers_say() {
    for (case, _) in CASES {
        check(case, &Reference, EXACT);
        let device = |activations| Cpu::new(&Options { threads: 2, activations, isa: None });
        check(case, &device(Activations::Exact), EXACT);
        let has_experts = !matches!(case, "qwen3_5" | "mimo");
        check(case, &device(Activations::Int8), if has_experts { INT8_EXPERTS } else { INT8 });
    }
}

/// Behind the last layer, as llama.cpp's converter has them: Qwen's, Ling's whose norm has another name,
/// and Nemotron's whose two layers are one.
#[test]
fn heads_are_found_in_gguf_files() {
    for case in ["qwen3_5", "bailing_moe_v2", "nemotron_h"] {
        let folder = folder(case);
        let file = Checkpoint::open(&folder.join("model.gguf")).expect(case);
        let published = Checkpoint::open(&folder).expect(case);
        let [of_file, as_published] =
            [&file, &published].map(|model| stored_drafts(&spec_of(model), model).expect(case));
        assert_eq!((of_file.n, of_file.n_params), (1, as_published.n_params), "{case}");
        let found = drafts(&Reference, &file, &tokens(&folder.join("input.json")));
        for (name, logits) in ["first", "second"].into_iter().zip(found) {
            let (worst, _) = distance(&logits, &floats(&folder.join(format!("{name}_kv16.f32"))));
            assert!(worst < EXACT, "{case}: {name} is {worst} deviations off");
        }
        let decoder = Decoder::load(&spec_of(&file), &file, &Reference).expect(case);
        assert!(decoder.notes().is_empty(), "{case}: {:?}", decoder.notes());
    }
}

/// A file with more layers behind the last one than anybody has said anything about.
#[test]
fn heads_of_an_unknown_kind_are_passed_over() {
    let path = folder("nemotron_h").join("model.gguf");
    let mut bytes = std::fs::read(&path).expect("a file");
    let key = b"nemotron_h_moe.nextn_predict_layers";
    let at = bytes.windows(key.len()).position(|part| part == key).expect("the key");
    // Behind the key there is the number of its type.
    let value = &mut bytes[at + key.len() + 4..][..4];
    assert_eq!(value, 1u32.to_le_bytes());
    value.copy_from_slice(&2u32.to_le_bytes());
    let model = weights::gguf::from_bytes(&path, bytes.into()).expect("a model");
    let stored = stored_drafts(&spec_of(&model), &model).expect("counts");
    assert_eq!((stored.n, stored.n_bytes), (0, 0));
}

#[test]
fn heads_are_counted_and_not_said_to_be_ignored() {
    for (case, n) in CASES {
        let checkpoint = Checkpoint::open(&folder(case)).expect(case);
        let spec = spec_of(&checkpoint);
        let stored = stored_drafts(&spec, &checkpoint).expect(case);
        let numbers = |name: &&Tensor| name.shape.iter().product::<usize>() as u64;
        let is_own = |t: &&Tensor| {
            let mut names = spec.drafts.iter().flat_map(|draft| &draft.layers);
            let is_behind = names.any(|(name, _)| t.name.starts_with(name));
            let is_shared = t.name.contains("embed_tokens") || t.name.contains("shared_head.head");
            (is_behind || t.name.starts_with("mtp.")) && !is_shared
        };
        let all: u64 = checkpoint.tensors().filter(is_own).map(|t| numbers(&t)).sum();
        assert_eq!((stored.n, stored.n_params), (n, all), "{case}");
        let decoder = Decoder::load(&spec, &checkpoint, &Reference).expect(case);
        assert!(decoder.notes().is_empty(), "{case}: {:?}", decoder.notes());
    }
    // No heads, and the model is the same.
    let checkpoint = Checkpoint::open(&fixtures().join("qwen3_5")).expect("a model");
    let stored = stored_drafts(&spec_of(&checkpoint), &checkpoint).expect("counts");
    assert_eq!((stored.n, stored.n_bytes), (0, 0));
}

#[test]
fn a_head_without_one_of_its_parts_is_an_error_of_its_own() {
    let whole = Checkpoint::open(&folder("qwen3_5")).expect("a model");
    let some = whole.tensors().filter(|t| t.name != "mtp.layers.0.self_attn.k_norm.weight");
    let broken = Checkpoint::from_tensors(whole.config.clone(), some.cloned().collect());
    let spec = spec_of(&broken);
    let error = stored_drafts(&spec, &broken).expect_err("a part is missing").to_string();
    assert!(error.contains("mtp.layers.0.self_attn.k_norm.weight"), "{error}");
    assert!(DraftHead::load(&spec, &broken, &Reference).is_err());
    assert!(Decoder::load(&spec, &broken, &Reference).is_ok());
}

/// How a tensor is changed on its way.
type Change = fn(&str) -> bool;

/// MLX's conversion of the model, with heads whose gains it has added one to if `is_whole` says so.
fn converted(published: &Checkpoint, is_whole: Change) -> Checkpoint {
    let convert = |t: &Tensor| {
        let is_gain = t.shape.len() == 1 && t.name.contains("norm");
        let is_head = t.name.starts_with("mtp.");
        if t.name.ends_with("conv1d.weight") {
            let [cols, 1, taps] = t.shape[..] else { panic!("{:?}", t.shape) };
            return Tensor::new(t.name.clone(), &[cols, taps, 1], t.dtype, t.data.clone());
        }
        if is_gain && !t.name.contains("linear_attn") && (!is_head || is_whole(&t.name)) {
            let mut gains = published.vector(&t.name, t.shape[0]).expect("a gain");
            gains.iter_mut().for_each(|gain| *gain += 1.0);
            return Tensor::from_f32(&t.name, &t.shape, &gains);
        }
        t.clone()
    };
    let tensors = published.tensors().map(convert).collect();
    Checkpoint::from_tensors(published.config.clone(), tensors)
}

#[test]
fn gains_of_heads_in_files_of_mlx_are_read_as_they_are_meant() {
    for case in ["qwen3_5", "qwen3_next"] {
        let published = Checkpoint::open(&folder(case)).expect(case);
        let text = &tokens(&folder(case).join("input.json"))[..40];
        let plain = drafts(&Reference, &published, text);
        let cases: [(&str, Change); 3] = [
            ("whole", |_| true),
            ("as published", |_| false),
            ("mixed", |name| name == "mtp.norm.weight"),
        ];
        for (how, is_whole) in cases {
            let other = converted(&published, is_whole);
            assert!(drafts(&Reference, &other, text) == plain, "{case}: gains {how}");
        }
    }
}
