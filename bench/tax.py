#!/usr/bin/env python3
"""What a server costs: tokens per second of one stream over HTTP, as its client counts them, beside those of the
engine in its own process (`hearth bench`), and the time from a request to the first byte of its headers.

    python3 bench/tax.py MODEL [--rounds 7] [--gen 128] [--depth 32] [--hearth target/release/hearth]

Rounds take turns, so that a machine that slows down slows down both; the server has nothing to do while the other
one runs. Goal: a loss of at most 2 %. Exits with 1 if it is missed.
"""

import argparse
import json
import random
import socket
import statistics
import subprocess
import sys
import time

from served import HEARTH, serve

GOAL = 0.02


def engine_speed(hearth, args, flags):
    """Tokens per second of one run in a process of its own."""
    command = [hearth, "bench", args.model, "--prompt", "0", "--gen", str(args.gen), "--depth", str(args.depth)]
    out = subprocess.run([*command, "--runs", "1", "--json", *flags], capture_output=True, text=True, check=True)
    (row,) = [row for row in json.loads(out.stdout) if row["kind"] == "decode"]
    return row["tok_s"]


def decode_speed(arrivals, n_tokens):
    """Tokens per second from the first to the last; `arrivals` are the seconds at which frames came."""
    return (n_tokens - 1) / (arrivals[-1] - arrivals[0])


def loss(engine, served):
    """The share that is lost, by medians."""
    return 1 - statistics.median(served) / statistics.median(engine)


def ask(where, body):
    """Seconds to the first byte of the headers, and when each frame with text came, of one stream."""
    host, port = where.split(":")
    text = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {where}\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter()
        connection.sendall(head.encode() + text)
        first = connection.recv(1)
        header = time.perf_counter() - began
        assert first, "the server closed the connection"
        arrivals, usage = [], None
        for line in connection.makefile("rb"):
            if not line.startswith(b"data: {"):
                continue
            now = time.perf_counter()
            frame = json.loads(line[6:])
            usage = frame.get("usage") or usage
            if any(choice["text"] for choice in frame["choices"]):
                arrivals.append(now)
    return header, arrivals, usage["completion_tokens"]


def served_speed(server, args, rng):
    # Other tokens in every round: nothing of the prompt is found in the cache.
    prompt = [rng.randrange(1000, 20000) for _ in range(max(args.depth, 1))]
    body = {"model": "default", "prompt": prompt, "max_tokens": args.gen, "temperature": 0, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True}}
    header, arrivals, n_tokens = ask(server.where, body)
    assert n_tokens == args.gen, n_tokens
    return header, decode_speed(arrivals, n_tokens)


def table(rows):
    for name, values, unit in rows:
        low, high = min(values), max(values)
        print(f"{name:<34} {statistics.median(values):9.2f} {unit}  ({low:.2f}–{high:.2f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--gen", type=int, default=128)
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--hearth", default=str(HEARTH))
    args, flags = parser.parse_known_args()
    rng = random.Random(7)
    engine, served, headers = [], [], []
    with serve(args.hearth, args.model, ["--no-disk-cache", *flags]) as server:
        served_speed(server, args, rng)
        for _ in range(args.rounds):
            engine.append(engine_speed(args.hearth, args, flags))
            header, speed = served_speed(server, args, rng)
            served.append(speed)
            headers.append(header * 1000)
    lost = loss(engine, served)
    table([("decode, engine's own process", engine, "tok/s"), ("decode, one stream over HTTP", served, "tok/s"),
           ("request to first header byte", headers, "ms")])
    print(f"lost over HTTP: {lost:.1%}, goal {GOAL:.0%}: {'met' if lost <= GOAL else 'NOT met'}")
    sys.exit(lost > GOAL)


if __name__ == "__main__":
    main()
