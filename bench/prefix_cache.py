#!/usr/bin/env python3
"""Time to the first token of a long prompt: cold, with its beginning in memory, and with its beginning on
disk after a restart; and whether all three say the same.

    python3 bench/prefix_cache.py target/release/hearth [MODEL] [--rounds 5] [--threads 2]

Standard library only. Every round has a new prompt of random tokens. Prints the median of each arm and its
share of the cold one.
"""

import argparse
import http.client
import json
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time


class Server:
    """`hearth serve` on a free port, with its disk cache in `folder`."""

    def __init__(self, options, folder):
        command = [options.hearth, "serve", options.model, "--offline", "--port", "0"]
        command += ["--cache-disk-dir", folder, *options.serve]
        if options.threads:
            command += ["--threads", str(options.threads)]
        self.log = tempfile.TemporaryFile("w+")
        begun = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        self.ready = time.perf_counter() - begun
        if "http://" not in line:
            self.log.seek(0)
            sys.exit(f"the server did not start:\n{self.log.read()}")
        self.port = int(line.split("http://")[1].split("/")[0].rsplit(":", 1)[1])

    def first_token(self, prompt, max_tokens=8):
        """Seconds to the first text, all of the text, and the usage."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "stream": True,
                "ignore_eos": True, "stream_options": {"include_usage": True}}
        begun = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            sys.exit(f"{response.status}: {response.read().decode()}")
        first, text, usage = None, "", None
        for line in response:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            frame = json.loads(line[6:])
            usage = frame.get("usage") or usage
            for choice in frame.get("choices", []):
                if choice.get("text"):
                    first = first or time.perf_counter() - begun
                    text += choice["text"]
        connection.close()
        return first, text, usage

    def stop(self):
        begun = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        return time.perf_counter() - begun


def arguments():
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("hearth", help="the program")
    parser.add_argument("model", nargs="?", default="default")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--threads", type=int, metavar="N")
    parser.add_argument("--shared", type=int, default=2000, metavar="N", help="tokens that come again")
    parser.add_argument("--new", type=int, default=50, metavar="N", help="tokens that do not")
    parser.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="more for `hearth serve`")
    return parser.parse_args()


def main():
    options = arguments()
    seconds = {"cold": [], "memory": [], "disk": []}
    ready, stopped, cached = [], [], set()
    words = random.Random(1)

    def tokens(n):
        return [words.randrange(1000, 30_000) for _ in range(n)]

    with tempfile.TemporaryDirectory() as folder:
        server = Server(options, folder)
        for _ in range(options.rounds):
            shared, tail = tokens(options.shared), tokens(options.new)
            first, said, _ = server.first_token(shared + tail)
            seconds["cold"].append(first)
            first, _, usage = server.first_token(shared + tokens(options.new))
            seconds["memory"].append(first)
            cached.add(usage["prompt_tokens_details"]["cached_tokens"])
            stopped.append(server.stop())
            server = Server(options, folder)
            ready.append(server.ready)
            # A process's first pass pays for weights that are mapped anew; that is no cache's fault.
            server.first_token(tokens(8))
            first, _, usage = server.first_token(shared + tokens(options.new))
            seconds["disk"].append(first)
            cached.add(usage["prompt_tokens_details"]["cached_tokens"])
            _, again, _ = server.first_token(shared + tail)
            if again != said:
                sys.exit(f"another answer after the restart: {again!r}, not {said!r}")
        server.stop()
        on_disk = sum(file.stat().st_size for file in pathlib.Path(folder).rglob("*.kv"))

    cold = statistics.median(seconds["cold"])
    print(f"{options.shared} of {options.shared + options.new} tokens come again, "
          f"{'/'.join(map(str, sorted(cached)))} of them cached; medians of {options.rounds} rounds")
    for arm, times in seconds.items():
        median = statistics.median(times)
        spread = f"{min(times) * 1000:.0f} to {max(times) * 1000:.0f}"
        print(f"{arm:8} {median * 1000:8.1f} ms  {median / cold:6.1%} of cold  ({spread})")
    print(f"ready    {statistics.median(ready) * 1000:8.1f} ms after the start")
    print(f"stopped  {statistics.median(stopped) * 1000:8.1f} ms after the signal")
    print(f"on disk  {on_disk / 2**20:8.1f} MiB; all answers equal")


if __name__ == "__main__":
    main()
