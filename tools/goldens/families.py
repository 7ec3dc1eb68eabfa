"""Tiny seeded models of every family with the logits that transformers computes for them in f32.

    python tools/goldens/families.py crates/models/tests/fixtures

Per case: `config.json` and `model.safetensors` as transformers saves them (bf16), `input.json` (token
ids), `logits.f32` (rows x vocab, little endian), and `logits_kv16.f32`: the same with keys and values
rounded to f16 before attention, which is how every Hearth device stores them. A case with variants
has a folder per variant with another config and other rounded logits for the same weights.

Default initialisation makes each layer nearly an identity and hides wrong terms, so weights are drawn
large, norm gains away from one, biases away from zero. `check_terms` then breaks every parameter and
every listed config key once and fails unless the logits move far beyond any tolerance.
"""

import contextlib
import copy
import importlib
import json
import pkgutil
import re
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import cases
from cases.sizes import ROWS, VOCAB

# Of all modules in the folder; name -> (model_type, config, variants {name: config changes}, config keys
# whose change must show).
CASES = {}
for module in pkgutil.iter_modules(cases.__path__, "cases."):
    CASES |= getattr(importlib.import_module(module.name), "CASES", {})


def make_config(model_type, values):
    config = AutoConfig.for_model(model_type, **copy.deepcopy(values))
    config._attn_implementation = "eager"
    return config


ROUTERS = (
    "mlp.gate.weight", "feed_forward.gate.weight", "mixer.gate.weight", "moe.gate.weight", "gate.wg.weight",
    "router.weight", "router.proj.weight",
)


def is_gain(name):
    return any(part in name for part in ("norm", "ln_")) and not name.endswith("bias")


def neutral(model, name):
    """What makes a parameter do nothing: the gain that is one, or zero."""
    if not is_gain(name):
        return 0.0
    kind = type(model).__name__
    lacks_one = any(part in kind for part in ("Gemma", "Qwen3Next", "Qwen3_5", "NemotronForCausalLM"))
    lacks_one = lacks_one and not any(part in kind for part in ("Gemma4", "Gemma3n"))
    return 0.0 if lacks_one and "linear_attn" not in name else 1.0


def scalars(model):
    """Stored numbers that are no parameters: what layers multiply the residual stream with."""
    return [(name, buffer) for name, buffer in model.named_buffers() if name.endswith("layer_scalar")]


def drawn(model):
    """Parameters, and buffers that are weights all the same."""
    corrections = [(n, b) for n, b in model.named_buffers() if n.endswith(("correction_bias", "expert_bias"))]
    return list(model.named_parameters()) + corrections


def randomise(model, seed):
    """Draws every parameter by its role; see the module's comment."""
    gen = torch.Generator().manual_seed(seed)
    one_plus = "Gemma" in type(model).__name__
    for name, p in sorted(drawn(model)):
        noise = torch.randn(p.shape, generator=gen)
        if is_gain(name):
            value = 0.35 * noise + neutral(model, name)
            if any(part in type(model).__name__ for part in ("Gemma4", "Gemma3n")) and "q_norm" in name:
                value *= 0.5  # Its scores have no other scale, and steep ones magnify what f16 rounds off.
        elif name.endswith(("A_log", "dt_bias", "conv1d.weight", ".D")):
            value = 0.8 * noise
        elif name.endswith("sinks"):
            value = 2.0 * noise
        elif name.endswith("correct_output_scale"):
            value = 0.35 * noise + 1.0
        elif name.endswith("modality_router.weight"):
            value = noise * p.shape[-1] ** 0.5  # What it reads is divided by as many as it has columns.
        elif name.endswith("bias"):
            value = 0.5 * noise
        elif "embed_tokens" in name:
            value = noise * (p.shape[-1] ** -0.5 if one_plus else 1.0)
        elif name.endswith(("router.scale", "per_expert_scale")):
            value = 0.35 * noise + 1.0
            if name.endswith("router.scale"):
                value *= p.shape[-1] ** 0.5  # It is divided by this.
        elif name.endswith(ROUTERS):
            value = 2.5 * noise * p.shape[-1] ** -0.5
        else:
            value = 1.3 * noise * p.shape[-1] ** -0.5
        p.data = value.to(torch.bfloat16).to(torch.float32)
    for _, scalar in scalars(model):
        scalar.data = (1 + 0.3 * torch.randn(scalar.shape, generator=gen)).to(torch.bfloat16).to(torch.float32)
    model.tie_weights()


def kv16(module, query, key, value, *args, **kwargs):
    """The family's own attention on keys and values as an f16 cache would give them back, before any factors."""
    eager = sys.modules[type(module).__module__].eager_attention_forward
    if hasattr(module, "expand_kv"):
        return eager(module, query, key, value, *args, **kwargs)
    factor = getattr(module.config, "attention_in_multiplier", 1.0)
    k, v = getattr(module, "key_multiplier", 1.0) * factor, factor
    return eager(module, query, (key / k).half().float() * k, (value / v).half().float() * v, *args, **kwargs)


ALL_ATTENTION_FUNCTIONS.register("kv16", kv16)
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask  # noqa: E402

ALL_MASK_ATTENTION_FUNCTIONS.register("kv16", eager_mask)


@contextlib.contextmanager
def rounded_latents(model):
    """Rounds what latent attention keeps to f16: not keys and values, but what they are made of."""
    modules = [m for m in model.modules() if hasattr(m, "expand_kv")]
    for m in modules:
        m.expand_kv = lambda *kept, expand=m.expand_kv: expand(*(x.half().float() for x in kept))
    yield
    for m in modules:
        del m.expand_kv


@torch.no_grad()
def logits(model, ids, attention="eager"):
    model.config._attn_implementation = attention
    with rounded_latents(model) if attention == "kv16" else contextlib.nullcontext():
        out = model(input_ids=ids, use_cache=False).logits[0].float()
    model.config._attn_implementation = "eager"
    return out


def rebuilt(model_type, values, state):
    model = AutoModelForCausalLM.from_config(make_config(model_type, values)).float().eval()
    model.load_state_dict(state)
    return model


def moved(a, b):
    """The largest change of a logit, in standard deviations of the logits."""
    return ((a - b).abs().max() / a.std()).item()


@torch.no_grad()
def check_terms(name, model_type, values, keys, model, ids):
    right = logits(model, ids)
    worst = ("none", 1e9)
    # The last layer's number meets a norm, which takes it back.
    for path, p in [*drawn(model), *scalars(model)[:-1]]:
        kept = p.data.clone()
        p.data = torch.full_like(kept, 1.0 if path.endswith("layer_scalar") else neutral(model, path))
        worst = min(worst, (path, moved(right, logits(model, ids))), key=lambda w: w[1])
        p.data = kept
    state = model.state_dict()
    for key, value in keys.items():
        broken = rebuilt(model_type, {**values, key: value}, state)
        worst = min(worst, (key, moved(right, logits(broken, ids))), key=lambda w: w[1])
    if worst[1] < 0.02:
        sys.exit(f"{name}: breaking {worst[0]} moves the logits by {worst[1]:.4f} deviations only")
    return worst


def router_margin(model, ids):
    """The smallest gap between the last chosen and the first left out expert: in logits, or, where they
    are not what is compared, in what is."""
    gaps = []
    top_k = getattr(model.config, "num_experts_per_tok", getattr(model.config, "top_k_experts", None))
    n_experts = getattr(model.config, "num_experts", None)

    def look(module, args, out):
        logits = out if torch.is_tensor(out) else out[0]
        if logits.dim() == 2 and logits.shape[-1] == n_experts:
            ranked, k = logits.sort(-1, descending=True).values, getattr(module, "top_k", top_k)
            gaps.append((ranked[:, k - 1] - ranked[:, k]).min().item())

    hooks = [m.register_forward_hook(look) for n, m in model.named_modules() if n.endswith(("mlp.gate", "router.proj"))]
    logits(model, ids)
    for hook in hooks:
        hook.remove()
    corrected = any("bias" in name for name, _ in drawn(model)[len(list(model.named_parameters())):])
    return min(gaps) if gaps and not corrected else choice_margin(lambda: logits(model, ids))


def choice_margin(run):
    """The same of whatever `run` asks `topk` for, times four: a sigmoid is at most a fourth as steep as its
    logit."""
    gaps, plain = [], torch.Tensor.topk

    def topk(x, k, dim=-1, largest=True, sorted=True):
        if k < x.shape[dim]:
            ranked = plain(x, k + 1, dim).values
            gaps.append((ranked.select(dim, k - 1) - ranked.select(dim, k)).min().item())
        return plain(x, k, dim, largest, sorted)

    torch.Tensor.topk = torch.topk = topk
    try:
        run()
    finally:
        torch.Tensor.topk = torch.topk = plain
    return 4 * min(gaps, default=1.0)


def published(key):
    """What published files call a tensor, where transformers reads that name but writes another one."""
    if re.search(r"block_sparse_moe\.(gate|up|down)_proj", key):
        return key.replace("block_sparse_moe", "mlp")  # Dense layers of Kimi Linear.
    return key


def write_f32(path, tensor):
    path.write_bytes(tensor.contiguous().numpy().astype("<f4").tobytes())


def write_case(folder, name, model_type, values, variants, keys):
    folder = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    ids = torch.randint(3, VOCAB, (1, ROWS), generator=torch.Generator().manual_seed(7))
    for seed in range(20):
        model = AutoModelForCausalLM.from_config(make_config(model_type, values)).float().eval()
        randomise(model, seed)
        if router_margin(model, ids) > 2e-3:
            break
    # A copy, because the frequencies of the rotation would be rounded to bf16 with the weights.
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    state = {published(key): tensor for key, tensor in load_file(folder / "model.safetensors").items()}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    (folder / "input.json").write_text(json.dumps(ids[0].tolist()) + "\n")
    worst = check_terms(name, model_type, values, keys, model, ids)
    size = (folder / "model.safetensors").stat().st_size
    print(f"{name:12} seed {seed} {size:7} bytes; least term {worst[0]} moves {worst[1]:.3f}")
    base = write_logits(folder, model, ids)
    write_f32(folder / "logits.f32", base)
    for variant, changes in variants.items():
        other = rebuilt(model_type, {**values, **changes}, model.state_dict())
        other.config.save_pretrained(folder / variant)
        distance = moved(base, write_logits(folder / variant, other, ids))
        print(f"    {variant:12} differs by {distance:.3f}")
        if distance < 0.02:
            sys.exit(f"{name}/{variant} is not a test: its logits are those of {name}")


def write_logits(folder, model, ids):
    plain, rounded = logits(model, ids), logits(model, ids, "kv16")
    write_f32(folder / "logits_kv16.f32", rounded)
    print(f"    std {plain.std():.3f}, f16 keys and values move {moved(plain, rounded):.5f}")
    return plain


if __name__ == "__main__":
    torch.set_num_threads(1)
    target = Path(sys.argv[1])
    wanted = sys.argv[2:] or CASES
    for case in wanted:
        write_case(target, case, *CASES[case])
