//! MiMo-7B: Qwen2 with draft heads.

pub(super) use super::qwen2::tiny;
use super::*;
use crate::recipe::{Draft, PairOrder};

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let spec = super::qwen2::recipe(c, context)?;
    let drafts = drafts(c, &Trunk::read(c)?, &spec)?;
    Ok(ModelSpec { family: "mimo", drafts, ..spec })
}

fn drafts(c: &Config, trunk: &Trunk, spec: &ModelSpec) -> Result<Vec<Draft>, Error> {
    let Some(layer) = spec.layers.last() else { return Ok(Vec::new()) };
    let n = c.count("num_nextn_predict_layers")?.unwrap_or(1);
    let draft = |i| {
        let name = format!("model.mtp_layers.{i}");
        Draft {
            parent: name.clone(),
            token_norm: trunk.norm("token_layernorm"),
            hidden_norm: trunk.norm("hidden_layernorm"),
            projection: "input_proj",
            order: PairOrder::HiddenFirst,
            layers: vec![(name.clone(), layer.clone())],
            final_norm: trunk.norm("final_layernorm"),
            end: name,
        }
    };
    Ok((0..n).map(draft).collect())
}
