"""How each engine makes each measurement. One function call is one turn of one engine: it starts the
engine, measures and ends it."""

import json
import math
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import threading
import time

from . import client
from .cells import HEARTH, PROMPT_TOKENS, SLOT_TOKENS
from .machine import MemoryWatch

WORKERS = pathlib.Path(__file__).parent / "workers"
# Prompts whose first token is timed in one turn.
FIRST_TOKENS = 5
# Starts that are timed in one turn.
STARTS = 3
# How the reason begins when a turn took too long.
TOO_SLOW = "over the limit"
# What a peer says "no network" and "no reports" by.
QUIET = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}


class Failed(Exception):
    """The engine did not measure; the message is the reason the table shows."""


class Bench:
    """One model, and the engines that measure it. `limit` is the most seconds of one turn."""

    def __init__(self, setup, model, limit):
        self.setup, self.model, self.limit = setup, model, limit

    def can(self, engine, cell):
        """Whether the engine has this measurement at all: some come without a server."""
        if self.model.path.is_dir():
            return engine in (HEARTH, "mlx")
        servers = (HEARTH, "llama")
        return engine in servers or (engine != "mlx" and cell.kind in ("prefill", "decode"))

    def guess(self, cell):
        """Seconds of one turn, roughly, before anybody has timed one."""
        costs = self.model.costs
        macs = (2 * cell.n_prompt + 2 * cell.depth) * costs.prompt_macs
        tokens = cell.n_gen * (1 + 2 * cell.streams)
        return min(self.limit, 10 + macs / 40e9 + tokens * costs.weight_bytes / 10e9)

    def measure(self, engine, cell, seed, flash=None):
        """The metrics of one turn; `flash` is for `_llama`. Raises `Failed`."""
        cell = cell.for_context(self.model.costs.context)
        rng = random.Random(seed)
        try:
            if cell.kind == "serve":
                return self._serve(engine, cell, rng)
            if cell.kind == "start":
                return self._start(engine, cell)
            if engine == HEARTH:
                return self._hearth(cell)
            if engine == "llama":
                return self._llama(cell, flash)
            return self._worker(engine, cell, rng)
        except client.Failed as error:
            raise Failed(str(error)) from error

    # In the engine's own process.

    def _hearth(self, cell):
        command = [self.setup.hearth, "bench", self.model.path, "--json", "--offline", "--runs", 1,
                   "--threads", self.setup.threads, "--prompt", cell.n_prompt, "--gen", cell.n_gen,
                   "--depth", cell.depth]
        values = self._run(HEARTH, command)
        return {"tok_s": values.pop("output")[0]["tok_s"], **values}

    def _llama(self, cell, flash):
        """`flash` says whether with flash attention; none tries both and keeps the better."""
        tried = ["on", "off"] if flash is None else [flash]
        command = [self.setup.llama / "llama-bench", "-m", self.model.path, "-t", self.setup.threads,
                   "-p", cell.n_prompt, "-n", cell.n_gen, "-d", cell.depth, "-r", 1,
                   "-fa", ",".join(tried), "-o", "json"]
        values = self._run("llama", command)
        rates = {way: row["avg_ts"] for way, row in zip(tried, values.pop("output"), strict=True)}
        best = max(rates, key=rates.get)
        return {"tok_s": rates[best], "flash": best, "tried": rates, **values}

    def _worker(self, engine, cell, rng):
        lengths = [16, cell.n_prompt or cell.depth or 16]
        prompts = [dict(zip(("ids", "text"), self.model.prompt(n, rng))) for n in lengths]
        task = {"model": str(self.model.path), "kind": cell.kind, "n_gen": cell.n_gen,
                "threads": self.setup.threads, "prompts": prompts}
        command = [self.setup.python(engine), WORKERS / f"{engine}_worker.py"]
        values = self._run(engine, command, json.dumps(task))
        return {**values.pop("output"), **values}

    def _run(self, engine, command, stdin=""):
        """Runs a program that prints JSON; its output and the most memory it used."""
        log = self.setup.log(f"{engine}-run")
        with open(log, "w") as errors:
            process = subprocess.Popen(
                [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors, text=True, start_new_session=True, env=self._environment(),
            )
            memory = MemoryWatch(process.pid, self.model.path)
            try:
                output, _ = process.communicate(stdin, timeout=self.limit)
            except subprocess.TimeoutExpired as error:
                raise Failed(f"{TOO_SLOW} of {self.limit:.0f} s") from error
            finally:
                _kill(process)
                memory_mb = memory.stop()
        if process.returncode:
            raise Failed(f"ended with {process.returncode}: {_last_line(log)}")
        # Some print other things before.
        start = output.index("[\n") if "[\n" in output else output.rindex("{")
        return {"output": json.loads(output[start:]), "memory_mb": memory_mb}

    def _environment(self):
        threads = str(self.setup.threads)
        return {**os.environ, **QUIET, "RAYON_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}

    # Over HTTP.

    def _server(self, engine, port, streams):
        """Room for `streams` requests of `SLOT_TOKENS` tokens, and no caches of prompts where that can be."""
        tokens = streams * SLOT_TOKENS
        threads = self.setup.threads
        if engine == HEARTH:
            # One MiB more, for the tables that say which block is whose.
            kv_mib = math.ceil(tokens * self.model.costs.kv_bytes / (1 << 20)) + 1
            return [self.setup.hearth, "serve", self.model.path, "--offline", "--port", port,
                    "--threads", threads, "--max-seqs", streams, "--context", SLOT_TOKENS,
                    "--kv-memory", kv_mib, "--no-disk-cache"]
        if engine == "llama":
            return [self.setup.llama / "llama-server", "-m", self.model.path, "--port", port,
                    "-t", threads, "-np", streams, "-c", tokens, "--no-warmup",
                    "--cache-ram", 0, "--no-ui"]
        return [self.setup.python("mlx"), "-m", "mlx_lm", "server", "--model", self.model.path,
                "--port", port, "--log-level", "ERROR"]

    def _fields(self, engine):
        """Fields of a request: past the end of the text, and without the cache of prompts."""
        if engine == "mlx":
            return {"model": str(self.model.path), "logit_bias": {str(self.model.end_token): -100}}
        return {"ignore_eos": True, "cache_prompt": False}

    def _serve(self, engine, cell, rng):
        with Server(self, engine, cell.streams) as server:
            ask = client.Client(server.port, self._fields(engine), self.limit)

            def prompts(n):
                # mlx-lm's server takes texts only.
                return [self.model.prompt(PROMPT_TOKENS, rng)[engine == "mlx"] for _ in range(n)]

            ask.complete(prompts(1), 2)
            first = [ask.complete(prompts(1), 2)[0] for _ in range(FIRST_TOKENS)]
            first = [(answer.first - answer.asked) * 1e3 for answer in first]
            values = {"ready_ms": server.ready_ms, "ttft_ms": statistics.median(first), "ttft_ms_all": first}
            for n in (1, 4, 8):
                if n <= cell.streams:
                    answers = ask.complete(prompts(n), cell.n_gen)
                    values[f"streams_{n}"] = client.together(answers)
                    values[f"writing_{n}"] = client.writing(answers)
            if cell.streams == 8:
                values["row_cost"] = 8 * values["writing_1"] / values["writing_8"]
            return values | {"memory_mb": server.memory.stop()}

    def _start(self, engine, cell):
        times = []
        for _ in range(STARTS):
            with Server(self, engine, cell.streams) as server:
                times.append(server.ready_ms)
        return {"ready_ms": statistics.median(times), "ready_ms_all": times}


class Server:
    """A running server. `ready_ms` counts from the start of the process to the first good `/health`."""

    def __init__(self, bench, engine, streams):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        log = bench.setup.log(f"{engine}-serve")
        command = [str(part) for part in bench._server(engine, self.port, streams)]
        with open(log, "w") as file:
            start = time.perf_counter()
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
                env=bench._environment(),
            )
        self.memory = MemoryWatch(self.process.pid, bench.model.path)
        # Whoever waits for the server, for anything, is freed when the turn has lasted too long.
        self.limit, self.too_slow = bench.limit, False
        self.timer = threading.Timer(self.limit, self._time_is_up)
        self.timer.start()
        try:
            while not client.is_ready(self.port):
                if self.process.poll() is not None:
                    raise Failed(f"the server ended: {_last_line(log)}")
                time.sleep(0.002)
        except BaseException:
            self.__exit__()
            raise
        self.ready_ms = (time.perf_counter() - start) * 1e3

    def _time_is_up(self):
        self.too_slow = True
        _kill(self.process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.timer.cancel()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                pass
        _kill(self.process)
        self.memory.stop()
        if self.too_slow:
            raise Failed(f"{TOO_SLOW} of {self.limit:.0f} s")


def _kill(process):
    """Ends the process and whatever it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _last_line(log):
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else "no output"
