//! Other names for the parts of a layer, as MLX has them in the models that it converts.
//!
//! Not the names of experts, which may be stacked and joined besides: see `experts.rs`.

use super::Loader;
use crate::recipe::{Branch, Correction, Ffn, GateUp, GatedFfn, MoeFfn};

impl Loader<'_> {
    /// Gives the parts of the spec the names that the checkpoint has for them.
    pub(super) fn settle_names(&mut self) {
        let is_there = |name: &str| self.checkpoint.has_weight(name);
        for (layer_name, layer) in self.spec.named_layers_mut() {
            for branch in layer.steps.iter_mut().flat_map(|step| &mut step.branches) {
                match branch {
                    Branch::Ffn(Ffn::Gated(ffn)) => respell_gated(ffn, &layer_name, is_there),
                    Branch::Ffn(Ffn::Moe(moe)) => respell_router(moe, &layer_name, is_there),
                    _ => {}
                }
            }
        }
    }
}

impl Loader<'_> {
    /// The name that the checkpoint has for a tensor: MLX puts the convolutions of Kimi Linear into
    /// modules.
    pub(super) fn spelled(&self, tensor: &str) -> String {
        let other = tensor.replace("_conv1d.", "_conv.conv.");
        let is_other = !self.checkpoint.contains(tensor) && self.checkpoint.contains(&other);
        if is_other { other } else { tensor.to_owned() }
    }
}

/// MLX calls gate and up of LFM2 and Granite 4 as nearly all others do.
fn respell_gated(ffn: &mut GatedFfn, layer: &str, is_there: impl Fn(&str) -> bool) {
    let usual = match ffn.gate_up {
        GateUp::Split | GateUp::Fused => return,
        GateUp::Numbered => ffn.name,
        GateUp::InOut => "mlp",
    };
    if is_there(&format!("{layer}.{usual}.gate_proj")) {
        (ffn.name, ffn.gate_up) = (usual, GateUp::Split);
    }
}

/// MLX has the router of Ling in a module of its own, and the mixture of Kimi Linear where others have
/// theirs.
fn respell_router(moe: &mut MoeFfn, layer: &str, is_there: impl Fn(&str) -> bool) {
    if moe.name == "block_sparse_moe" && is_there(&format!("{layer}.mlp.{}", moe.router.name)) {
        moe.name = "mlp";
        if let Correction::Stored(name) = &mut moe.router.correction {
            *name = name.strip_prefix("gate.").unwrap_or(name);
        }
    }
    if moe.router.name == "gate" && is_there(&format!("{layer}.{}.gate.gate_proj", moe.name)) {
        moe.router.name = "gate.gate_proj";
    }
}
