"""The alternating run: who measures what when, and the file that keeps every value."""

import hashlib
import json
import mmap
import os
import pathlib
import random
import sys
import time

from . import models
from .cells import CELLS, GGUF_CELLS, HEARTH, MLX_CELLS, PEERS
from .engines import TOO_SLOW, Bench, Failed
from .machine import ForeignLoad, Limits, be_important, describe, foreign_load
from .setup import LLAMA, PACKAGES, Unavailable
from .weights import Model

# More of a processor than this used by others makes figures worthless.
QUIET_ENOUGH = 0.15
# Seconds to wait before a turn for others to be done.
PATIENCE = 60
LIMITS = "limits"


class Results:
    """All that was measured, in one JSON file that is rewritten after every turn."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.data = {"about": {}, "models": {}, "missing": {}, "turns": []}
        if self.path.exists():
            self.data = json.loads(self.path.read_text())

    def save(self):
        part = self.path.with_name(self.path.name + ".part")
        part.write_text(json.dumps(self.data, indent=1))
        part.replace(self.path)

    def turns(self, model, cell, engine):
        key = (model, cell, engine)
        return [t for t in self.data["turns"] if (t["model"], t["cell"], t["engine"]) == key]

    def has(self, model, cell, engine, number):
        return any(t["round"] == number for t in self.turns(model, cell, engine))

    def gave_up(self, model, cell, engine):
        """Whether it is no use to try again: never succeeded, and failed twice or was too slow when the
        machine was quiet."""
        turns = self.turns(model, cell, engine)
        failed = [t for t in turns if "error" in t]
        too_slow = any(t["error"].startswith(TOO_SLOW) and t["busy"] <= QUIET_ENOUGH for t in failed)
        return len(failed) == len(turns) and (len(failed) > 1 or too_slow)

    def flash(self, model, cell):
        """Whether flash attention was better for llama.cpp when both were tried, in the first round. At
        the greatest depth a trial would take too long; what is better at 2048 is taken."""
        for where in (cell, "decode-2048" if cell == "decode-8192" else cell):
            for turn in self.turns(model, where, "llama"):
                if "values" in turn and "flash" in turn["values"]:
                    return turn["values"]["flash"]
        return None

    def seconds(self, model, cell, engine):
        """The longest turn so far, if there was one."""
        return max((t["seconds"] for t in self.turns(model, cell, engine)), default=None)


class Run:
    """`options` are those of the command line."""

    def __init__(self, setup, options):
        self.setup, self.options = setup, options
        self.results = Results(options.out)
        self.deadline = time.monotonic() + options.minutes * 60 if options.minutes else None
        self.begun = False

    def prepare(self):
        """Installs, fetches, converts. Whatever cannot be had is noted with its reason."""
        missing = self.results.data["missing"]
        for name in [*self.options.peers, *self.options.models]:
            missing.pop(name, None)
        self.setup.install(self.options.peers)
        missing |= self.setup.missing
        self.benches = {}
        for key in self.options.models:
            source = models.SOURCES[key]
            try:
                model = Model(models.prepare(source, self.setup))
                self.benches[key] = Bench(self.setup, model, self.options.limit)
                self.results.data["models"][key] = vars(model.costs)
            except Unavailable as reason:
                missing[key] = str(reason)
                print(f"{key} is left out: {reason}", file=sys.stderr)
        self.limits = Limits(self.setup)

    def measure(self):
        """All rounds, or as many as the time allows. True when nothing is left to do."""
        self._check_quiet()
        self._say_about()
        for number in range(self.options.rounds):
            for key, bench in self.benches.items():
                for cell in self._cells(bench):
                    if not self._round(key, bench, cell, number):
                        return False
        return True

    def _say_about(self):
        """What the figures belong to. Figures of two builds, or of two machines, are not mixed."""
        with open(self.setup.hearth, "rb") as binary:
            build = hashlib.file_digest(binary, "sha256").hexdigest()[:16]
        about = {"machine": describe(), "threads": self.setup.threads, "hearth": build, "llama": LLAMA,
                 **{peer: " ".join(packages) for peer, packages in PACKAGES.items()}}
        before = {key: self.results.data["about"].get(key, value) for key, value in about.items()}
        if before != about:
            sys.exit(f"{self.results.path} holds figures of another build, machine or setting: "
                     "give another --out")
        self.results.data["about"] = about | {"nice": be_important()}

    def _check_quiet(self):
        busy, load = foreign_load(3), os.getloadavg()[0]
        if busy > QUIET_ENOUGH and not self.options.anyway:
            sys.exit(f"{busy:.2f} processors are busy with other programs (load average {load:.1f}): "
                     "figures would be worthless. Wait, or add --anyway.")
        if busy > QUIET_ENOUGH or load > 1:
            print(f"WARNING: {busy:.2f} processors busy, load average {load:.1f}", file=sys.stderr)

    def _cells(self, bench):
        cells = MLX_CELLS if bench.model.path.is_dir() else GGUF_CELLS
        return [cell for cell in cells if cell.key in self.options.cells]

    def _round(self, key, bench, cell, number):
        """Every engine's turn, in an order drawn anew; False when the time is up before the end."""
        peers = [peer for peer in self.options.peers if peer not in self.setup.missing]
        order = [engine for engine in [HEARTH, *peers] if bench.can(engine, cell)]
        order += [LIMITS] if cell.has_limit else []
        # Every cell and round has its own seed, so a run that is cut and taken up draws the same orders.
        seed = f"{self.options.seed} {key} {cell.key} {number}"
        random.Random(seed).shuffle(order)
        waiting = [
            engine for engine in order
            if not self.results.has(key, cell.key, engine, number)
            and not self.results.gave_up(key, cell.key, engine)
        ]
        if waiting:
            self._warm(bench.model.path)
        for engine in waiting:
            if not self._has_time(key, bench, cell, engine):
                return False
            self._turn(key, bench, cell, number, engine, seed)
        return True

    def _has_time(self, key, bench, cell, engine):
        """Whether a turn fits before the deadline; the first one always does, so that there is an end."""
        if not self.deadline or not self.begun:
            return True
        seconds = self.results.seconds(key, cell.key, engine)
        seconds = seconds or (5 if engine == LIMITS else bench.guess(cell))
        return time.monotonic() + seconds < self.deadline

    def _turn(self, key, bench, cell, number, engine, seed):
        self.begun = True
        busy = self._pause()
        turn = {"model": key, "cell": cell.key, "engine": engine, "round": number,
                "at": time.strftime("%Y-%m-%dT%H:%M:%S")}
        start, meanwhile = time.monotonic(), ForeignLoad()
        try:
            if engine == LIMITS:
                turn["values"] = self.limits.measure()
            else:
                turn["values"] = bench.measure(engine, cell, seed, self.results.flash(key, cell.key))
            shown = ", ".join(f"{k} {v:.4g}" for k, v in turn["values"].items() if isinstance(v, float))
        except Failed as error:
            turn["error"] = shown = str(error)
        busy = turn["busy"] = round(max(busy, meanwhile.so_far()), 3)
        turn["seconds"] = time.monotonic() - start + self.options.cooldown
        warning = f"  (others use {busy:.2f} processors)" if busy > QUIET_ENOUGH else ""
        print(f"{number + 1} {key:<17} {cell.key:<13} {engine:<9} {shown}{warning}", file=sys.stderr)
        self.results.data["turns"].append(turn)
        self.results.save()

    def _pause(self):
        """Cools down, longer while others are busy; processors they used at the end of it."""
        patience = time.monotonic() + (0 if self.options.anyway else PATIENCE)
        while True:
            busy = foreign_load(self.options.cooldown)
            if busy <= QUIET_ENOUGH or time.monotonic() > patience:
                return busy

    @staticmethod
    def _warm(path):
        """Reads the model anew, so that everybody finds it in the page cache, and in pages as large as the
        system gives: what is there already stays in the pieces in which it was once written."""
        for file in path.glob("*.safetensors") if path.is_dir() else [path]:
            with open(file, "rb") as f:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                    mapped.madvise(mmap.MADV_HUGEPAGE)
                    for at in range(0, len(mapped), mmap.PAGESIZE):
                        mapped[at]


def check_names(cells, wanted, peers):
    """Says which names there are when one is wrong."""
    for names, known in ((cells, CELLS), (wanted, models.SOURCES), (peers, PEERS)):
        if unknown := [name for name in names if name not in known]:
            sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
