//! What several spellings of one module have in common: Hugging Face's and those that MLX makes of them.
//! A config's quantisation may follow the one while the tensors follow the other.
//!
//! Prefixes are in [`crate::checkpoint`]; which spelling a family's tensors have is not decided here.

use crate::checkpoint::canonical;

/// Words for a stack of experts, beside `experts` itself.
const STACKS: [&str; 2] = ["switch_mlp", "switch_glu"];

/// A name with one word for what has several: no prefixes, `experts` for stacks of them and for each of
/// them, long names for their projections, `mlp` for a mixture.
pub(crate) fn common(module: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in canonical(module).split('.') {
        let in_experts = parts.contains(&"experts");
        match part {
            // `experts.switch_glu` is one stack.
            _ if STACKS.contains(&part) => {
                if !in_experts {
                    parts.push("experts");
                }
            }
            _ if in_experts && is_number(part) => {}
            "block_sparse_moe" => parts.push("mlp"),
            "w1" if in_experts => parts.push("gate_proj"),
            "w3" | "fc1" if in_experts => parts.push("up_proj"),
            "w2" | "fc2" if in_experts => parts.push("down_proj"),
            // Ling's router, which MLX has in a module of its own.
            "gate_proj" if parts.last() == Some(&"gate") => {}
            _ => parts.push(part),
        }
    }
    parts.join(".")
}

/// Whether a module is of one expert of several.
pub(crate) fn is_one_expert(module: &str) -> bool {
    let behind = module.split_once("experts.").and_then(|(_, rest)| rest.split('.').next());
    behind.is_some_and(is_number)
}

fn is_number(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

/// Modules of which one is a part of the other, which is whole in another spelling. Both are what
/// [`common`] gives.
pub(crate) fn whole_or_parts(module: &str) -> Vec<String> {
    const WHOLES: [(&str, [&str; 2]); 2] = [
        ("experts.gate_up_proj", ["experts.gate_proj", "experts.up_proj"]),
        ("kv_b_proj", ["embed_q", "unembed_out"]),
    ];
    let mut others = Vec::new();
    for (whole, parts) in WHOLES {
        let parent = |part: &str| module.strip_suffix(part).filter(|rest| rest.ends_with('.'));
        if let Some(parent) = parent(whole) {
            others.extend(parts.map(|part| format!("{parent}{part}")));
        }
        if let Some(parent) = parts.into_iter().find_map(parent) {
            others.push(format!("{parent}{whole}"));
        }
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each pair as transformers and as mlx-lm call it.
    #[test]
    fn both_spellings_have_a_name_in_common() {
        for (raw, mlx) in [
            (
                "model.language_model.layers.3.mlp.experts.7.up_proj",
                "language_model.model.layers.3.mlp.switch_mlp.up_proj",
            ),
            (
                "model.layers.0.block_sparse_moe.experts.12.w2",
                "model.layers.0.block_sparse_moe.switch_mlp.down_proj",
            ),
            ("backbone.layers.1.mixer.experts.0.up_proj", "layers.1.mixer.switch_mlp.fc1"),
            ("model.layers.2.experts.down_proj", "layers.2.experts.switch_glu.down_proj"),
            ("model.layers.2.mlp.gate", "model.layers.2.mlp.gate.gate_proj"),
            ("model.layers.2.block_sparse_moe.gate", "model.layers.2.mlp.gate"),
        ] {
            assert_eq!(common(raw), common(mlx));
        }
        for (one, other) in [
            ("model.layers.2.mlp.gate_proj", "model.layers.2.mlp.gate"),
            ("model.layers.2.mlp.up_proj", "model.layers.2.mlp.switch_mlp.up_proj"),
            ("model.layers.2.mlp.up_proj", "model.layers.3.mlp.up_proj"),
            ("model.layers.2.feed_forward.w1", "model.layers.2.feed_forward.w3"),
        ] {
            assert_ne!(common(one), common(other));
        }
    }

    #[test]
    fn parts_are_known_by_the_whole() {
        let [parts, whole] = ["layers.1.self_attn.embed_q", "layers.1.self_attn.kv_b_proj"];
        assert_eq!(whole_or_parts(parts), [whole]);
        assert!(whole_or_parts(whole).contains(&parts.to_owned()));
        assert_eq!(
            whole_or_parts("layers.1.mlp.experts.gate_up_proj"),
            ["layers.1.mlp.experts.gate_proj", "layers.1.mlp.experts.up_proj"]
        );
        assert!(whole_or_parts("layers.1.mlp.gate_up_proj").is_empty());
        assert!(whole_or_parts("layers.1.mlp.down_proj").is_empty());
    }
}
