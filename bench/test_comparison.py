"""Tests of the parts that do not measure: `python3 -m unittest discover --start-directory bench`."""

import json
import pathlib
import struct
import tempfile
import types
import unittest

from comparison import client, report, run
from comparison.cells import CELLS
from comparison.engines import Bench
from comparison.machine import MemoryWatch
from comparison.weights import Costs, Gguf, gguf_costs, mlx_costs


def gguf_bytes(metadata, tensors):
    """A GGUF file without data, written as its specification says."""

    def string(text):
        return struct.pack("<Q", len(text)) + text.encode()

    def value(v):
        if isinstance(v, str):
            return struct.pack("<I", 8) + string(v)
        if isinstance(v, list):
            return struct.pack("<IIQ", 9, 8, len(v)) + b"".join(map(string, v))
        return struct.pack("<II", 4, v)

    pairs = b"".join(string(key) + value(v) for key, v in metadata.items())
    table = b"".join(
        string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, 0)
        for name, (shape, kind) in tensors.items()
    )
    return struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata)) + pairs + table


METADATA = {
    "general.architecture": "llama", "llama.embedding_length": 256, "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2, "llama.block_count": 1, "llama.context_length": 8192,
    "tokenizer.ggml.tokens": ["a", "b"],
}
# Q4_0 has 18 bytes for 32 weights, Q6_K 210 for 256, F32 4 for one.
TENSORS = {
    "token_embd.weight": ((256, 100), 14),
    "blk.0.attn_q.weight": ((256, 256), 2),
    "blk.0.attn_norm.weight": ((256,), 0),
}


class Weights(unittest.TestCase):
    def costs(self, tensors):
        with tempfile.NamedTemporaryFile() as file:
            file.write(gguf_bytes(METADATA, tensors))
            file.flush()
            return gguf_costs(Gguf(file.name))

    def test_a_tied_embedding_is_read_for_every_token(self):
        costs = self.costs(TENSORS)
        self.assertEqual(costs.weight_bytes, 100 * 210 + 256 * 256 // 32 * 18 + 256 * 4)
        self.assertEqual(costs.prompt_macs, 256 * 256)
        # Two heads of 64 for keys and for values, two bytes each.
        self.assertEqual(costs.kv_bytes, 2 * 64 * 2 * 2)
        self.assertEqual(costs.decode_bytes(1000, 20), costs.weight_bytes + 1010 * 512)

    def test_an_embedding_beside_an_output_is_only_looked_up(self):
        costs = self.costs(TENSORS | {"output.weight": ((256, 100), 2)})
        self.assertEqual(costs.weight_bytes, 800 * 18 + 256 * 256 // 32 * 18 + 256 * 4)

    def test_mlx_counts_packed_words_and_scales(self):
        config = {"quantization": {"bits": 4}, "num_attention_heads": 4, "num_key_value_heads": 2,
                  "hidden_size": 256, "num_hidden_layers": 1, "max_position_embeddings": 512}
        name = "model.layers.0.self_attn.q_proj"
        header = json.dumps({
            f"{name}.weight": {"dtype": "U32", "shape": [256, 32]},
            f"{name}.scales": {"dtype": "F32", "shape": [256, 4]},
            "model.embed_tokens.weight": {"dtype": "U32", "shape": [10, 32]},
            "lm_head.weight": {"dtype": "U32", "shape": [10, 32]},
        }).encode()
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "config.json").write_text(json.dumps(config))
            (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
            costs = mlx_costs(folder)
        self.assertEqual(costs, Costs(256 * 32 * 4 + 256 * 4 * 4 + 10 * 32 * 4, 256 * 256, 512, 512))


class Frames(unittest.TestCase):
    def answer(self, *received):
        answer = client.Answer.__new__(client.Answer)
        answer.asked, answer.received = 0.0, list(received)
        return answer

    def test_times_are_those_of_texts(self):
        answer = self.answer(
            (1.0, b'data: {"choices":[{"text":""}]}\n\nda'),
            (2.0, b'ta: {"choices":[{"text":" a"}]}\n\n: still here\n\n'),
            (4.0, b'data: {"choices":[{"text":" b"}]}\n\n'),
            (5.0, b'data: {"choices":[],"usage":{"completion_tokens":3}}\n\ndata: [DONE]\n\n'),
        ).parse()
        self.assertEqual((answer.first, answer.last, answer.n_tokens), (2.0, 4.0, 3))
        self.assertEqual(client.together([answer]), 3 / 4)
        self.assertEqual(client.writing([answer, answer]), 2)

    def test_errors_are_not_figures(self):
        with self.assertRaises(client.Failed):
            self.answer((1.0, b'data: {"error":{"message":"no"}}\n\n')).parse()
        with self.assertRaises(client.Failed):
            self.answer((1.0, b"data: [DONE]\n\n")).parse()


class Memory(unittest.TestCase):
    def test_memory_of_this_process_is_seen(self):
        watch = MemoryWatch("self", "/no/model")
        ballast = bytearray(64 << 20)
        ballast[::4096] = b"x" * len(ballast[::4096])
        self.assertGreater(watch.stop(), 64)
        self.assertGreater(watch.files, 0)


COSTS = Costs(weight_bytes=100_000_000, prompt_macs=100_000_000, kv_bytes=20_000, context=8192)


def results(turns):
    made = run.Results("/no/such/file")
    made.data["about"] = {"machine": "M", "threads": 2, "nice": 0}
    made.data["models"]["smollm2-q4_0"] = vars(COSTS)
    for cell, engine, number, outcome in turns:
        turn = {"model": "smollm2-q4_0", "cell": cell, "engine": engine, "round": number}
        made.data["turns"].append({**turn, "busy": 0, "seconds": 1, **outcome})
    return made


class Reports(unittest.TestCase):
    def test_medians_ratios_and_shares(self):
        def speed(value):
            return {"values": {"tok_s": value}}

        turns = [("decode-short", "hearth", i, speed(v)) for i, v in enumerate([150, 100, 140])]
        turns += [("decode-short", "llama", i, speed(v)) for i, v in enumerate([70, 60, 80])]
        turns += [("decode-short", "mistral", 0, {"error": "over the limit of 9 s"})]
        turns += [("decode-short", "limits", 0, {"values": {"bandwidth_2": 28.0}})]
        lines = report.report(results(turns)).splitlines()
        row = next(line for line in lines if "decode 128" in line)
        # Per token 100 MB and half of 128 positions of 20 kB; 140 of them a second.
        self.assertEqual(row.split(" | ")[1:], [
            "140.0 (100.0–150.0)", "70.0 (60.0–80.0) **2.00×** (goal 1.5×: met)",
            "no figure [1]", "14.2 of 28.0 (28.0–28.0) GB/s = 51% |",
        ])
        self.assertIn("1. mistral.rs, decode-short: over the limit of 9 s", lines)

    def test_less_is_better_for_times(self):
        turns = [("start", "hearth", 0, {"values": {"ready_ms": 50.0}})]
        turns += [("start", "llama", 0, {"values": {"ready_ms": 300.0}})]
        row = next(line for line in report.report(results(turns)).splitlines() if "one slot" in line)
        self.assertIn("300 (300–300) **6.00×** (goal 8×: NOT met)", row)
        self.assertIn("at most 100: met", row)

    def test_missing_peers_are_named(self):
        made = results([("start", "hearth", 0, {"values": {"ready_ms": 50.0}})])
        made.data["missing"] = {"llama": "no compiler", "qwen0.5b-q4_0": "not here"}
        text = report.report(made)
        self.assertIn("1. llama.cpp: no compiler", text)
        self.assertIn("Not measured: not here", text)


class Turns(unittest.TestCase):
    def test_who_fails_is_not_asked_for_ever(self):
        failed, slow = {"error": "died"}, {"error": "over the limit of 9 s"}
        made = results([("start", "llama", 0, failed), ("serve", "llama", 0, slow)])
        self.assertFalse(made.gave_up("smollm2-q4_0", "start", "llama"))
        self.assertTrue(made.gave_up("smollm2-q4_0", "serve", "llama"))
        self.assertFalse(made.gave_up("smollm2-q4_0", "serve", "hearth"))

    def test_flash_attention_is_tried_once(self):
        made = results([("decode-2048", "llama", 0, {"values": {"tok_s": 1, "flash": "off"}})])
        self.assertEqual(made.flash("smollm2-q4_0", "decode-8192"), "off")
        self.assertIsNone(made.flash("smollm2-q4_0", "decode-short"))

    def test_depth_ends_before_the_context_does(self):
        self.assertEqual(CELLS["decode-8192"].for_context(8192).depth, 8192 - 32 - 64)
        self.assertEqual(CELLS["decode-8192"].for_context(32768).depth, 8192)

    def test_who_can_do_what(self):
        bench = Bench(None, types.SimpleNamespace(path=pathlib.Path("/no/model.gguf")), 1)
        can = [e for e in ("hearth", "llama", "openvino", "mistral", "mlx") if bench.can(e, CELLS["serve"])]
        self.assertEqual(can, ["hearth", "llama"])


if __name__ == "__main__":
    unittest.main()
