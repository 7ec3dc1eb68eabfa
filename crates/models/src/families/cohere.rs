//! Command R: attention and feed-forward part read the same layer norm side by side; logits are
//! scaled; neighbouring columns rotate.

use super::*;
use crate::recipe::{Ffn, HeadNorm, Layer, Mixer, Norm, Norms, Skip, Step};
use crate::rope::RopeParams;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let c = &with_usual_values(c).with_defaults(json!({"rope_theta": 500_000.0}));
    let trunk = Trunk::read(c)?;
    let rope = RopeParams::read(c, "full_attention")?.rope(trunk.rope_shape(context))?;
    let mut attention = attention(c, &trunk)?;
    if c.is_on("use_qk_norm")? {
        attention.head_norm = Some(HeadNorm {
            center: NormCenter::Mean,
            span: NormSpan::OwnHead,
            ..trunk.head_norm()
        });
    }
    let layers = vec![parallel_layer(c, &trunk, attention)?; trunk.n_layers];
    finish(c, trunk.spec("cohere", vec![rope], layers))
}

/// What configs of this kind leave out.
pub(super) fn with_usual_values<'a>(c: &Config<'a>) -> Config<'a> {
    c.with_defaults(json!({
        "logit_scale": 0.0625, "tie_word_embeddings": true, "layer_norm_eps": 1e-5,
        "rope_interleaved": true,
    }))
}

pub(super) fn attention(c: &Config, trunk: &Trunk) -> Result<AttentionMixer, Error> {
    let mut attention = trunk.attention(None);
    let bias = attention_bias(c)?;
    (attention.qkv_bias, attention.out_bias) = (bias, bias);
    Ok(attention)
}

/// A layer of one step.
pub(super) fn parallel_layer(
    c: &Config,
    trunk: &Trunk,
    attention: AttentionMixer,
) -> Result<Layer, Error> {
    let ffn = Ffn::Gated(trunk.gated(c.need_size("intermediate_size")?));
    let norms = Norms::Pre(trunk.layer_norm("input_layernorm", Bias::Absent));
    let branches = vec![Mixer::Attention(attention).into(), ffn.into()];
    Ok(Layer { steps: vec![Step { norms, branches, scale: 1.0, skip: Skip::Stream }] })
}

/// What every Command does after its last layer.
pub(super) fn finish(c: &Config, mut spec: ModelSpec) -> Result<ModelSpec, Error> {
    spec.final_norm = Norm { center: NormCenter::Mean, ..spec.final_norm };
    spec.logit_scale = c.positive("logit_scale")?.unwrap_or(1.0);
    Ok(spec)
}

/// A small one, beside the usual keys.
pub(super) fn tiny() -> Value {
    json!({"tie_word_embeddings": true, "logit_scale": 0.5, "use_qk_norm": true})
}
