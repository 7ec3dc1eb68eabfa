//! Runs a model over a prompt, however the prompt is cut. Shared by the tests here.

use std::path::{Path, PathBuf};

use backend::{BLOCK, Backend, Batch, KvFormat, Span, TokenId, reference::Reference};
use cpu::{Activations, Cpu, Isa, Options};
use hearth_models::recipe::{Branch, Ffn, GateKept, Layer};
use hearth_models::{Decoder, Error, ModelSpec, Room, Scratch, Share, ShareDecoder, Store};
use weights::Checkpoint;

/// Where the goldens lie.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The folders of all families' weights with logits in plain f32.
pub(crate) fn golden_cases() -> Vec<PathBuf> {
    let folders = std::fs::read_dir(fixtures()).expect("fixtures").flatten();
    let mut cases: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
    cases.retain(|folder| folder.join("logits.f32").is_file());
    assert!(cases.len() > 10, "goldens are missing");
    cases
}

/// A JSON file.
pub(crate) fn json(path: &Path) -> serde_json::Value {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Little-endian f32.
pub(crate) fn floats(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    bytes.as_chunks().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect()
}

/// A model on a device, or a share of one, with caches for a few sequences.
pub(crate) struct Runner<'b, B: Backend> {
    b: &'b B,
    decoder: Passes<B>,
    store: Store<B>,
    scratch: Scratch<B>,
    staged: B::Staged,
}

/// What computes passes.
enum Passes<B: Backend> {
    Whole(Decoder<B>),
    #[allow(dead_code, reason = "tests of shares alone have one")]
    Share(ShareDecoder<B>),
}

/// Room of a [`Runner`].
const MAX_ROWS: usize = 128;
const N_BLOCKS: usize = 32;
const N_SLOTS: usize = 8;

impl<'b, B: Backend> Runner<'b, B> {
    pub(crate) fn new(b: &'b B, spec: &ModelSpec, checkpoint: &Checkpoint) -> Self {
        let decoder = Decoder::load(spec, checkpoint, b).expect("the model loads");
        let spec = decoder.spec().clone();
        Runner::of(b, &spec, Passes::Whole(decoder))
    }

    /// What one of several machines has of every layer.
    #[allow(dead_code, reason = "tests of shares alone have one")]
    pub(crate) fn of_share(
        b: &'b B,
        (spec, share): (&ModelSpec, Share),
        checkpoint: &Checkpoint,
    ) -> Result<Self, Error> {
        let decoder = ShareDecoder::load((spec, share), checkpoint, b, &mut |_, _| ())?;
        let spec = decoder.spec().clone();
        Ok(Runner::of(b, &spec, Passes::Share(decoder)))
    }

    fn of(b: &'b B, spec: &ModelSpec, decoder: Passes<B>) -> Self {
        let room = Room { n_blocks: N_BLOCKS, n_windowed: N_BLOCKS, n_slots: N_SLOTS };
        let store = Store::new(spec, room, b);
        let scratch = Scratch::new(spec, MAX_ROWS, MAX_ROWS, b);
        Runner { b, decoder, store, scratch, staged: b.staged(MAX_ROWS) }
    }

    /// One pass; the logits of the wanted rows, if this machine is the one that has them.
    pub(crate) fn pass(&mut self, batch: &Batch) -> Vec<f32> {
        self.b.stage(batch, &mut self.staged);
        let (store, scratch) = (&mut self.store, &mut self.scratch);
        let (logits, len) = match &self.decoder {
            Passes::Whole(decoder) => {
                decoder.forward(self.b, &self.staged, store, scratch);
                (scratch.logits(), batch.want.len() * decoder.spec().vocab)
            }
            Passes::Share(decoder) => {
                decoder.forward(self.b, (batch, &self.staged), store, scratch)
            }
        };
        let mut out = Vec::new();
        self.b.read(logits, len, &mut out).expect("a sound device");
        out
    }

    /// The logits of every position of `tokens`, computed in pieces of at most `chunk`, in blocks
    /// that lie in no particular order.
    pub(crate) fn logits(&mut self, tokens: &[TokenId], chunk: usize) -> Vec<f32> {
        let blocks: Vec<u32> =
            (0..N_BLOCKS as u32).map(|i| (i * 7 + 3) % N_BLOCKS as u32).collect();
        let mut out = Vec::new();
        for (i, piece) in tokens.chunks(chunk).enumerate() {
            let start = i * chunk;
            let n_blocks = (start + piece.len()).div_ceil(BLOCK);
            let mut span = Span::new(0..piece.len(), start, blocks[..n_blocks].to_vec());
            // From one slot to the next, round and round.
            let slot = |piece: usize| (piece % N_SLOTS) as u32;
            span.state_in = i.checked_sub(1).map(slot);
            span.states_out = vec![(piece.len() - 1, slot(i))];
            let want = (0..piece.len() as u32).collect();
            out.extend(self.pass(&Batch { tokens: piece.to_vec(), spans: vec![span], want }));
        }
        out
    }
}

/// How far logits may be from a golden, in standard deviations of the golden.
#[derive(Clone, Copy)]
pub(crate) struct Tolerance {
    pub(crate) worst: f32,
    pub(crate) rms: f32,
}

/// Of the reference device to an f32 run by others with keys and values rounded to f16 as ours are then.
/// Nearly all of it comes from a handful of keys and values per model that lie on the border of two
/// f16 numbers and fall to the other side. Breaking any one term of a model moves its logits by more
/// than 0.1 (the generating script checks that).
const REFERENCE: Tolerance = Tolerance { worst: 3e-3, rms: 3e-4 };

/// Of the CPU device with exact activations: the same, with sums in f32 rather than f64.
pub(crate) const EXACT: Tolerance = REFERENCE;

/// Of the CPU device with activations rounded to eight bits, which the makers of the goldens do not
/// do. Large, because tiny random models amplify every error; real ones are measured elsewhere.
const INT8: Tolerance = Tolerance { worst: 0.25, rms: 0.04 };

/// The same where the rounding may choose another expert for a row, or other numbers of a gate.
const INT8_EXPERTS: Tolerance = Tolerance { worst: 2.0, rms: 0.12 };

/// Logits that somebody else computed for a model and a prompt.
pub(crate) struct Golden<'a> {
    /// For messages.
    pub(crate) name: &'a str,
    pub(crate) spec: &'a ModelSpec,
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) tokens: Vec<TokenId>,
    /// One row per token.
    pub(crate) logits: Vec<f32>,
}

impl Golden<'_> {
    /// Checks every device, and that one thread of scalar code computes the bytes of several with
    /// the best instructions there are.
    pub(crate) fn check_all(&self) {
        let spec = self.spec.clone().with_kv_format(KvFormat::F16);
        let tokens = self.tokens.clone();
        Golden { spec: &spec, tokens, logits: self.logits.clone(), ..*self }.check_devices();
    }

    fn check_devices(&self) {
        self.check(&Reference, REFERENCE);
        let chooses = |branch: &Branch| match branch {
            Branch::Ffn(Ffn::Moe(_) | Ffn::Twin(_)) => true,
            Branch::Ffn(Ffn::Gated(gated)) => gated.kept != GateKept::All,
            _ => false,
        };
        let has_choice = self.spec.layers.iter().flat_map(Layer::branches).any(chooses);
        let int8 = if has_choice { INT8_EXPERTS } else { INT8 };
        for (activations, tolerance) in [(Activations::Exact, EXACT), (Activations::Int8, int8)] {
            let best = Cpu::new(&Options { threads: 2, activations, isa: None });
            let logits = self.check(&best, tolerance);
            let plain = Cpu::new(&Options { threads: 1, activations, isa: Some(Isa::Scalar) });
            let mut runner = Runner::new(&plain, self.spec, self.checkpoint);
            let same = runner.logits(&self.tokens, 64) == logits;
            assert!(same, "{}: {activations:?} depends on the machine", self.name);
        }
        #[cfg(feature = "installed-mlx")]
        self.check_mlx();
    }

    /// MLX chooses its kernels by the number of rows, so chunks may change a logit a little.
    #[cfg(feature = "installed-mlx")]
    fn check_mlx(&self) {
        let library = std::env::var_os("HEARTH_MLX").expect("HEARTH_MLX names MLX's C library");
        let options = mlx::Options {
            library: Some(library.into()),
            precision: mlx::Precision::F32,
            cache_bytes: Some(1 << 28),
            ..Default::default()
        };
        let device = mlx::Mlx::open(&options).expect("the library that HEARTH_MLX names");
        let mut runner = Runner::new(&device, self.spec, self.checkpoint);
        for chunk in [self.tokens.len(), 7, 1] {
            let logits = runner.logits(&self.tokens, chunk);
            let (worst, rms) = distance(&logits, &self.logits);
            let what = format!("{}, MLX, chunks of {chunk}", self.name);
            assert!(worst < EXACT.worst, "{what}: a logit is {worst} deviations off (rms {rms})");
            assert!(rms < EXACT.rms, "{what}: logits are {rms} deviations off (worst {worst})");
        }
    }

    /// Compares a device's logits with these, then checks that it computes the same bytes however
    /// the prompt is cut. Returns its logits.
    fn check<B: Backend>(&self, device: &B, tolerance: Tolerance) -> Vec<f32> {
        let (name, tokens) = (self.name, &self.tokens);
        let mut runner = Runner::new(device, self.spec, self.checkpoint);
        let whole = runner.logits(tokens, tokens.len());
        let (worst, rms) = distance(&whole, &self.logits);
        assert!(worst < tolerance.worst, "{name}: a logit is {worst} deviations off (rms {rms})");
        assert!(rms < tolerance.rms, "{name}: logits are {rms} deviations off (worst {worst})");
        for chunk in [1, 7, 32] {
            let cut = runner.logits(tokens, chunk);
            assert!(cut == whole, "{name}: chunks of {chunk} change the logits");
        }
        whole
    }
}

/// Token ids, as a JSON list.
pub(crate) fn tokens(path: &Path) -> Vec<TokenId> {
    let ids = json(path);
    let id = |id: &serde_json::Value| id.as_u64().expect("an id") as TokenId;
    ids.as_array().expect("a list").iter().map(id).collect()
}

/// Largest and root mean square difference, in standard deviations of `golden`.
pub(crate) fn distance(ours: &[f32], golden: &[f32]) -> (f32, f32) {
    assert_eq!(ours.len(), golden.len());
    let n = golden.len() as f32;
    let mean = golden.iter().sum::<f32>() / n;
    let std = (golden.iter().map(|g| (g - mean).powi(2)).sum::<f32>() / n).sqrt();
    let differences = ours.iter().zip(golden).map(|(a, b)| (a - b).abs());
    let worst = differences.clone().fold(0.0, |w: f32, d| if d > w || d.is_nan() { d } else { w });
    let rms = (differences.map(|d| d * d).sum::<f32>() / n).sqrt();
    (worst / std, rms / std)
}
