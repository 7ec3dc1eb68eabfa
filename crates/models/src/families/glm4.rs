//! GLM-4: norms before and after each branch, gate and up in one matrix, half of every head rotates by
//! neighbouring columns.

use super::glm::{attention, ffn, rope, with_usual_values};
use super::*;
use crate::recipe::{Layer, Mixer, Norms, Step};

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &with_usual_values(c);
    let trunk = Trunk::read(c)?;
    let norms =
        |before, after| Norms::Sandwich { before: trunk.norm(before), after: trunk.norm(after) };
    let mixer_norms = norms("input_layernorm", "post_self_attn_layernorm");
    let ffn_norms = norms("post_attention_layernorm", "post_mlp_layernorm");
    let attention = Mixer::Attention(attention(c, &trunk)?);
    let steps = vec![Step::new(mixer_norms, attention), Step::new(ffn_norms, ffn(c, &trunk)?)];
    let layers = vec![Layer { steps }; trunk.n_layers];
    let ropes = vec![rope(c, &trunk, context)?];
    Ok(trunk.spec("glm4", ropes, layers))
}

pub(super) use super::glm::tiny;
