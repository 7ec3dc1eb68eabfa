//! GPT-2: a table of positions instead of rotations, layer norms, biases everywhere, matrices with a
//! row for each input.

use super::*;
use crate::recipe::{Ffn, Layer, Mixer, Norms, Orientation, Place, PlainFfn, Positions, Qkv, Step};

/// What this family calls sizes, and everybody else.
const NAMES: [(&str, &str); 7] = [
    ("n_embd", "hidden_size"),
    ("n_head", "num_attention_heads"),
    ("n_layer", "num_hidden_layers"),
    ("n_inner", "intermediate_size"),
    ("n_ctx", "max_position_embeddings"),
    ("n_positions", "max_position_embeddings"),
    ("activation_function", "hidden_act"),
];

pub(super) fn recipe(c: &Config, _context: Option<usize>) -> Result<ModelSpec, Error> {
    let mut usual = json!({
        "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true, "hidden_act": "gelu_new",
    });
    for (own, common) in NAMES {
        if let Some(value) = c.get(own) {
            usual[common] = value.clone();
        }
    }
    let c = &c.with_defaults(usual);
    for key in ["scale_attn_by_inverse_layer_idx", "add_cross_attention"] {
        if c.is_on(key)? {
            return Err(Error::config(key, "is true, which is not supported"));
        }
    }
    let trunk = Trunk::read(c)?;
    let mut attention = trunk.attention(None);
    (attention.name, attention.qkv, attention.out) = ("attn", Qkv::Fused("c_attn"), "c_proj");
    (attention.qkv_bias, attention.out_bias) = (Bias::Stored, Bias::Stored);
    attention.rope = None;
    if c.get("scale_attn_weights").is_some() && !c.is_on("scale_attn_weights")? {
        attention.shape.scale = 1.0;
    }
    let ffn = PlainFfn {
        name: "mlp",
        inner: c.size("intermediate_size")?.unwrap_or(4 * trunk.hidden),
        activation: trunk.activation,
        up: "c_fc",
        down: "c_proj",
        bias: Bias::Stored,
    };
    let norms = |name| Norms::Pre(trunk.layer_norm(name, Bias::Stored));
    let attention = Step::new(norms("ln_1"), Mixer::Attention(attention));
    let steps = vec![attention, Step::new(norms("ln_2"), Ffn::Plain(ffn))];
    let final_norm = trunk.layer_norm("ln_f", Bias::Stored);
    let layers = vec![Layer { steps }; trunk.n_layers];
    let spec = trunk.spec("gpt2", Vec::new(), layers);
    let (place, positions) = (Place::Trunk { layers: "h" }, Positions::Table("wpe"));
    let orientation = Orientation::Either;
    Ok(ModelSpec { final_norm, place, positions, orientation, embed: "wte", ..spec })
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"tie_word_embeddings": true, "num_key_value_heads": 4, "n_positions": 4096})
}
