#!/usr/bin/env python3
"""Mixed traffic for minutes: chats and completions, short and long, streamed and whole, clients that
leave or cancel, requests with little time, wrong requests. Fails when the server's memory keeps growing
after a warm-up, when its gauges do not return to zero, or on any 5xx that was not asked for.

    python3 bench/soak.py --minutes 15 --model smollm2-135m-4bit --kv-memory 64

What this script does not know is handed to `hearth serve`. Memory grows until the cache is full once, so
a small cache makes a short warm-up. Uses only the standard library; memory is measured on Linux only.
"""

import argparse
import collections
import http.client
import json
import random
import threading
import time

from served import HEARTH, frames, percentile, serve, total, wait_until

MIB = 1 << 20
# What a server may answer to a request that is right, beside 200.
BUSY = {429}
WORDS = "the a river stone bread lamp quiet early under seven paper garden turns holds asks green".split()
SYSTEM = "You keep the books of a small library and answer in one sentence. " * 40


class Traffic:
    """Clients of all kinds until a time is over."""

    def __init__(self, server, until):
        self.server, self.until = server, until
        self.counts, self.wrong = collections.Counter(), []
        self.lock = threading.Lock()

    def run(self, n_clients):
        threads = [threading.Thread(target=self.client, args=(n,), daemon=True) for n in range(n_clients)]
        for thread in threads:
            thread.start()
        return threads

    def client(self, number):
        chance = random.Random(number)
        kinds = [self.whole, self.streamed, self.leaves, self.leaves_whole, self.cancels, self.hurries, self.errs]
        weights = [4, 6, 3, 1, 2, 1, 1]
        while time.monotonic() < self.until:
            kind = chance.choices(kinds, weights)[0]
            try:
                kind(chance)
            except Exception as error:  # A client that breaks is a finding, not the end.
                self.note(kind.__name__, f"{type(error).__name__}: {error}", wrong=True)

    def note(self, kind, outcome, wrong=False):
        with self.lock:
            self.counts[f"{kind} {outcome}" if not wrong else f"{kind} WRONG"] += 1
            if wrong:
                self.wrong.append(f"{kind}: {outcome}")

    def told(self, kind, status, body, allowed):
        self.note(kind, status if status in allowed else f"{status}: {body[:300]}", status not in allowed)

    def body(self, chance):
        """A request with few or many tokens, some with the same beginning as others."""
        n_words = chance.choice([5, 20, 60, 200, 900, 1800])
        text = " ".join(chance.choices(WORDS, k=n_words))
        more = {"model": "default", "max_tokens": chance.choice([1, 8, 24, 64, 150]), "seed": chance.randrange(99)}
        match chance.randrange(3):
            case 0:
                return "/v1/completions", {"prompt": text} | more
            case 1:
                return "/v1/chat/completions", {"messages": [{"role": "user", "content": text}]} | more
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text[:200]}]
        return "/v1/chat/completions", {"messages": messages} | more

    def whole(self, chance):
        path, body = self.body(chance)
        body["priority"] = chance.choice([-1, 0, 0, 5])
        status, answer = self.server.request("POST", path, body)
        self.told("whole", status, answer, {200} | BUSY)

    def streamed(self, chance):
        path, body = self.body(chance)
        with self.server.stream(path, body) as response:
            if response.status != 200:
                return self.told("streamed", response.status, response.read(), BUSY)
            last = None
            for last in frames(response):
                pass
            self.told("streamed", 500 if "error" in last else 200, json.dumps(last), {200})

    def leaves(self, chance):
        path, body = self.body(chance)
        with self.server.stream(path, body | {"max_tokens": 400, "ignore_eos": True}) as response:
            response.read(chance.choice([0, 1, 300, 2000]))
            self.told("leaves", response.status, b"", {200} | BUSY)

    def leaves_whole(self, chance):
        path, body = self.body(chance)
        connection = self.server.connect()
        connection.request("POST", path, json.dumps(body | {"max_tokens": 400, "ignore_eos": True}))
        time.sleep(chance.choice([0, 0.05, 0.5]))
        connection.close()
        self.note("leaves_whole", "left")

    def cancels(self, chance):
        path, body = self.body(chance)
        name = f"soak-{chance.getrandbits(60):x}"
        body |= {"max_tokens": 400, "ignore_eos": True}
        with self.server.stream(path, body, {"x-request-id": name}) as response:
            if response.status != 200:
                return self.told("cancels", response.status, response.read(), BUSY)
            time.sleep(chance.choice([0, 0.05, 0.5]))
            status, answer = self.server.request("POST", f"/v1/requests/{name}/cancel")
            last = None
            for last in frames(response):
                pass
            code = last.get("error", {}).get("code") if last else None
            # It may have come to its end before.
            right = code == "request_cancelled" if status == 200 else status == 404
            self.note("cancels", code or status if right else f"{status} {answer} {last}", not right)

    def hurries(self, chance):
        path, body = self.body(chance)
        status, answer = self.server.request("POST", path, body | {"timeout": 0.2, "max_tokens": 300})
        self.told("hurries", status, answer, {200, 504} | BUSY)

    def errs(self, chance):
        body = chance.choice([{}, {"messages": []}, {"messages": 7}, {"model": "nobody", "messages": []}])
        status, answer = self.server.request("POST", "/v1/chat/completions", body)
        self.told("errs", status, answer, {400, 404})


def sample(server):
    """What is watched, as of now."""
    metrics = server.metrics()
    return {
        "at": time.monotonic(),
        "anonymous": metrics.get('hearth_memory_bytes{kind="anonymous"}'),
        "files": server.open_files(),
        "running": total(metrics, "vllm:num_requests_running"),
        "waiting": total(metrics, "vllm:num_requests_waiting"),
        "answers": total(metrics, "hearth_answers"),
    }


def watch(server, until, every):
    samples = []
    while time.monotonic() < until:
        samples.append(sample(server))
        time.sleep(every)
    return samples


def at_rest(server):
    metrics = server.metrics()
    held = sum(value for series, value in metrics.items()
               if series.startswith("hearth_cache_blocks{") and 'state="held"' in series)
    names = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
             "hearth_answers", "hearth_requests_parked"]
    return held == 0 and all(total(metrics, name) == 0 for name in names)


def memory_growth(samples, warm_up):
    """MiB by which the memory's median of the last third after the warm-up is above that of the first."""
    start = samples[0]["at"]
    values = [s["anonymous"] for s in samples if s["at"] - start >= warm_up and s["anonymous"]]
    if len(values) < 9:
        return None, values
    third = len(values) // 3
    first, last = percentile(values[:third], 0.5), percentile(values[-third:], 0.5)
    return (last - first) / MIB, values


def soak(server, args):
    until = time.monotonic() + args.minutes * 60
    traffic = Traffic(server, until)
    threads = traffic.run(args.clients)
    samples = watch(server, until, args.every)
    for thread in threads:
        thread.join(timeout=300)
        assert not thread.is_alive(), "a client got no answer"
    wait_until("the gauges return to zero", lambda: at_rest(server), 120)
    last = sample(server)
    for outcome, n in sorted(traffic.counts.items()):
        print(f"{n:7} {outcome}")
    metrics = server.metrics()
    growth, values = memory_growth(samples, args.warm_up * 60)
    print(f"tokens: {total(metrics, 'vllm:prompt_tokens_total'):.0f} of prompts, "
          f"{total(metrics, 'vllm:prefix_cache_hits_total'):.0f} of them cached, "
          f"{total(metrics, 'vllm:generation_tokens_total'):.0f} generated")
    print(f"most at once: {max(s['running'] for s in samples):.0f} running, "
          f"{max(s['waiting'] for s in samples):.0f} waiting")
    print(f"open files: {samples[0]['files']} at the start, {last['files']} at the end")
    if values:
        print(f"own memory after the warm-up: {min(values) / MIB:.1f} to {max(values) / MIB:.1f} MiB, "
              f"{last['anonymous'] / MIB:.1f} at the end")
    assert total(metrics, "hearth_cache_book_faults_total") == 0, "the cache books did not balance"
    assert not traffic.wrong, "\n".join(traffic.wrong[:20])
    served = {s for s in traffic.counts if s.endswith(" 200")}
    assert served, "nothing was answered"
    if growth is None:
        print("memory was not judged: too few samples after the warm-up")
    else:
        print(f"growth from the first third after it to the last: {growth:+.1f} MiB")
        assert growth <= args.growth_mib, f"memory grew by {growth:.1f} MiB"
    if last["files"] is not None:
        assert last["files"] <= samples[0]["files"] + args.clients + 4, "files stay open"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--hearth", default=HEARTH, metavar="PATH")
    add("--model", default="smollm2-135m-4bit")
    add("--minutes", type=float, default=15)
    add("--warm-up", type=float, default=2, metavar="MINUTES")
    add("--clients", type=int, default=8, metavar="N")
    add("--every", type=float, default=2, metavar="SECONDS", help="time between two looks at the memory")
    add("--growth-mib", type=float, default=8, help="growth after the warm-up that is allowed")
    args, more = parser.parse_known_args()
    with serve(args.hearth, args.model, more) as server:
        soak(server, args)
    print("ok")


if __name__ == "__main__":
    main()
