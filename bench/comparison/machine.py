"""What the machine can do and what else it is doing: bandwidth, the int8 peak, foreign load, memory of a
process."""

import os
import pathlib
import re
import subprocess
import sys
import threading
import time

from .setup import Unavailable, run_logged

HERE = pathlib.Path(__file__).parent


def be_important():
    """Runs ahead of other programs, where this user may; our children inherit it."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    except PermissionError:
        pass
    return os.getpriority(os.PRIO_PROCESS, 0)


class ForeignLoad:
    """Processors kept busy by others since it was made, time stolen from the machine included. What this
    program and the children that it has waited for used is not foreign."""

    def __init__(self):
        self.start, self.before = time.monotonic(), self._seconds()

    def so_far(self):
        elapsed = time.monotonic() - self.start
        return max(0.0, (self._seconds() - self.before) / max(elapsed, 0.01))

    @staticmethod
    def _seconds():
        return _busy_ticks() / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])


def foreign_load(seconds):
    """Processors kept busy by others during a pause of ours."""
    load = ForeignLoad()
    time.sleep(seconds)
    return load.so_far()


def _busy_ticks():
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return user + nice + system + irq + softirq + steal


def describe():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    found = re.search(r"model name\s*:\s*(.*)", text)
    flags = set((re.search(r"flags\s*:\s*(.*)", text) or [""])[0].split())
    wide = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8") if flag in flags]
    name = found[1] if found else os.uname().machine
    return f"{name}, {os.cpu_count()} processors, {' '.join(wide)}"


class Limits:
    """Measures what bounds an engine, so that it can be told what share of it was reached."""

    def __init__(self, setup):
        self.threads = setup.threads
        self.programs = {}
        for name in ("membw", "int8peak"):
            program = setup.work / name
            options = ["-O3", "-march=native", "-pthread", "-o", program]
            try:
                run_logged(["cc", HERE / f"{name}.c", *options], setup.log(name))
                self.programs[name] = program
            except Unavailable as reason:
                print(f"no shares of a limit: {reason}", file=sys.stderr)

    def measure(self):
        """GB/s of streaming reads by one thread and by all, GMAC/s of int8 multiply-adds by all."""
        values = {}
        if program := self.programs.get("membw"):
            values |= {f"bandwidth_{n}": _output(program, n) for n in sorted({1, self.threads})}
        if program := self.programs.get("int8peak"):
            values["int8_peak"] = _output(program, self.threads)
        return values


def _output(program, argument):
    command = [str(program), str(argument)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


class MemoryWatch:
    """The most memory that a process used beside the model file's own pages.

    Anonymous and shared memory is looked at 20 times a second and the largest sum counts. Pages of mapped
    files other than the model (the program, its libraries) are added as they stood when last looked at,
    once a second and at the end. Pages of the model file that are mapped are the page cache's: they are
    there once for every program and go when memory is short, so they are left out for every engine alike.
    """

    def __init__(self, pid, model):
        self.pid, self.model = pid, os.path.realpath(model)
        self.peak = self.files = 0
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self):
        for turn in range(1_000_000):
            if self.done.wait(0.05):
                return
            self._look(turn % 20 == 5)

    def _look(self, files_too):
        try:
            status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
            kib = sum(int(n) for n in re.findall(r"^Rss(?:Anon|Shmem):\s*(\d+)", status, re.MULTILINE))
            self.peak = max(self.peak, kib)
            if files_too:
                self.files = self._other_files() or self.files
        except OSError:
            pass  # It has just ended.

    def _other_files(self):
        kib = path = 0
        with open(f"/proc/{self.pid}/smaps") as smaps:
            for line in smaps:
                if head := re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ (\d+)\s*(.*)", line):
                    path = head[2] if head[1] != "0" else ""
                elif path and line.startswith("Rss:") and not path.startswith(self.model):
                    kib += int(line.split()[1])
                elif path and line.startswith("Anonymous:") and not path.startswith(self.model):
                    kib -= int(line.split()[1])  # Private copies count as anonymous already.
        return kib

    def stop(self):
        """Megabytes."""
        self._look(files_too=True)
        self.done.set()
        self.thread.join()
        return (self.peak + self.files) * 1024 / 1e6
