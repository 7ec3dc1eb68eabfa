//! The architectures of GGUF this program reads, as data: what Hugging Face calls them and their
//! tensors, and in what their stored numbers differ.
//!
//! A new architecture whose tensors have the usual names is one more line in `known.rs`. Hyperparameters are
//! in [`super::config`].

mod known;

use super::config::Layers;
use super::metadata::Metadata;
use crate::Error;

pub(super) use known::{ARCHS, OTHERS};

/// One architecture.
#[derive(Debug)]
pub(super) struct Arch {
    /// The value of `general.architecture`, which also begins the names of its hyperparameters.
    pub(super) name: &'static str,
    /// The `model_type` of the config.
    pub(super) model_type: &'static str,
    /// The entry of `architectures` in the config.
    pub(super) class: &'static str,
    /// How the rows of q and k are arranged.
    pub(super) rope: RopeRows,
    /// What a stored norm gain is.
    pub(super) gains: Gains,
    /// Factors of the model: their keys here and in the config.
    pub(super) factors: &'static [(&'static str, &'static str)],
    /// Names per layer that differ from, or add to, [`LAYER`].
    pub(super) layer: &'static [(&'static str, &'static str)],
    /// Tensors of a layer that belong to no module: their names here without what follows the dot, and
    /// their whole names there.
    pub(super) lone: &'static [(&'static str, &'static str)],
    /// Names outside the layers that differ from [`MODEL`].
    pub(super) model: &'static [(&'static str, &'static str)],
    /// What layers that carry a state have, if there are any.
    pub(super) states: States,
    /// Where the layers belong that guess further tokens.
    pub(super) guessing: Guessing,
}

/// What layers with a state have, and what the converter has done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum States {
    /// There are none, or nothing was done.
    Same,
    /// Gated delta rules whose projections are by kind, but for strengths and decays.
    Delta,
    /// Gated delta rules whose projections are by kind, with value heads in turn.
    DeltaInTurn,
    /// Mamba-2, or another one of which nothing but the rates is changed.
    Mamba2,
}

/// What becomes of layers that guess further tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guessing {
    /// They are left out.
    LeftOut,
    /// Hugging Face has them behind the last layer too.
    Behind,
    /// Hugging Face has them as Qwen does, apart, and shares all but their layers.
    Apart,
    /// Hugging Face has two for each, as Nemotron does: its attention and its experts.
    Folded,
}

/// The order of the rows of one head in q and k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RopeRows {
    /// As in Hugging Face.
    Same,
    /// Rotary pairs lie side by side where Hugging Face has them half a head apart; the converter has
    /// permuted the rows.
    Interleaved,
}

/// What the numbers of a norm's gain mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gains {
    /// The factor itself, as in Hugging Face.
    Same,
    /// One more than Hugging Face stores; the model adds the one.
    OneMore,
}

/// Modules of a layer that guesses, where they lie behind the last one.
const GUESSING: [(&str, &str); 7] = [
    ("nextn.eh_proj", "eh_proj"),
    ("nextn.enorm", "enorm"),
    ("nextn.hnorm", "hnorm"),
    ("nextn.shared_head_norm", "shared_head.norm"),
    ("nextn.shared_head_head", "shared_head.head"),
    ("nextn.embed_tokens", "embed_tokens"),
    // What Ling calls the norm of the head.
    ("layer_output_norm", "final_layernorm"),
];

/// Modules of a layer that is two, but for what both mix.
const GUESSING_FOLDED: [(&str, &str); 6] = [
    ("nextn.eh_proj", "mtp.layers.0.eh_proj"),
    ("nextn.enorm", "mtp.layers.0.enorm"),
    ("nextn.hnorm", "mtp.layers.0.hnorm"),
    ("attn_norm", "mtp.layers.0.norm"),
    ("post_attention_norm", "mtp.layers.1.norm"),
    ("nextn.shared_head_norm", "mtp.layers.1.final_layernorm"),
];

/// What several of Qwen's share.
const GUESSING_APART: [(&str, &str); 6] = [
    ("nextn.eh_proj", "mtp.fc"),
    ("nextn.enorm", "mtp.pre_fc_norm_embedding"),
    ("nextn.hnorm", "mtp.pre_fc_norm_hidden"),
    ("nextn.shared_head_norm", "mtp.norm"),
    ("nextn.shared_head_head", "mtp.lm_head"),
    ("nextn.embed_tokens", "mtp.embed_tokens"),
];

/// Modules outside the layers.
const MODEL: [(&str, &str); 4] = [
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
    // The last norm of LFM2, for all its name.
    ("token_embd_norm", "model.embedding_norm"),
];

/// Modules outside the layers of a bert, whose layers are an `encoder` rather than the `model`.
const BERT_MODEL: [(&str, &str); 4] = [
    ("token_embd", "embeddings.word_embeddings"),
    ("position_embd", "embeddings.position_embeddings"),
    ("token_types", "embeddings.token_type_embeddings"),
    ("token_embd_norm", "embeddings.LayerNorm"),
];

/// Modules of a layer.
const LAYER: [(&str, &str); 19] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_exps", "mlp.switch_mlp.gate_proj"),
    ("ffn_up_exps", "mlp.switch_mlp.up_proj"),
    ("ffn_down_exps", "mlp.switch_mlp.down_proj"),
    ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
    ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
    ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
];

impl Arch {
    /// The architecture of a file.
    pub(super) fn of(metadata: &Metadata) -> Result<&'static Arch, Error> {
        const KEY: &str = "general.architecture";
        let name = metadata.text(KEY)?.ok_or_else(|| metadata.missing(KEY, "a string"))?;
        ARCHS.iter().find(|arch| arch.name == name).ok_or_else(|| {
            let known: Vec<&str> = ARCHS.iter().map(|arch| arch.name).collect();
            Error::Unsupported {
                file: metadata.file.to_path_buf(),
                what: format!("the architecture {name:?}"),
                advice: format!("these are: {}", known.join(", ")),
            }
        })
    }

    /// The Hugging Face name of a module outside the layers.
    pub(super) fn model_module(&self, name: &str) -> Option<&'static str> {
        if self.model_type == "bert" {
            return look_up(&BERT_MODEL, name);
        }
        look_up(self.model, name).or_else(|| look_up(&MODEL, name))
    }

    /// The Hugging Face name of a tensor of the `i`th layer that guesses. `of` is its module and what
    /// follows the last dot.
    pub(super) fn guessing_tensor(
        &self,
        i: usize,
        layers: &Layers,
        of: (&str, &str),
    ) -> Option<String> {
        let (module, kind) = of;
        let own = |table| look_up(table, module).map(|module| format!("{module}.{kind}"));
        match self.guessing {
            Guessing::LeftOut => None,
            Guessing::Behind => {
                let part = own(&GUESSING).or_else(|| self.layer_tensor(of))?;
                Some(format!("model.layers.{}.{part}", layers.n + i))
            }
            Guessing::Apart => own(&GUESSING_APART)
                .or_else(|| Some(format!("mtp.layers.{i}.{}", self.layer_tensor(of)?))),
            // How files have several is not known.
            Guessing::Folded if layers.guessing > 1 => None,
            Guessing::Folded => own(&GUESSING_FOLDED).or_else(|| {
                let half = usize::from(!module.starts_with("attn_"));
                Some(format!("mtp.layers.{half}.{}", self.layer_tensor(of)?))
            }),
        }
    }

    /// The Hugging Face name of a tensor of a layer, from there on. `of` is its module and what follows
    /// the last dot, if anything does.
    pub(super) fn layer_tensor(&self, (module, kind): (&str, &str)) -> Option<String> {
        if let Some(tensor) = look_up(self.lone, module) {
            return Some(tensor.to_owned());
        }
        let module = look_up(self.layer, module).or_else(|| look_up(&LAYER, module))?;
        (!kind.is_empty()).then(|| format!("{module}.{kind}"))
    }

    /// What the names of layers begin with.
    pub(super) fn layers(&self) -> &'static str {
        match self.model_type {
            "bert" => "encoder.layer",
            "gpt2" => "model.h",
            _ => "model.layers",
        }
    }
}

fn look_up(table: &[(&'static str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(ours, _)| *ours == name).map(|(_, theirs)| *theirs)
}
