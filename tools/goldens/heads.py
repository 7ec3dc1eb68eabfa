"""Tiny seeded models with draft heads, and what transformers' MtpModel makes of them in f32.

    python tools/goldens/heads.py crates/models/tests/fixtures/heads

Per case: `config.json`, `model.safetensors` with the heads under the names that published files have for
them, `input.json`, and logits with keys and values rounded to f16: `first_kv16.f32` of the first head for
all tokens but the last, and `second_kv16.f32` of what comes after it, the second head or the same one
once more, fed with what the first one has made of each position. One case is there as llama.cpp's converter
has it besides.

Transformers leaves out the head of Nemotron-H; what vLLM makes of one is written down here, around the layers of
transformers: the layers of a head are numbered like a model's, the first one has what joins the inputs, the last
one the norm. Nor does it know Ling 2.0, which computes what GLM-4.5 does, under other names.

Weights are drawn and terms are broken as in `families.py`.
"""

import contextlib
import copy
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from gguf import GGUFWriter
from transformers import AutoModelForCausalLM
from transformers.cache_utils import MtpCache
from transformers.models.nemotron_h import modeling_nemotron_h as nemotron
from transformers.modeling_layers import MtpModel

import gguf_logits
from cases.first import DELTA, MOE
from cases.mla import GROUPED, LATENT
from cases.sizes import ROWS, SIZES, VOCAB, rope, without
from families import choice_margin, make_config, moved, neutral, randomise, rounded_latents, write_f32

DELTA = {**DELTA, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
QWEN = {**SIZES, **DELTA, "tie_word_embeddings": True, **rope("default", 100.0, partial_rotary_factor=0.25)}
FULL = dict(mtp_layer_types=["full_attention"])


def shared(i, n_layers):
    """Qwen's heads share all but their layers."""
    return {
        "enorm": "mtp.pre_fc_norm_embedding", "hnorm": "mtp.pre_fc_norm_hidden", "eh_proj": "mtp.fc",
        "post_norm": "mtp.norm", "mtp_block": f"mtp.layers.{i}",
    }


def behind(i, n_layers):
    """DeepSeek's are layers behind the last one."""
    layer = f"model.layers.{n_layers + i}"
    names = {name: f"{layer}.{name}" for name in ("enorm", "hnorm", "eh_proj")}
    return {**names, "post_norm": f"{layer}.shared_head.norm", "mtp_block": layer}


def as_ling(state, config):
    """A model like GLM-4.5 under the names of Ling 2.0, whose heads share the embedding and the head."""
    out = {}
    for name, tensor in state.items():
        if ".embed_tokens" in name.removeprefix("model") and ".layers." in name or "shared_head.head" in name:
            continue
        for old, new in (
            ("embed_tokens", "word_embeddings"), ("shared_head.norm", "final_layernorm"), ("self_attn.o_proj", "attention.dense"),
            ("self_attn.q_norm", "attention.query_layernorm"), ("self_attn.k_norm", "attention.key_layernorm"),
            ("gate.e_score_correction_bias", "gate.expert_bias"),
        ):
            name = name.replace(old, new)
        if name.endswith("self_attn.q_proj.weight"):
            parts = [state[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            name, tensor = name.replace("self_attn.q_proj", "attention.query_key_value"), torch.cat(parts)
        if "self_attn." not in name:
            out[name] = tensor
    keys = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "head_dim", "max_position_embeddings", "rms_norm_eps", "moe_intermediate_size", "num_experts_per_tok", "n_group",
            "topk_group", "routed_scaling_factor", "norm_topk_prob", "first_k_dense_replace", "num_nextn_predict_layers")
    ours = {key: config[key] for key in keys} | {
        "model_type": "bailing_moe_v2", "num_experts": config["n_routed_experts"], "num_shared_experts": config["n_shared_experts"],
        "score_function": "sigmoid", "use_qk_norm": True, "use_qkv_bias": False, "use_bias": False, "hidden_act": "silu",
        "rope_theta": config["rope_parameters"]["rope_theta"], "tie_word_embeddings": False,
        "partial_rotary_factor": config["rope_parameters"]["partial_rotary_factor"], "moe_router_enable_expert_bias": True,
    }
    return out, ours


def beside(i, n_layers):
    """MiMo's are layers of their own."""
    layer = f"model.mtp_layers.{i}"
    names = dict(enorm="token_layernorm", hnorm="hidden_layernorm", eh_proj="input_proj", post_norm="final_layernorm")
    return {name: f"{layer}.{own}" for name, own in names.items()} | {"mtp_block": layer}


def in_layers(i, n_layers):
    """Nemotron-H's are layers of one branch each."""
    names = {name: f"mtp.layers.0.{name}" for name in ("enorm", "hnorm", "eh_proj")}
    return names | {"attention": "mtp.layers.0", "experts": "mtp.layers.1", "post_norm": "mtp.layers.1.final_layernorm"}


class NemotronLayer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        norm = lambda: nemotron.NemotronHRMSNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.enorm, self.hnorm, self.post_norm = norm(), norm(), norm()
        self.eh_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.attention, self.experts = (nemotron.NemotronHBlock(config, layer_idx=i) for i in range(2))

    def forward(self, embedded, hidden):
        x = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(hidden)], dim=-1))
        n = x.shape[1]
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        return self.post_norm(self.experts(self.attention(x, attention_mask=mask)))


class NemotronHead(torch.nn.Module):
    num_mtp_layers = 1

    def __init__(self, model):
        super().__init__()
        self.config = copy.deepcopy(model.config)
        self.config.layers_block_type = self.config.mtp_layers_block_type
        self.layers = torch.nn.ModuleList([NemotronLayer(self.config)])
        # No part of this module, so that it is not there twice.
        self.__dict__["embed"] = model.get_input_embeddings()

    def forward_layer(self, i, hidden, positions, cache, input_ids):
        return self.layers[i](self.embed(input_ids), hidden)


# name -> (model_type, config, number of heads, what transformers needs to know of them, their names,
# what to change in the published config)
CASES = {
    "qwen3_5": ("qwen3_5_text", {**QWEN, "linear_num_value_heads": 6}, 1, FULL, shared, {"mtp_num_hidden_layers": 1}),
    "qwen3_next": (
        "qwen3_next",
        {**QWEN, **MOE, "shared_expert_intermediate_size": 40, "norm_topk_prob": True, "tie_word_embeddings": False},
        1, FULL, shared, {},
    ),
    "qwen3_5_moe": (
        "qwen3_5_moe_text",
        {**without(QWEN, "intermediate_size"), **MOE, "linear_num_value_heads": 6, "shared_expert_intermediate_size": 40,
         "tie_word_embeddings": False},
        1, FULL, shared, {"mtp_num_hidden_layers": 1},
    ),
    "glm4_moe_lite": (
        "glm4_moe_lite",
        {**without(SIZES, "head_dim"), **LATENT, **GROUPED, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
         "routed_scaling_factor": 1.7, "tie_word_embeddings": False, **rope("default", 100.0)},
        1, dict(mtp_mlp_layer_types=["sparse"]), behind, {"num_nextn_predict_layers": 1},
    ),
    "deepseek_v3": (
        "deepseek_v3",
        {**without(SIZES, "head_dim"), **LATENT, **GROUPED, "first_k_dense_replace": 1, "routed_scaling_factor": 1.7,
         "tie_word_embeddings": False, **rope("default", 100.0)},
        2, {}, behind, {"num_nextn_predict_layers": 2},
    ),
    "glm4_moe": (
        "glm4_moe",
        {**SIZES, **without(MOE, "num_experts"), "num_hidden_layers": 2, "n_routed_experts": 8, "n_group": 1, "topk_group": 1,
         "n_shared_experts": 1, "routed_scaling_factor": 2.5, "attention_bias": True, "use_qk_norm": True,
         "tie_word_embeddings": False, **rope("default", 100.0, partial_rotary_factor=0.5)},
        1, {}, behind, {"num_nextn_predict_layers": 1},
    ),
    "bailing_moe_v2": (
        "glm4_moe",
        {**SIZES, **without(MOE, "num_experts"), "num_hidden_layers": 2, "n_routed_experts": 8, "n_group": 4, "topk_group": 2,
         "n_shared_experts": 1, "routed_scaling_factor": 2.5, "attention_bias": False, "use_qk_norm": True,
         "tie_word_embeddings": False, **rope("default", 100.0, partial_rotary_factor=0.5)},
        1, {}, behind, {"num_nextn_predict_layers": 1},
    ),
    "nemotron_h": (
        "nemotron_h",
        {**without(SIZES, "num_hidden_layers", "rms_norm_eps"), "layers_block_type": ["linear_attention", "full_attention"],
         "mamba_num_heads": 6, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 12, "conv_kernel": 3, "chunk_size": 16,
         "use_conv_bias": True, "layer_norm_epsilon": 1e-5, "n_routed_experts": 6, "num_experts_per_tok": 2,
         "moe_intermediate_size": 8, "moe_shared_expert_intermediate_size": 40, "n_group": 1, "topk_group": 1,
         "norm_topk_prob": True, "routed_scaling_factor": 1.7, "mlp_hidden_act": "relu2", "tie_word_embeddings": False,
         "mtp_layers_block_type": ["full_attention", "moe"]},
        1, {}, in_layers, {"num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E"},
    ),
    "mimo": (
        "qwen2",
        {**SIZES, "num_hidden_layers": 2, "tie_word_embeddings": False, **rope("default", 100.0)},
        1, {**FULL, "mtp_hidden_states_first": True}, beside, {"model_type": "mimo", "num_nextn_predict_layers": 1},
    ),
}


def built(model_type, values, n, words):
    model = AutoModelForCausalLM.from_config(make_config(model_type, values)).float().eval()
    if model_type == "nemotron_h":
        return together(model, NemotronHead(model).float().eval())
    main = copy.deepcopy(model.config)
    model.config.num_mtp_layers = n
    for key, value in words.items():
        setattr(model.config, key, value * n if isinstance(value, list) else value)
    head = MtpModel(model, n).float().eval()
    model.config = main
    return together(model, head)


def together(model, head):
    """One module of both, called like the model: how a gain is drawn goes by that."""
    both = type(type(model).__name__ + "WithHeads", (torch.nn.Module,), {"tie_weights": lambda self: None})()
    both.model, both.head = model, head
    return both


@torch.no_grad()
def logits(both, ids, attention="kv16"):
    """Of both heads one after the other."""
    model, head = both.model, both.head
    for config in (model.config, head.config):
        config._attn_implementation = attention
    with rounded_latents(both) if attention == "kv16" else contextlib.nullcontext():
        out = model(input_ids=ids, use_cache=False, output_hidden_states=True)
        hidden, found = out.hidden_states[-1], []
        for ahead in (1, 2):
            i = min(ahead, head.num_mtp_layers) - 1
            tokens, hidden = ids[:, ahead:], hidden[:, : ids.shape[1] - ahead]
            # Positions of the second head are one later still, but in a cache of one head alone they are not.
            cache, first = None if isinstance(head, NemotronHead) else MtpCache(config=head.config), i + 1
            positions = torch.arange(first, first + tokens.shape[1])[None]
            hidden = head.forward_layer(i, hidden, positions, cache, input_ids=tokens)
            found.append(model.lm_head(hidden)[0].float())
    return found


def distance(a, b):
    return max(moved(x, y) for x, y in zip(a, b))


@torch.no_grad()
def least_term(both, ids):
    """The parameter of a head whose absence shows least, and how much it does."""
    right, worst = logits(both, ids), ("none", 1e9)
    for path, p in both.head.layers.named_parameters():
        kept = p.data.clone()
        p.data = torch.full_like(kept, neutral(both, path))
        worst = min(worst, (path, distance(right, logits(both, ids))), key=lambda w: w[1])
        p.data = kept
    return worst


def unstacked(name, tensor):
    """Experts one by one, as DeepSeek and GLM publish them."""
    if name.endswith("experts.gate_up_proj"):
        for e, both in enumerate(tensor):
            for part, rows in zip(("gate_proj", "up_proj"), both.chunk(2)):
                yield name.replace("gate_up_proj", f"{e}.{part}.weight"), rows
    elif name.endswith("experts.down_proj"):
        for e, rows in enumerate(tensor):
            yield name.replace("down_proj", f"{e}.down_proj.weight"), rows
    elif name.endswith("experts.up_proj"):
        for e, rows in enumerate(tensor):
            yield name.replace("up_proj", f"{e}.up_proj.weight"), rows
    else:
        yield name, tensor


def published(both, names, n_layers):
    state = {}
    for i, layer in enumerate(both.head.layers):
        table = names(i, n_layers)
        for key, tensor in layer.state_dict().items():
            part, rest = key.split(".", 1)
            name = f"{table[part]}.{rest}"
            for name, values in unstacked(name, tensor) if names in (behind, in_layers) else [(name, tensor)]:
                state[name] = values.to(torch.bfloat16 if "correction_bias" not in name else torch.float32).contiguous().clone()
        if names is behind:  # Copies of what they share.
            state[f"{table['mtp_block']}.embed_tokens.weight"] = both.model.get_input_embeddings().weight.to(torch.bfloat16).clone()
            state[f"{table['mtp_block']}.shared_head.head.weight"] = both.model.lm_head.weight.to(torch.bfloat16).clone()
    return state


def write_gguf(path, both, heads):
    """The same model as llama.cpp's converter has it, with the heads as layers behind the last one."""
    config, arch = both.model.config, "qwen35"
    writer = GGUFWriter(path, arch)
    # The writer of the sizes knows of two layers.
    gguf_logits.metadata(writer, arch, config)
    n = config.num_hidden_layers
    writer.kv_data[0][f"{arch}.block_count"].value = n + 1
    writer.add_nextn_predict_layers(1)
    names = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head_norm"}
    state = {name: p for name, p in both.model.state_dict().items() if name != "lm_head.weight"} | heads
    for name, p in state.items():
        name = name.replace("mtp.layers.0.", f"model.layers.{n}.")
        if name.startswith("mtp."):
            name = f"blk.{n}.nextn.{names[name.split('.')[1]]}.weight"
        stored, _ = gguf_logits.as_converted(arch, config, name, p.float().numpy())
        writer.add_tensor(name if ".nextn." in name else gguf_logits.gguf_name(arch, name), stored.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_case(folder, name, model_type, values, n, words, names, changes):
    folder = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    ids = torch.randint(3, VOCAB, (1, ROWS), generator=torch.Generator().manual_seed(7))
    for seed in range(300):
        both = built(model_type, values, n, words)
        randomise(both, seed)
        both.model.tie_weights()
        if names is shared and n > 1:
            sys.exit("tie what these heads share")
        if choice_margin(lambda: logits(both, ids, "eager")) > 2e-3:
            break
    copy.deepcopy(both.model).to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    state = load_file(folder / "model.safetensors")
    heads = published(both, names, both.model.config.num_hidden_layers)
    if name == "qwen3_5":
        write_gguf(folder / "model.gguf", both, heads)
    config, state = json.loads((folder / "config.json").read_text()) | changes, state | heads
    if name == "bailing_moe_v2":
        state, config = as_ling(state, config)
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    for key in ("mtp_layer_types", "mtp_mlp_layer_types", "num_mtp_layers", "mtp_hidden_states_first"):
        config.pop(key, None)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (folder / "input.json").write_text(json.dumps(ids[0].tolist()) + "\n")
    first, second = logits(both, ids)
    plain = logits(both, ids, "eager")
    write_f32(folder / "first_kv16.f32", first)
    write_f32(folder / "second_kv16.f32", second)
    worst = least_term(both, ids)
    print(f"{name:12} seed {seed}: {len(heads)} tensors of heads, least term {worst[0]} moves {worst[1]:.3f}, "
          f"f16 moves {distance(plain, (first, second)):.5f}")
    if worst[1] < 0.02:
        sys.exit(f"{name}: breaking {worst[0]} hardly shows")


if __name__ == "__main__":
    torch.set_num_threads(1)
    target = Path(sys.argv[1])
    for case in sys.argv[2:] or CASES:
        write_case(target, case, *CASES[case])
