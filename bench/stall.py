#!/usr/bin/env python3
"""How much a long prompt disturbs others: answers that are flowing, and a short request that comes while
it is computed. Fails when a gap between two tokens is longer than `--limit-ms`, or when the short request
gets its first token after the long one.

    python3 bench/stall.py --model smollm2-135m-4bit --prompt 6000 --streams 4

Uses only the standard library.
"""

import argparse
import random
import threading
import time

from served import HEARTH, Server, frames, percentile, serve, wait_until


class Stream(threading.Thread):
    """An answer that goes on until it is told to stop, and the times of its tokens."""

    def __init__(self, server, body):
        super().__init__(daemon=True)
        self.server, self.body = server, body
        self.times, self.leave, self.error = [], False, None

    def run(self):
        # With log probabilities every token is reported, also one that is half a character.
        body = {"model": "default", "ignore_eos": True, "temperature": 0, "logprobs": 0} | self.body
        try:
            with self.server.stream("/v1/completions", body) as response:
                assert response.status == 200, response.read()
                for frame in frames(response):
                    assert "error" not in frame, frame
                    if frame["choices"] and frame["choices"][0]["finish_reason"] is None:
                        self.times.append(time.monotonic())
                    if self.leave:
                        return
        except Exception as error:  # Told by whoever waits for this thread.
            self.error = error

    def first_token(self):
        wait_until("a first token", lambda: self.times or self.error, 600)
        if self.error:
            raise self.error
        return self.times[0]


def tokens(n, seed):
    """A prompt of so many tokens that nobody has sent before."""
    chance = random.Random(f"{time.time_ns()} {seed}")
    return [chance.randrange(300, 20_000) for _ in range(n)]


def gaps(stream, begin, end):
    """Milliseconds between neighbouring tokens, of which the later one came in this time."""
    pairs = zip(stream.times, stream.times[1:])
    return [(late - early) * 1000 for early, late in pairs if begin <= late <= end]


def line(name, values):
    shares = [percentile(values, share) for share in (0.5, 0.95, 0.99)]
    p50, p95, p99 = (f"{value:.1f}" for value in shares)
    print(f"{name}: {len(values)} gaps, p50 {p50} ms, p95 {p95} ms, p99 {p99} ms, max {max(values):.1f} ms")


def measure(server, args):
    streams = [Stream(server, {"prompt": tokens(16, n), "max_tokens": 4000}) for n in range(args.streams)]
    for stream in streams:
        stream.start()
    wait_until("all streams flow", lambda: all(len(stream.times) > 60 for stream in streams), 600)
    alone_from = max(stream.times[30] for stream in streams)
    sent = time.monotonic()
    long = Stream(server, {"prompt": tokens(args.prompt, "long"), "max_tokens": 4})
    long.start()
    time.sleep(args.after)
    assert not long.times, "the long prompt was done before the short request came; raise --prompt"
    asked = time.monotonic()
    short = Stream(server, {"prompt": tokens(20, "short"), "max_tokens": 4})
    short.start()
    short_first = short.first_token()
    long_first = long.first_token()
    for stream in streams:
        stream.leave = True
    during = [gap for stream in streams for gap in gaps(stream, sent, long_first)]
    before = [gap for stream in streams for gap in gaps(stream, alone_from, sent)]
    for stream in [*streams, long, short]:
        stream.join()
        assert stream.error is None, stream.error
    line("before the long prompt", before)
    line(f"during its {args.prompt} tokens", during)
    print(f"first token of the long prompt after {long_first - sent:.2f} s, "
          f"of the short request after {short_first - asked:.2f} s")
    return max(during), long_first - short_first


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--hearth", default=HEARTH, metavar="PATH")
    add("--model", default="smollm2-135m-4bit")
    add("--address", metavar="HOST:PORT", help="a server that runs already, instead of a new one")
    add("--prompt", type=int, default=6000, metavar="TOKENS")
    add("--streams", type=int, default=4, metavar="N")
    add("--after", type=float, default=0.5, metavar="SECONDS", help="when the short request comes")
    add("--limit-ms", type=float, default=0, help="longest gap allowed; 0 only reports")
    args, more = parser.parse_known_args()
    if args.address:
        worst, ahead = measure(Server(args.address), args)
    else:
        with serve(args.hearth, args.model, more) as server:
            worst, ahead = measure(server, args)
    assert ahead > 0, "the short request had to wait for the long prompt"
    assert not args.limit_ms or worst <= args.limit_ms, f"a gap of {worst:.1f} ms"


if __name__ == "__main__":
    main()
