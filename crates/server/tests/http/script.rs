//! A model that says what a test wants it to say, behind the real engine, and a toy tokenizer whose
//! tokens are exactly the strings a test names.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use engine::{
    Batch, BlockId, DeviceError, DiskOptions, Executor, ExecutorShape, KvGroup, Limits, Suppressed,
    TokenId,
};
use hearth_server::{App, ChatService, ContextLimit, Defaults, Model, Settings, Shapes};
use serde_json::{Map, Value, json};
use text::{Template, TemplateFiles, Tokenizer, TokenizerFiles};
use tokio::sync::mpsc::Sender;

pub(crate) const BOS: TokenId = 1;
pub(crate) const IM_START: TokenId = 2;
pub(crate) const IM_END: TokenId = 3;
pub(crate) const EOS: TokenId = 0;
const N_SPECIAL: TokenId = 4;

pub(crate) const CHATML: &str = "<s>{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
     {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// How a test's model is made.
pub(crate) struct Script {
    /// Tokens of the answer, as bytes. Each becomes a token of its own. None may appear twice.
    pub(crate) pieces: Vec<Vec<u8>>,
    pub(crate) template: Option<&'static str>,
    pub(crate) limits: Limits,
    pub(crate) settings: Settings,
    pub(crate) speech: Speech,
    pub(crate) gate: Arc<Gate>,
    /// Every token the model was given, in order.
    pub(crate) heard: Arc<Mutex<Vec<TokenId>>>,
    pub(crate) defaults: Defaults,
    pub(crate) suppressed: Suppressed,
    /// Where cached blocks are kept beside memory.
    pub(crate) disk: Option<PathBuf>,
    /// Dropped when the model is gone from memory.
    pub(crate) life: Option<Sender<()>>,
}

/// Where the engine waits before each step until the test gives leave.
#[derive(Default)]
pub(crate) struct Gate {
    /// Steps that may pass; `None` lets all pass.
    permits: Mutex<Option<usize>>,
    changed: Condvar,
    /// Steps that came to the gate.
    arrivals: AtomicUsize,
}

impl Gate {
    pub(crate) fn open(&self) {
        *self.permits.lock().unwrap() = None;
        self.changed.notify_all();
    }

    pub(crate) fn close(&self) {
        *self.permits.lock().unwrap() = Some(0);
    }

    /// Lets so many steps pass, then none.
    pub(crate) fn give(&self, n: usize) {
        *self.permits.lock().unwrap() = Some(n);
        self.changed.notify_all();
    }

    /// Whether the engine has begun to work.
    pub(crate) fn was_reached(&self) -> bool {
        self.arrivals.load(Ordering::SeqCst) > 0
    }

    fn pass(&self) {
        self.arrivals.fetch_add(1, Ordering::SeqCst);
        let shut = |permits: &mut Option<usize>| *permits == Some(0);
        let mut permits = self.changed.wait_while(self.permits.lock().unwrap(), shut).unwrap();
        *permits = permits.map(|n| n - 1);
    }
}

/// What the model says.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Speech {
    /// The pieces, then end of text.
    Pieces,
    /// The first piece where the prompt ends with `!`, else the others; then end of text.
    #[allow(dead_code, reason = "an example uses it")]
    Agent,
    /// Anything: all tokens but the special ones are about equally likely after any token.
    Noise,
    /// The same with the special ones, so that it may end at any time.
    Anything,
    /// The device breaks at this step, counted from 0.
    Breaks { at: usize },
}

impl Script {
    pub(crate) fn says(pieces: &[&str]) -> Script {
        Script::plays(pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect())
    }

    pub(crate) fn plays(pieces: Vec<Vec<u8>>) -> Script {
        Script {
            pieces,
            template: Some(CHATML),
            limits: Limits { rows: 64, seqs: 8, queue: 16, context: 4096, stall_target: None },
            settings: Settings::default(),
            speech: Speech::Pieces,
            heard: Arc::default(),
            gate: Arc::new(Gate::default()),
            defaults: Defaults { temperature: 0.0, ..Defaults::default() },
            suppressed: Suppressed::default(),
            disk: None,
            life: None,
        }
    }

    /// A closed gate before each step of the engine.
    pub(crate) fn gated(self) -> (Script, Arc<Gate>) {
        self.gate.close();
        let gate = self.gate.clone();
        (self, gate)
    }

    pub(crate) fn app(self) -> App {
        let settings = self.settings;
        App::new(ChatService::new(vec![self.model()]), settings)
    }

    pub(crate) fn model(self) -> Model {
        let tokenizer = Arc::new(tokenizer(&self.pieces));
        let executor = Player {
            vocab: tokenizer.vocab_size(),
            script: self
                .pieces
                .iter()
                .map(|piece| tokenizer.id_of(&spelled(piece)).unwrap())
                .collect(),
            speech: self.speech,
            gate: self.gate,
            heard: self.heard,
            n_steps: 0,
            _life: self.life,
        };
        let executor = Box::new(executor);
        let disk = self.disk.map(|dir| DiskOptions {
            dir,
            max_bytes: 1 << 30,
            min_free_bytes: 0,
            fingerprint: [7; 32],
        });
        let engine = match &disk {
            Some(disk) => engine::start_with_disk(executor, self.limits, disk),
            None => engine::start(executor, self.limits),
        };
        let stop_tokens = vec![EOS, IM_END];
        let vocab = tokenizer.vocab_size();
        let files = self.template.map(|default| TemplateFiles { default, tool_use: None });
        Model {
            id: "toy/model".to_owned(),
            aliases: vec!["toy".to_owned()],
            engine,
            template: files.map(|files| Template::new(files, &tokenizer).unwrap()),
            shapes: Shapes::new(Arc::clone(&tokenizer), vocab, stop_tokens.clone()),
            tokenizer,
            stop_tokens,
            defaults: self.defaults,
            suppressed: Arc::new(self.suppressed),
            context: self.limits.context,
            context_limit: ContextLimit::Setting,
            kv_format: "f16",
            created: 1_790_000_000,
        }
    }
}

/// Byte-level BPE without merges: text becomes single bytes, answers are whole pieces.
fn tokenizer(pieces: &[Vec<u8>]) -> Tokenizer {
    let mut vocab = Map::new();
    let specials = ["<eos>", "<s>", "<|im_start|>", "<|im_end|>"];
    for (id, special) in specials.iter().enumerate() {
        vocab.insert((*special).to_owned(), id.into());
    }
    let letters = (0..=255u8).map(|byte| vec![byte]);
    for bytes in letters.chain(pieces.iter().cloned()) {
        let id = vocab.len();
        // A piece of one byte is that byte's token.
        vocab.entry(spelled(&bytes)).or_insert(id.into());
    }
    let added = |(id, content): (usize, &&str)| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false,
               "rstrip": false, "normalized": false, "special": true})
    };
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
                       "use_regex": false});
    let added: Vec<Value> = specials.iter().enumerate().map(added).collect();
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []},
    });
    let file = file.to_string();
    let config = json!({"bos_token": "<s>", "eos_token": "<eos>", "add_bos_token": true});
    let files = TokenizerFiles {
        tokenizer_json: file.as_bytes(),
        config: Some(&config),
        special_tokens_map: None,
    };
    Tokenizer::from_files(files).unwrap()
}

fn spelled(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| letter(byte)).collect()
}

/// How byte-level vocabularies spell a byte: printable ones as themselves, the rest in order from
/// U+0100.
fn letter(byte: u8) -> char {
    let plain = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    if plain(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&byte| !plain(byte)).count() as u32;
    char::from_u32(256 + before).unwrap()
}

/// Plays the script: the token after a piece is the next piece, after anything else the first.
struct Player {
    vocab: usize,
    script: Vec<TokenId>,
    speech: Speech,
    gate: Arc<Gate>,
    heard: Arc<Mutex<Vec<TokenId>>>,
    n_steps: usize,
    _life: Option<Sender<()>>,
}

impl Player {
    fn next_after(&self, last: TokenId) -> TokenId {
        let at = self.script.iter().position(|&token| token == last);
        let next = match (self.speech, at) {
            (Speech::Agent, Some(0)) => None,
            (Speech::Agent, None) if last != N_SPECIAL + u32::from(b'!') => Some(1),
            (_, at) => Some(at.map_or(0, |at| at + 1)),
        };
        next.and_then(|next| self.script.get(next)).copied().unwrap_or(EOS)
    }
}

impl Executor for Player {
    fn vocab(&self) -> usize {
        self.vocab
    }

    fn max_positions(&self) -> usize {
        1 << 20
    }

    fn shape(&self) -> ExecutorShape {
        ExecutorShape { n_blocks: 1 << 14, n_windowed: 0, n_slots: 0, max_rows: 64, max_want: 64 }
    }

    // Its answers depend on tokens alone, so a block may hold anything.
    fn block_bytes(&self, group: KvGroup) -> usize {
        if group == KvGroup::Full { 64 } else { 0 }
    }

    fn read_block(&mut self, _: (KvGroup, BlockId), out: &mut [u8]) -> Result<(), DeviceError> {
        out.fill(7);
        Ok(())
    }

    fn write_block(&mut self, _: (KvGroup, BlockId), _bytes: &[u8]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn step(&mut self, batch: &Batch, logits: &mut Vec<f32>) -> Result<(), DeviceError> {
        self.gate.pass();
        if self.speech == (Speech::Breaks { at: self.n_steps }) {
            return Err(DeviceError("the cable is loose".to_owned()));
        }
        self.n_steps += 1;
        self.heard.lock().unwrap().extend(&batch.tokens);
        logits.clear();
        for &row in &batch.want {
            let last = batch.tokens[row as usize];
            let mut scores = vec![0.0; self.vocab];
            match self.speech {
                Speech::Noise => scores[..N_SPECIAL as usize].fill(f32::NEG_INFINITY),
                Speech::Anything => {}
                Speech::Pieces | Speech::Agent | Speech::Breaks { .. } => {
                    let next = self.next_after(last);
                    // The runner-up is always the letter `?`.
                    scores[(N_SPECIAL + 63) as usize] = 10.0;
                    scores[next as usize] = 20.0;
                }
            }
            logits.extend(scores);
        }
        Ok(())
    }
}
