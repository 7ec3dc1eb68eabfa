#!/usr/bin/env python3
"""Mixed traffic for minutes: chats and completions, short and long, streamed and whole, clients that
leave, cancel, read slowly or not at all, requests with little time, wrong requests, and now and then one
of a few requests whose answers are known. Ends with a verdict and a status:

    0  PASS: memory flat after a warm-up, all gauges back at zero, no files left open, no 5xx but the 504
       of requests with little time, every known answer the same to the byte
    1  FAIL, with every finding
    2  NOT JUDGED: nothing was wrong, but there were too few looks at the memory after the warm-up

    python3 bench/soak.py --minutes 15 --model smollm2-135m-4bit --kv-memory 64MiB

What this script does not know is handed to `hearth serve`. Memory grows until the cache is full once, so
a small cache makes a short warm-up. Uses only the standard library; memory is measured on Linux only.
"""

import argparse
import collections
import http.client
import json
import random
import sys
import threading
import time

from served import HEARTH, frames, percentile, serve, total, wait_until

MIB = 1 << 20
# What a server may answer to a request that is right, beside 200.
BUSY = {429}
# What it may answer with 5xx: the time that a request was given is over.
INTENDED = {504}
# Segments of the cache on disk that stay open, and a few more.
KEPT_OPEN = 24
WORDS = "the a river stone bread lamp quiet early under seven paper garden turns holds asks green".split()
SYSTEM = "You keep the books of a small library and answer in one sentence. " * 40


class Traffic:
    """Clients of all kinds until a time is over."""

    def __init__(self, server, until):
        self.server, self.until = server, until
        self.counts, self.wrong = collections.Counter(), []
        self.lock = threading.Lock()
        # Asked of an idle server.
        self.known = [(*question, self.said(*question)) for question in questions()]

    def run(self, n_clients):
        threads = [threading.Thread(target=self.client, args=(n,), daemon=True) for n in range(n_clients)]
        for thread in threads:
            thread.start()
        return threads

    def client(self, number):
        chance = random.Random(number)
        kinds = [self.whole, self.streamed, self.leaves, self.leaves_whole, self.cancels, self.hurries,
                 self.errs, self.dawdles, self.repeats]
        weights = [4, 6, 3, 1, 2, 1, 1, 1, 2]
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

    def dawdles(self, chance):
        """Reads a long answer slowly, or nothing of it, and leaves."""
        path, body = self.body(chance)
        more = {"max_tokens": 400, "ignore_eos": True}
        with self.server.stream(path, body | more) as response:
            for _ in range(chance.choice([0, 3, 10])):
                response.read(200)
                time.sleep(0.2)
            time.sleep(chance.choice([0.5, 3]))
            self.told("dawdles", response.status, b"", {200} | BUSY)

    def said(self, path, body):
        status, answer = self.server.request("POST", path, body)
        if status != 200:
            return status
        choice = json.loads(answer)["choices"][0]
        return choice.get("text") or choice["message"]["content"]

    def repeats(self, chance):
        path, body, expected = chance.choice(self.known)
        found = self.said(path, body)
        if found in BUSY:
            return self.note("repeats", found)
        right = found == expected
        self.note("repeats", 200 if right else f"{found!r} instead of {expected!r}", not right)

    def errs(self, chance):
        body = chance.choice([{}, {"messages": []}, {"messages": 7}, {"model": "nobody", "messages": []}])
        status, answer = self.server.request("POST", "/v1/chat/completions", body)
        self.told("errs", status, answer, {400, 404})


def questions():
    """Requests that are asked again and again: greedy and seeded, alone and with a beginning in common."""
    for n in range(2):
        question = {"role": "user", "content": f"Name {n + 2} things that a library needs."}
        chat = {"model": "default", "messages": [{"role": "system", "content": SYSTEM}, question]}
        yield "/v1/chat/completions", chat | {"max_tokens": 24, "temperature": 0}
        plain = {"model": "default", "prompt": f"The {WORDS[n + 1]} is", "max_tokens": 24}
        yield "/v1/completions", plain | {"temperature": 0.8, "seed": n}


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
    models = server.json("GET", "/v1/models")["data"]
    leases = sum(model["in_use"] + model["waiting"] for model in models)
    return held == 0 and leases == 0 and all(total(metrics, name) == 0 for name in names)


def failures(metrics):
    """How many responses with each 5xx that was not asked for the server says it gave, also those that
    nobody read, and how many answers broke off."""
    found = collections.Counter()
    for series, n in metrics.items():
        if series.startswith("hearth_http_responses_total{") and n:
            status = int(series.split('status="')[1].split('"')[0])
            if status >= 500 and status not in INTENDED:
                found[f"responses with status {status}"] += int(n)
        if series.startswith("vllm:request_success_total{") and 'finished_reason="error"' in series and n:
            found["answers that broke off"] += int(n)
    return [f"{n} {what}" for what, n in found.items()]


def memory_growth(samples, warm_up):
    """MiB by which the memory's median of the last third after the warm-up is above that of the first."""
    start = samples[0]["at"]
    values = [s["anonymous"] for s in samples if s["at"] - start >= warm_up and s["anonymous"]]
    if len(values) < 30:
        return None, values
    third = len(values) // 3
    first, last = percentile(values[:third], 0.5), percentile(values[-third:], 0.5)
    return (last - first) / MIB, values


def soak(server, args, findings):
    """Adds to `findings` whatever is wrong. Says whether the memory was judged."""
    until = time.monotonic() + args.minutes * 60
    traffic = Traffic(server, until)
    at_start = sample(server)
    threads = traffic.run(args.clients)
    samples = [at_start, *watch(server, until, args.every)]
    for thread in threads:
        thread.join(timeout=300)
    stuck = sum(thread.is_alive() for thread in threads)
    if stuck:
        findings.append(f"{stuck} clients got no answer")
    wait_until("the gauges return to zero", lambda: at_rest(server), 120)
    last = sample(server)
    for outcome, n in sorted(traffic.counts.items()):
        print(f"{n:7} {outcome}")
    findings += traffic.wrong[:20]
    metrics = server.metrics()
    findings += failures(metrics)
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
    if total(metrics, "hearth_cache_book_faults_total"):
        findings.append("the cache books did not balance")
    unserved = {kind for kind in ("whole", "streamed", "repeats") if not traffic.counts[f"{kind} 200"]}
    if unserved:
        findings.append(f"no success of the kind {', '.join(sorted(unserved))}")
    if last["files"] is not None and last["files"] > samples[0]["files"] + KEPT_OPEN:
        findings.append(f"{last['files'] - samples[0]['files']} more files are open than at the start")
    if growth is not None:
        print(f"growth from the first third after it to the last: {growth:+.1f} MiB")
        if growth > args.growth_mib:
            findings.append(f"memory grew by {growth:.1f} MiB")
    return growth is not None


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
    findings, judged = [], False
    try:
        with serve(args.hearth, args.model, more) as server:
            judged = soak(server, args, findings)
    except (AssertionError, OSError, http.client.HTTPException) as error:
        # A server that is gone, does not come to rest or does not end as it should.
        findings.append(f"{type(error).__name__}: {error}")
    for finding in findings:
        print(f"finding: {finding}")
    if findings:
        print(f"verdict: FAIL, {len(findings)} findings")
        sys.exit(1)
    if not judged:
        print("verdict: NOT JUDGED, too few looks at the memory after the warm-up")
        sys.exit(2)
    print("verdict: PASS")


if __name__ == "__main__":
    main()
