"""Reads `/metrics` of a running server with the Prometheus project's own parser.

    python tools/clients/metrics.py http://127.0.0.1:8000
"""

import sys
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

WANTED = {
    "vllm:num_requests_running": "gauge",
    "vllm:num_requests_waiting": "gauge",
    "vllm:kv_cache_usage_perc": "gauge",
    "vllm:prompt_tokens": "counter",
    "vllm:generation_tokens": "counter",
    "vllm:prefix_cache_queries": "counter",
    "vllm:prefix_cache_hits": "counter",
    "vllm:num_preemptions": "counter",
    "vllm:request_success": "counter",
    "vllm:time_to_first_token_seconds": "histogram",
    "vllm:inter_token_latency_seconds": "histogram",
    "vllm:e2e_request_latency_seconds": "histogram",
    "hearth_http_responses": "counter",
    "hearth_cache_blocks": "gauge",
    "process_resident_memory_bytes": "gauge",
}


def main():
    with urllib.request.urlopen(f"{sys.argv[1]}/metrics") as response:
        content_type, page = response.headers["content-type"], response.read().decode()
    assert content_type == "text/plain; version=0.0.4; charset=utf-8", content_type
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert len(families) == page.count("# TYPE "), "the parser sees other families than the page names"
    for name, kind in WANTED.items():
        assert families[name].type == kind, (name, families.get(name))
        assert families[name].samples and families[name].documentation, name
    print(f"ok   {len(families)} families of metrics, read by Prometheus' own parser")


if __name__ == "__main__":
    main()
