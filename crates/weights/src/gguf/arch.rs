//! The architectures of GGUF this program reads, as data: what Hugging Face calls them and their
//! tensors, and in what their stored numbers differ.
//!
//! A new architecture whose tensors have the usual names is one more line here. Hyperparameters are
//! in [`super::config`].

use super::metadata::Metadata;
use crate::Error;

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
    /// Names per layer that differ from, or add to, [`LAYER`].
    pub(super) layer: &'static [(&'static str, &'static str)],
}

/// The order of the rows of one head in q and k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RopeRows {
    /// As in Hugging Face: rotary pairs lie half a head apart.
    Halves,
    /// Rotary pairs lie side by side; the converter has permuted the rows.
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

/// The architectures, in the order of the message that lists them.
const ARCHS: [Arch; 8] = [
    Arch {
        name: "llama",
        model_type: "llama",
        class: "LlamaForCausalLM",
        rope: RopeRows::Interleaved,
        gains: Gains::Same,
        layer: &[
            ("ffn_gate_inp", "block_sparse_moe.gate"),
            ("ffn_gate_exps", "block_sparse_moe.switch_mlp.gate_proj"),
            ("ffn_up_exps", "block_sparse_moe.switch_mlp.up_proj"),
            ("ffn_down_exps", "block_sparse_moe.switch_mlp.down_proj"),
        ],
    },
    plain("qwen2", "qwen2", "Qwen2ForCausalLM"),
    plain("qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM"),
    plain("qwen3", "qwen3", "Qwen3ForCausalLM"),
    plain("qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM"),
    Arch {
        name: "gemma3",
        model_type: "gemma3_text",
        class: "Gemma3ForCausalLM",
        rope: RopeRows::Halves,
        gains: Gains::OneMore,
        layer: &[
            ("post_attention_norm", "post_attention_layernorm"),
            ("ffn_norm", "pre_feedforward_layernorm"),
            ("post_ffw_norm", "post_feedforward_layernorm"),
        ],
    },
    Arch {
        name: "phi3",
        model_type: "phi3",
        class: "Phi3ForCausalLM",
        rope: RopeRows::Halves,
        gains: Gains::Same,
        layer: &[("attn_qkv", "self_attn.qkv_proj"), ("ffn_up", "mlp.gate_up_proj")],
    },
    Arch {
        name: "bert",
        model_type: "bert",
        class: "BertModel",
        rope: RopeRows::Halves,
        gains: Gains::Same,
        layer: &[
            ("attn_q", "attention.self.query"),
            ("attn_k", "attention.self.key"),
            ("attn_v", "attention.self.value"),
            ("attn_output", "attention.output.dense"),
            ("attn_output_norm", "attention.output.LayerNorm"),
            ("ffn_up", "intermediate.dense"),
            ("ffn_down", "output.dense"),
            ("layer_output_norm", "output.LayerNorm"),
        ],
    },
];

/// An architecture that differs from the common tables in nothing.
const fn plain(name: &'static str, model_type: &'static str, class: &'static str) -> Arch {
    Arch { name, model_type, class, rope: RopeRows::Halves, gains: Gains::Same, layer: &[] }
}

/// Modules outside the layers.
const MODEL: [(&str, &str); 3] =
    [("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];

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
        if self.model_type == "bert" { look_up(&BERT_MODEL, name) } else { look_up(&MODEL, name) }
    }

    /// The Hugging Face name of a module of a layer, from there on.
    pub(super) fn layer_module(&self, name: &str) -> Option<&'static str> {
        look_up(self.layer, name).or_else(|| look_up(&LAYER, name))
    }

    /// What the names of layers begin with.
    pub(super) fn layers(&self) -> &'static str {
        if self.model_type == "bert" { "encoder.layer" } else { "model.layers" }
    }
}

fn look_up(table: &[(&'static str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(ours, _)| *ours == name).map(|(_, theirs)| *theirs)
}
