"""What transformers takes for the keys of every family's config, and which of them its code reads.

    python tools/goldens/settings.py crates/models/tests/fixtures/settings.json

Per `model_type`: `defaults`, the value of every key that a config may leave out, and `aliases`, other names
under which a key is read too. Only keys that the modelling code names, and that its forward pass depends
on: `HARMLESS` are those that are for training, for losses, for the batches of kernels, or for what answers
look like.
"""

import ast
import dataclasses
import importlib
import json
import math
import re
import sys
from pathlib import Path

from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as MODELS

FAMILIES = Path(__file__).parents[2] / "crates/models/src/families/mod.rs"
HARMLESS = re.compile(
    r"\w*initializer_\w+|init_\w+|\w*dropout\w*|\w+_pdrop|use_cache|\w+_token_id|output_\w+|return_dict|router_aux_loss_coef"
    r"|router_jitter_noise|pretraining_tp|num_logits_to_keep|\w*chunk_size|use_mamba_kernels|rescale_prenorm_residual"
    r"|time_step_(min|max|floor|rank|scale)|gradient_checkpointing|summary_\w+|scale_attn_by_inverse_layer_idx|reorder_and_upcast_attn"
    r"|num_labels|residual_in_fp32|dtype|add_cross_attention|embedding_dropout|mamba_ssm_cache_dtype|problem_type"
)
# Said by the sizes of other keys, or another spelling of `rope_parameters`.
DERIVED = {"layers_block_type", "rope_parameters"}
BASE = {field.name for field in dataclasses.fields(PreTrainedConfig)}


def model_types():
    lines = re.findall(r"^    \w+: (\"[^;]+);$", FAMILIES.read_text(), re.M)
    return sorted(name for line in lines for name in re.findall(r'"(\w+)"', line))


def modelling(cls):
    return Path(importlib.import_module(cls.__module__).__file__.replace("configuration_", "modeling_"))


def words(path):
    """Names of attributes and texts of a program, without its descriptions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            found.add(node.value)
        elif isinstance(node, ast.Name):
            found.add(node.id)
    return found


def as_json(value):
    if isinstance(value, float) and math.isinf(value):
        return {"__float__": "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, (list, tuple)):
        return [as_json(x) for x in value]
    if isinstance(value, dict):
        return {key: as_json(x) for key, x in value.items()}
    return value


def settings(model_type):
    cls = CONFIG_MAPPING[model_type]
    known = words(modelling(cls))
    if "create_sliding_window_causal_mask" in known:
        known |= {"sliding_window"}
    config = cls()
    aliases = dict(cls.attribute_map)
    defaults = {}
    for field in dataclasses.fields(cls):
        name, stored = field.name, aliases.get(field.name, field.name)
        names = {name, stored} | {alias for alias, of in aliases.items() if of == stored}
        if (name in BASE and name != "tie_word_embeddings") or HARMLESS.fullmatch(name) or name in DERIVED:
            continue
        if not names & known and name != "tie_word_embeddings":
            continue
        if field.default is not dataclasses.MISSING:
            defaults[stored] = as_json(field.default)
    if ropes := getattr(config, "rope_parameters", None):
        defaults["rope_parameters"] = as_json(ropes)
    return {"defaults": defaults, "aliases": {alias: of for alias, of in aliases.items() if of in defaults}}


if __name__ == "__main__":
    out = {}
    for model_type in model_types():
        # Wrappers have nothing of their own; code that lies elsewhere is not looked for.
        cls = CONFIG_MAPPING[model_type] if model_type in CONFIG_MAPPING else None
        if cls is None or model_type not in MODELS or cls.sub_configs or not modelling(cls).is_file():
            print("left out:", model_type)
            continue
        out[model_type] = settings(model_type)
    lines = [f" {json.dumps(name)}: {json.dumps(what, sort_keys=True)}" for name, what in out.items()]
    Path(sys.argv[1]).write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(len(out), "families", sum(len(what["defaults"]) for what in out.values()), "keys")
