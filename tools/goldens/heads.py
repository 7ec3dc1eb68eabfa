"""Tiny seeded models with draft heads, and what transformers' MtpModel makes of them in f32.

    python tools/goldens/heads.py crates/models/tests/fixtures/heads

Per case: `config.json`, `model.safetensors` with the heads under the names that published files have for
them, `input.json`, and logits with keys and values rounded to f16: `first_kv16.f32` of the first head for
all tokens but the last, and `second_kv16.f32` of what comes after it, the second head or the same one
once more, fed with what the first one has made of each position. One case is there as llama.cpp's converter
has it besides.

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


def beside(i, n_layers):
    """MiMo's are layers of their own."""
    layer = f"model.mtp_layers.{i}"
    names = dict(enorm="token_layernorm", hnorm="hidden_layernorm", eh_proj="input_proj", post_norm="final_layernorm")
    return {name: f"{layer}.{own}" for name, own in names.items()} | {"mtp_block": layer}


# name -> (model_type, config, number of heads, what transformers needs to know of them, their names,
# what to change in the published config)
CASES = {
    "qwen3_5": ("qwen3_5_text", {**QWEN, "linear_num_value_heads": 6}, 1, FULL, shared, {"mtp_num_hidden_layers": 1}),
    "qwen3_next": (
        "qwen3_next",
        {**QWEN, **MOE, "shared_expert_intermediate_size": 40, "norm_topk_prob": True, "tie_word_embeddings": False},
        1, FULL, shared, {},
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
    "mimo": (
        "qwen2",
        {**SIZES, "num_hidden_layers": 2, "tie_word_embeddings": False, **rope("default", 100.0)},
        1, {**FULL, "mtp_hidden_states_first": True}, beside, {"model_type": "mimo", "num_nextn_predict_layers": 1},
    ),
}


def built(model_type, values, n, words):
    model = AutoModelForCausalLM.from_config(make_config(model_type, values)).float().eval()
    main = copy.deepcopy(model.config)
    model.config.num_mtp_layers = n
    for key, value in words.items():
        setattr(model.config, key, value * n if isinstance(value, list) else value)
    head = MtpModel(model, n).float().eval()
    model.config = main
    # One module of both, called like the model: how a gain is drawn goes by that.
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
            cache, first = MtpCache(config=head.config), i + 1
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
    else:
        yield name, tensor


def published(both, names, n_layers):
    state = {}
    for i, layer in enumerate(both.head.layers):
        table = names(i, n_layers)
        for key, tensor in layer.state_dict().items():
            part, rest = key.split(".", 1)
            for name, values in unstacked(f"{table[part]}.{rest}", tensor) if names is behind else [(f"{table[part]}.{rest}", tensor)]:
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
    for seed in range(60):
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
    heads = published(both, names, values["num_hidden_layers"])
    save_file(state | heads, folder / "model.safetensors", {"format": "pt"})
    if name == "qwen3_5":
        write_gguf(folder / "model.gguf", both, heads)
    config = json.loads((folder / "config.json").read_text())
    for key in ("mtp_layer_types", "num_mtp_layers", "mtp_hidden_states_first"):
        config.pop(key, None)
    (folder / "config.json").write_text(json.dumps(config | changes, indent=2, sort_keys=True) + "\n")
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
