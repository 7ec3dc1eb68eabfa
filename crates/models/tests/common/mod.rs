//! Runs a model over a prompt, however the prompt is cut. Shared by the tests here.

use std::path::{Path, PathBuf};

use backend::{BLOCK, Backend, Batch, Span, TokenId};
use hearth_models::{Decoder, ModelSpec, Scratch, Store};
use weights::Checkpoint;

/// Where the goldens lie.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// A JSON file.
pub fn json(path: &Path) -> serde_json::Value {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Little-endian f32.
pub fn floats(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    bytes.as_chunks().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect()
}

/// A model on a device, with caches for a few sequences.
pub struct Runner<'b, B: Backend> {
    b: &'b B,
    decoder: Decoder<B>,
    store: Store<B>,
    scratch: Scratch<B>,
    staged: B::Staged,
}

/// Room of a [`Runner`].
const MAX_ROWS: usize = 128;
const N_BLOCKS: usize = 32;

impl<'b, B: Backend> Runner<'b, B> {
    pub fn new(b: &'b B, spec: &ModelSpec, checkpoint: &Checkpoint) -> Self {
        let decoder = Decoder::load(spec, checkpoint, b).expect("the model loads");
        let store = Store::new(decoder.spec(), N_BLOCKS, b);
        let scratch = Scratch::new(decoder.spec(), MAX_ROWS, MAX_ROWS, b);
        Runner { b, decoder, store, scratch, staged: b.staged(MAX_ROWS) }
    }

    /// One pass; the logits of the wanted rows.
    pub fn pass(&mut self, batch: &Batch) -> Vec<f32> {
        self.b.stage(batch, &mut self.staged);
        self.decoder.forward(self.b, &self.staged, &mut self.store, &mut self.scratch);
        let mut out = Vec::new();
        let len = batch.want.len() * self.decoder.spec().vocab;
        self.b.read(self.scratch.logits(), len, &mut out).expect("a sound device");
        out
    }

    /// The logits of every position of `tokens`, computed in pieces of at most `chunk`, in blocks
    /// that lie in no particular order.
    pub fn logits(&mut self, tokens: &[TokenId], chunk: usize) -> Vec<f32> {
        let blocks: Vec<u32> =
            (0..N_BLOCKS as u32).map(|i| (i * 7 + 3) % N_BLOCKS as u32).collect();
        let mut out = Vec::new();
        for (i, piece) in tokens.chunks(chunk).enumerate() {
            let start = i * chunk;
            let n_blocks = (start + piece.len()).div_ceil(BLOCK);
            let span = Span { rows: 0..piece.len(), start, blocks: blocks[..n_blocks].to_vec() };
            let want = (0..piece.len() as u32).collect();
            out.extend(self.pass(&Batch { tokens: piece.to_vec(), spans: vec![span], want }));
        }
        out
    }
}
