"""What is measured, and what is hoped for: cells, rows of the table, goals."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Cell:
    """One measurement that an engine makes in one turn.

    `prefill` reads `n_prompt` tokens and `decode` writes `n_gen` after `depth`, both in the engine's own
    process; `serve` puts load on a server with room for `streams` requests; `start` only starts one with
    room for a single request.
    """

    key: str
    kind: str
    n_prompt: int = 0
    n_gen: int = 0
    depth: int = 0
    streams: int = 0

    @property
    def has_limit(self):
        """Whether the machine itself bounds it in a way that can be measured beside."""
        return self.kind in ("prefill", "decode")

    def for_context(self, context):
        """The same cell where it fits; a little less deep where the context ends before."""
        room = context - self.n_gen - 64
        return dataclasses.replace(self, depth=min(self.depth, room))


# Tokens that a single prompt over HTTP has, and the room of each request on the server.
PROMPT_TOKENS = 40
SLOT_TOKENS = 2048

GGUF_CELLS = [
    Cell("prefill-512", "prefill", n_prompt=512),
    Cell("prefill-2048", "prefill", n_prompt=2048),
    Cell("decode-short", "decode", n_gen=128),
    Cell("decode-2048", "decode", n_gen=64, depth=2048),
    Cell("decode-8192", "decode", n_gen=32, depth=8192),
    Cell("serve", "serve", n_gen=64, streams=8),
    Cell("start", "start", streams=1),
]
# mlx-lm is made for other machines and very slow on these: the same questions, but smaller ones.
MLX_CELLS = [
    GGUF_CELLS[0],
    Cell("prefill-64", "prefill", n_prompt=64),
    Cell("decode-16", "decode", n_gen=16),
    Cell("serve-mlx", "serve", n_gen=16, streams=4),
]
CELLS = {cell.key: cell for cell in GGUF_CELLS + MLX_CELLS}

HEARTH = "hearth"
PEERS = {
    "llama": "llama.cpp",
    "openvino": "OpenVINO GenAI",
    "mistral": "mistral.rs",
    "mlx": "mlx-lm",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table: one metric of one cell, and the goals it has."""

    title: str
    cell: str
    metric: str
    # Least ratio by peer; always "how many times better", so seconds and bytes are turned over.
    goals: dict = dataclasses.field(default_factory=dict)
    # Digits behind the point, and whether less is better.
    digits: int = 1
    less: bool = False
    # What bounds it: "bandwidth" or "int8", and the least share of it.
    limit: str = ""
    share: float = 0.0
    # Where an engine without a server has something to show instead: cell and metric.
    in_process: tuple = ()
    # The most that Hearth's own figure may be.
    at_most: float | None = None
    # Whether to be better than another means anything.
    compared: bool = True


def rows(source):
    """The lines of the table for one model, with the goals that hold for it."""
    if source.mlx:
        return [
            Row("prefill 512, tok/s", "prefill-512", "tok_s", {"mlx": 50}, limit="int8", share=0.6),
            Row("prefill 64, tok/s", "prefill-64", "tok_s"),
            Row("decode 16, tok/s", "decode-16", "tok_s", {"mlx": 15}, limit="bandwidth"),
            Row("4 streams of 16, tok/s (HTTP)", "serve-mlx", "streams_4", {"mlx": 50}),
            Row("first token of 40, ms (HTTP)", "serve-mlx", "ttft_ms", less=True),
            Row("start to ready, ms", "serve-mlx", "ready_ms", digits=0, less=True),
            Row("peak memory above the file, MB", "serve-mlx", "memory_mb", digits=0, less=True),
        ]
    tiny, large = source.key.startswith("smollm2"), source.key.startswith("qwen1.5b")
    first = {"llama": 2, "openvino": 1.6, "mistral": 8}
    deep = {"llama": 2.5, "openvino": 2.5, "mistral": 2.2}
    short = {"llama": 1.5 if tiny else 1.25, "openvino": 2, "mistral": 2.5}
    return [
        Row("prefill 512, tok/s", "prefill-512", "tok_s", first, limit="int8", share=0.6),
        Row("prefill 2048, tok/s", "prefill-2048", "tok_s", first | {"llama": 2.5}, limit="int8", share=0.6),
        Row("decode 128, tok/s", "decode-short", "tok_s", short, limit="bandwidth",
            share=0.92 if large else 0),
        Row("decode after 2048, tok/s", "decode-2048", "tok_s", deep, limit="bandwidth", share=0.75),
        Row("decode after 8192, tok/s", "decode-8192", "tok_s", deep, limit="bandwidth", share=0.75),
        Row("1 stream, tok/s (HTTP)", "serve", "streams_1"),
        Row("4 streams, tok/s (HTTP)", "serve", "streams_4", {"llama": 2.5}),
        Row("8 streams, tok/s (HTTP)", "serve", "streams_8", {"llama": 2.5}),
        Row("a step of 8 rows / of one (HTTP)", "serve", "row_cost", digits=2, less=True, compared=False,
            at_most=2.5 if source.key.startswith("qwen0.5b") else None),
        Row("first token of 40, ms (HTTP)", "serve", "ttft_ms", {"llama": 2.5}, less=True),
        Row("start to ready, one slot, ms", "start", "ready_ms", {"llama": 8}, 0, True,
            in_process=("decode-short", "load_ms"), at_most=100 if tiny else None),
        Row("start to ready, 8 slots, ms", "serve", "ready_ms", {"llama": 8}, 0, True),
        Row("peak memory above the file, MB", "serve", "memory_mb", {"llama": 2.5}, 0, True,
            in_process=("decode-short", "memory_mb")),
    ]
