"""What a model file says about itself: bytes and multiply-adds per token, and words to make prompts of.

Reads the headers of GGUF and of MLX safetensors; never the weights.
"""

import dataclasses
import json
import math
import pathlib
import random
import re
import struct

# Elements and bytes of one block, by the type numbers of the GGUF specification.
BLOCKS = {
    0: (1, 4), 1: (1, 2), 30: (1, 2),  # F32, F16, BF16
    2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),  # Q4_0 Q4_1 Q5_0 Q5_1 Q8_0
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),  # Q2_K to Q6_K
    20: (32, 18), 39: (32, 17),  # IQ4_NL, MXFP4
}
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
SAFETENSORS_BYTES = {"F32": 4, "U32": 4, "F16": 2, "BF16": 2}


@dataclasses.dataclass(frozen=True)
class Costs:
    """What one token costs, whoever computes it."""

    # Bytes of weights that one decoded token has to read: all but an embedding that is only looked up.
    weight_bytes: int
    # Multiply-adds of the layers' matrices for one token of a prompt. Attention and the output matrix,
    # which only the last token of a prompt needs, are not in it.
    prompt_macs: int
    # Bytes of keys and values that one position of context adds, at 16 bits each.
    kv_bytes: int
    # Tokens of context the model was made for.
    context: int

    def decode_bytes(self, depth, n_gen):
        """Bytes read per token, on average, while `n_gen` tokens follow `depth` tokens."""
        return self.weight_bytes + self.kv_bytes * (depth + n_gen / 2)


class Gguf:
    """The header of a GGUF file (version 2 or 3): `metadata` by key, `tensors` as name to (shape, type)."""

    def __init__(self, path):
        with open(path, "rb") as self.file:
            magic, version, n_tensors, n_pairs = struct.unpack("<4sIQQ", self.file.read(24))
            if magic != b"GGUF" or version not in (2, 3):
                raise ValueError(f"{path} is not a GGUF file of version 2 or 3")
            self.metadata = {self._string(): self._value(self._number("I")) for _ in range(n_pairs)}
            self.tensors = dict(self._tensor() for _ in range(n_tensors))

    def _number(self, code):
        return struct.unpack("<" + code, self.file.read(struct.calcsize("<" + code)))[0]

    def _string(self):
        return self.file.read(self._number("Q")).decode("utf-8", "replace")

    def _value(self, kind):
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            element, length = self._number("I"), self._number("Q")
            if element in SCALARS:
                code = f"<{length}{SCALARS[element]}"
                return list(struct.unpack(code, self.file.read(struct.calcsize(code))))
            return [self._value(element) for _ in range(length)]
        return self._number(SCALARS[kind])

    def _tensor(self):
        name = self._string()
        shape = [self._number("Q") for _ in range(self._number("I"))]
        kind = self._number("I")
        self._number("Q")  # Where the data starts.
        return name, (shape, kind)


def gguf_costs(gguf):
    architecture = gguf.metadata["general.architecture"]

    def of(key, default=None):
        return gguf.metadata.get(f"{architecture}.{key}", default)

    tied = "output.weight" not in gguf.tensors
    weight_bytes = prompt_macs = 0
    for name, (shape, kind) in gguf.tensors.items():
        elements, block_bytes = BLOCKS[kind]
        if tied or name != "token_embd.weight":
            weight_bytes += math.prod(shape) // elements * block_bytes
        if name.startswith("blk.") and len(shape) == 2:
            prompt_macs += math.prod(shape)
    heads = of("attention.head_count")
    head = of("embedding_length") // heads
    per_layer = of("attention.head_count_kv", heads) * (
        of("attention.key_length", head) + of("attention.value_length", head)
    )
    kv_bytes = 2 * of("block_count") * per_layer
    return Costs(weight_bytes, prompt_macs, kv_bytes, of("context_length"))


def mlx_costs(folder):
    config = json.loads((folder / "config.json").read_text())
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        with open(file, "rb") as f:
            tensors |= json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    tensors.pop("__metadata__", None)
    tied = not any(name.startswith("lm_head.") for name in tensors)
    per_word = 32 // config["quantization"]["bits"]
    weight_bytes = prompt_macs = 0
    for name, tensor in tensors.items():
        n = math.prod(tensor["shape"])
        if tied or not name.startswith("model.embed_tokens."):
            weight_bytes += n * SAFETENSORS_BYTES[tensor["dtype"]]
        if ".layers." in name and name.endswith(".weight") and len(tensor["shape"]) == 2:
            prompt_macs += n * (per_word if tensor["dtype"] == "U32" else 1)
    heads = config["num_attention_heads"]
    head = config.get("head_dim") or config["hidden_size"] // heads
    kv_bytes = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * 2 * head
    return Costs(weight_bytes, prompt_macs, kv_bytes, config["max_position_embeddings"])


class Model:
    """A model on disk: its costs and its words."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        if self.path.is_dir():
            self.costs = mlx_costs(self.path)
            tokenizer = json.loads((self.path / "tokenizer.json").read_text())
            vocabulary = tokenizer["model"]["vocab"].items()
            config = json.loads((self.path / "config.json").read_text())
            self.end_token = config["eos_token_id"]
        else:
            gguf = Gguf(self.path)
            self.costs = gguf_costs(gguf)
            vocabulary = ((text, i) for i, text in enumerate(gguf.metadata["tokenizer.ggml.tokens"]))
            self.end_token = gguf.metadata["tokenizer.ggml.eos_token_id"]
        # Words that are one token each, with the space before them (written as U+0120).
        self.words = sorted((i, text[1:]) for text, i in vocabulary if re.fullmatch("\u0120[a-z]{3,9}", text))
        if len(self.words) < 1000:
            raise ValueError(f"{path}: too few words in the vocabulary to make prompts of")

    def prompt(self, n_tokens, rng: random.Random):
        """Random words: as token ids, and as a text that has about as many tokens."""
        chosen = rng.choices(self.words, k=n_tokens)
        return [i for i, _ in chosen], " ".join(word for _, word in chosen)
