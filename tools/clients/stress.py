"""Puts a running server under the load of careless clients and looks at what is left of it: a prompt
of 4,000 tokens, eight clients at once, clients that hang up in the middle of an answer.

    python tools/clients/stress.py http://127.0.0.1:8000 [SERVER_PID]

Uses only the standard library. With a process id it also looks at memory and open files (Linux).
"""

import http.client
import json
import os
import sys
import threading
import time
import urllib.parse


class Server:
    def __init__(self, address):
        self.where = urllib.parse.urlparse(address).netloc

    def request(self, method, path, body=None):
        """Status and JSON of one request."""
        connection = http.client.HTTPConnection(self.where, timeout=300)
        text = json.dumps(body) if body is not None else None
        connection.request(method, path, text, {"content-type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        return response.status, answer

    def complete(self, **body):
        status, answer = self.request("POST", "/v1/completions", {"model": "default"} | body)
        assert status == 200, answer
        return answer

    def hang_up(self, after, **body):
        """Begins a stream and leaves after `after` bytes."""
        connection = http.client.HTTPConnection(self.where, timeout=300)
        body = {"model": "default", "stream": True} | body
        connection.request(
            "POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"}
        )
        if after:
            connection.getresponse().read(after)
        connection.sock.close()
        connection.close()

    def settled(self):
        """Waits until nothing runs; the model's part of /health."""
        for _ in range(600):
            model = self.request("GET", "/health")[1]["models"][0]
            if model["running"] == 0 and model["waiting"] == 0:
                return model
            time.sleep(0.1)
        raise AssertionError(f"requests are stuck: {model}")


def long_prompt(server):
    """About 4,000 tokens, all different from what other runs sent."""
    words = " ".join(f"item {i} of {os.getpid()}" for i in range(450))
    answer = server.complete(prompt=words, max_tokens=8, temperature=0)
    used = answer["usage"]["prompt_tokens"]
    while used < 4000:
        words += " and some more words about it" * ((4000 - used) // 6 + 1)
        answer = server.complete(prompt=words, max_tokens=8, temperature=0)
        used = answer["usage"]["prompt_tokens"]
    again = server.complete(prompt=words, max_tokens=8, temperature=0)
    assert again["choices"] == answer["choices"], "a cache hit must not change the answer"
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= used - 64, again["usage"]
    print(f"ok   a prompt of {used} tokens, cold and cached, gives the same answer")


def crowd(server):
    """Eight clients at once get what they would get alone."""
    prompts = [f"Client {i} asks: what comes after {i}? Answer:" for i in range(8)]
    settings = {"max_tokens": 24, "temperature": 0.8}
    alone = [server.complete(prompt=p, seed=i, **settings) for i, p in enumerate(prompts)]
    together = [None] * len(prompts)

    def ask(i):
        together[i] = server.complete(prompt=prompts[i], seed=i, **settings)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for one, many in zip(alone, together):
        assert one["choices"] == many["choices"], (one, many)
    print("ok   eight clients together get the answers that each gets alone")


def departures(server, rounds=40):
    """Clients leave before the first token, early and late."""
    for i in range(rounds):
        prompt = f"Round {i}: " + "a long story about the sea. " * (i % 7 * 20 + 1)
        server.hang_up((0, 1, 200, 2000)[i % 4], prompt=prompt, max_tokens=400)
    server.settled()
    print(f"ok   {rounds} clients hung up and nothing runs on for them")


def resources(pid):
    """Resident memory in MiB, and the number of open files."""
    with open(f"/proc/{pid}/status") as status:
        rss = next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))
    return rss, len(os.listdir(f"/proc/{pid}/fd"))


def main():
    server = Server(sys.argv[1])
    pid = sys.argv[2] if len(sys.argv) > 2 else None
    long_prompt(server)
    crowd(server)
    departures(server)
    before = resources(pid) if pid else None
    departures(server)
    crowd(server)
    model = server.settled()
    blocks = model["blocks"]
    assert blocks["held"] == 0 and model["book_faults"] == 0, model
    print(f"ok   the books balance: {blocks}")
    if pid:
        after = resources(pid)
        assert after[0] <= before[0] + 32 and after[1] <= before[1] + 2, (before, after)
        print(f"ok   nothing leaks: {after[0]} MiB and {after[1]} files, {before[0]} and {before[1]} before")


if __name__ == "__main__":
    main()
