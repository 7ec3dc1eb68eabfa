"""The models of `heads.py` that llama.cpp's converter folds or renames, as it has them.

    python tools/goldens/gguf_heads.py crates/models/tests/fixtures/heads

Writes `model.gguf` beside the published files of a case, with the same numbers: heads are layers behind the
last one. Names are those that gguf-py's own tables give, but for what newer converters do with Nemotron's
head, whose two layers are one there.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
import torch
from gguf import MODEL_ARCH, ExpertGatingFuncType, GGUFWriter, get_tensor_name_map
from safetensors.torch import load_file


def stacked(state):
    """Experts that are published one by one, together."""
    out, parts = {}, {}
    for name, w in state.items():
        if found := re.fullmatch(r"(.*\.experts)\.(\d+)\.(.*)", name):
            parts.setdefault(f"{found[1]}.{found[3]}", {})[int(found[2])] = w
        else:
            out[name] = w
    return out | {name: torch.stack([of[i] for i in range(len(of))]) for name, of in parts.items()}


def common(writer, config, n_layers):
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(n_layers + 1)
    writer.add_head_count(config["num_attention_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_nextn_predict_layers(config["num_nextn_predict_layers"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])


def ling(writer, config):
    n = config["num_hidden_layers"]
    common(writer, config, n)
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_dimension_count(int(config["head_dim"] * config["partial_rotary_factor"]))
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_count(config["num_experts"])
    writer.add_expert_shared_feed_forward_length(config["moe_intermediate_size"] * config["num_shared_experts"])
    writer.add_expert_shared_count(config["num_shared_experts"])
    writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)
    names = get_tensor_name_map(MODEL_ARCH.BAILINGMOE2, n + 1)

    def tensor(name, w):
        name = name.replace(".expert_bias", ".expert_bias.bias")
        return names.get_name(name, try_suffixes=(".weight", ".bias")), w

    return tensor


# The norms of the two layers of a head, and what joins its inputs.
FOLDED = {
    "mtp.layers.0.enorm": "nextn.enorm", "mtp.layers.0.hnorm": "nextn.hnorm", "mtp.layers.0.eh_proj": "nextn.eh_proj",
    "mtp.layers.1.norm": "post_attention_norm", "mtp.layers.1.final_layernorm": "nextn.shared_head_norm",
}


def nemotron(writer, config):
    kinds = config["layers_block_type"]
    n = len(kinds)
    common(writer, config, n)
    width, kv_heads = config["moe_intermediate_size"], config["num_key_value_heads"]
    writer.add_feed_forward_length([width if kind == "moe" else 0 for kind in kinds] + [width])
    is_attention = lambda kind: kind in ("full_attention", "attention")
    writer.add_head_count_kv([kv_heads if is_attention(kind) else 0 for kind in kinds] + [kv_heads])
    writer.add_layer_norm_rms_eps(config["layer_norm_epsilon"])
    writer.add_ssm_conv_kernel(config["conv_kernel"])
    writer.add_ssm_state_size(config["ssm_state_size"])
    writer.add_ssm_group_count(config["n_groups"])
    writer.add_ssm_inner_size(config["mamba_num_heads"] * config["mamba_head_dim"])
    writer.add_ssm_time_step_rank(config["mamba_num_heads"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_shared_feed_forward_length(config["moe_shared_expert_intermediate_size"])
    names = get_tensor_name_map(MODEL_ARCH.NEMOTRON_H_MOE, n + 1)

    def tensor(name, w):
        module, _, kind = name.rpartition(".")
        if module in FOLDED:
            return f"blk.{n}.{FOLDED[module]}.{kind}", w
        name = re.sub(r"^mtp\.layers\.[01]\.", f"backbone.layers.{n}.", name)
        name = re.sub(r"^model\.", "backbone.", name)
        name = name.replace("dt_bias", "dt.bias").replace("e_score_correction_bias", "e_score_correction.bias")
        name = re.sub(r"^backbone(.*)\.mixer\.experts\.", r"model\1.mlp.experts.", name)
        if name.endswith("A_log"):
            w = -np.exp(w)
        if name.endswith(("A_log", ".D")):
            w = w.reshape(-1, 1)
        if name.endswith("conv1d.weight"):
            w = w.squeeze(1)
        if name.endswith("mixer.norm.weight"):
            w = w.reshape(config["n_groups"], -1)
        return names.get_name(name, try_suffixes=(".weight", ".bias")), w

    return tensor


CASES = {"bailing_moe_v2": ("bailingmoe2", ling), "nemotron_h": ("nemotron_h_moe", nemotron)}


def write_case(folder, arch, describe):
    config = json.loads((folder / "config.json").read_text())
    writer = GGUFWriter(folder / "model.gguf", arch)
    tensor = describe(writer, config)
    for name, w in sorted(stacked(load_file(folder / "model.safetensors")).items()):
        new, w = tensor(name, w.float().numpy())
        if new is None:
            sys.exit(f"no name for {name}")
        writer.add_tensor(new, np.ascontiguousarray(w))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(folder.name, (folder / "model.gguf").stat().st_size, "bytes")


if __name__ == "__main__":
    for case in sys.argv[2:] or CASES:
        write_case(Path(sys.argv[1]) / case, *CASES[case])
