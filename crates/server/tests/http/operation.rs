//! What the server says of itself: probes, status, and the page for Prometheus.

use std::collections::{BTreeMap, BTreeSet};

use hearth_server::{App, Footprint};
use serde_json::json;

use crate::client::{CHAT, PLAIN, chat, plain, post, send};
use crate::script::{Script, Speech};
use crate::socket::{ask, endless, idle, read_until, rest, start, stats, until};

/// Samples by their name with labels.
type Samples = BTreeMap<String, f64>;

/// Reads a page and checks what the format demands: each family once, its help and type first, its
/// samples together, no sample twice, buckets that add up.
async fn scrape(app: &App) -> Samples {
    let reply = send(app, "GET", "/metrics", "").await;
    assert_eq!(reply.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let (mut samples, mut families) = (Samples::new(), BTreeSet::new());
    let mut family = (String::new(), String::new());
    let mut lines = reply.text().lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let name = help.split(' ').next().unwrap();
            let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap();
            assert!(families.insert(name.to_owned()), "{name} comes twice");
            // vLLM has one histogram with such a name.
            let total = name.ends_with("_total") && name != "vllm:iteration_tokens_total";
            assert_eq!(kind == "counter", total, "{name}");
            family = (name.to_owned(), kind.to_owned());
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        let suffixes: &[&str] =
            if family.1 == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.iter().any(|suffix| name == format!("{}{suffix}", family.0)), "{line}");
        assert!(samples.insert(series.to_owned(), value.parse().unwrap()).is_none(), "{line}");
    }
    check_buckets(&samples);
    samples
}

fn check_buckets(samples: &Samples) {
    for (series, count) in samples.iter().filter(|(name, _)| name.contains("_bucket{")) {
        let (name, labels) = series.split_once("_bucket{").unwrap();
        let all = series.split("le=\"").next().unwrap();
        let most = samples[&format!("{all}le=\"+Inf\"}}")];
        let labels = labels.split(",le=").next().unwrap();
        assert!(*count <= most, "{series}");
        assert_eq!(most, samples[&format!("{name}_count{{{labels}}}")], "{series}");
    }
}

const TOY: &str = "{model_name=\"toy/model\"}";

fn of(samples: &Samples, name: &str) -> f64 {
    *samples.get(&format!("{name}{TOY}")).unwrap_or_else(|| panic!("no {name}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_counts_what_was_done() {
    let mut script = Script::says(&["Two", " ducks"]);
    script.settings.footprint = || Some(Footprint { resident: 7, anonymous: 3, files: 4 });
    let app = script.app();
    let words = "word ".repeat(20);
    let long = json!({"messages": [{"role": "user", "content": words}]});
    let first = post(&app, CHAT, &chat(long.clone())).await.ok();
    let second = post(&app, CHAT, &chat(long)).await.ok();
    let third = post(&app, PLAIN, &plain(json!({"max_tokens": 1}))).await.ok();
    let fourth = post(&app, PLAIN, &plain(json!({"max_tokens": 1}))).await.ok();
    post(&app, PLAIN, &plain(json!({"max_tokens": 0}))).await.error(400);
    send(&app, "GET", "/nowhere/at/all", "").await.error(404);
    until("idle", || idle(&app)).await;
    let samples = scrape(&app).await;
    let prompt = first["usage"]["prompt_tokens"].as_f64().unwrap();
    let replies = [&first, &second, &third, &fourth];
    let cached = replies
        .map(|reply| reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_f64().unwrap());
    let cached: f64 = cached.iter().sum();
    let plain_prompt = 11.0;
    assert!(cached > 0.0);
    assert_eq!(of(&samples, "vllm:prompt_tokens_total"), 2.0 * prompt + 2.0 * plain_prompt);
    assert_eq!(of(&samples, "vllm:prefix_cache_hits_total"), cached);
    assert_eq!(of(&samples, "vllm:generation_tokens_total"), 3.0 + 3.0 + 1.0 + 1.0);
    let ended = |reason: &str| {
        let labels = format!("{{model_name=\"toy/model\",finished_reason=\"{reason}\"}}");
        samples[&format!("vllm:request_success_total{labels}")]
    };
    assert_eq!(["stop", "length", "abort", "error"].map(ended), [2.0, 2.0, 0.0, 0.0]);
    for name in [
        "time_to_first_token_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "request_inference_time_seconds",
        "request_prompt_tokens",
        "request_generation_tokens",
    ] {
        assert_eq!(of(&samples, &format!("vllm:{name}_count")), 4.0, "{name}");
    }
    assert_eq!(of(&samples, "vllm:inter_token_latency_seconds_count"), 4.0);
    assert_eq!(of(&samples, "vllm:request_time_per_output_token_seconds_count"), 2.0);
    assert_eq!(of(&samples, "vllm:request_generation_tokens_sum"), 8.0);
    for gauge in ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"] {
        assert_eq!(of(&samples, &format!("vllm:{gauge}")), 0.0);
    }
    let steps = of(&samples, "hearth_steps_total");
    for histogram in ["hearth_step_seconds", "vllm:iteration_tokens_total"] {
        assert_eq!(of(&samples, &format!("{histogram}_count")), steps);
    }
    let rows = of(&samples, "hearth_rows_total");
    assert_eq!(of(&samples, "vllm:iteration_tokens_total_sum"), rows);
    let up_to = |le: u32| {
        format!("vllm:iteration_tokens_total_bucket{{model_name=\"toy/model\",le=\"{le}\"}}")
    };
    // Answers of one row each, and prompts of up to 64.
    assert!(samples[&up_to(1)] >= 4.0 && samples[&up_to(1)] < steps);
    assert_eq!(samples[&up_to(64)], steps);
    let response = |method: &str, route: &str, status: u16| {
        let labels = format!("{{method=\"{method}\",route=\"{route}\",status=\"{status}\"}}");
        samples[&format!("hearth_http_responses_total{labels}")]
    };
    assert_eq!(response("POST", CHAT, 200), 2.0);
    assert_eq!((response("POST", PLAIN, 200), response("POST", PLAIN, 400)), (2.0, 1.0));
    assert_eq!(response("GET", "other", 404), 1.0);
    assert_eq!(samples["hearth_requests_refused_total{code=\"invalid_request\"}"], 1.0);
    assert_eq!(samples["process_resident_memory_bytes"], 7.0);
    assert_eq!(samples["hearth_memory_bytes{kind=\"anonymous\"}"], 3.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn endings_that_nobody_wished_for_are_counted() {
    let mut script = Script::says(&["Two", " ducks"]);
    script.speech = Speech::Breaks { at: 1 };
    let app = script.app();
    post(&app, CHAT, &chat(json!({}))).await.error(500);
    let samples = scrape(&app).await;
    let failed = "{model_name=\"toy/model\",finished_reason=\"error\"}";
    assert_eq!(samples[&format!("vllm:request_success_total{failed}")], 1.0);
    assert_eq!(samples["hearth_requests_refused_total{code=\"engine_error\"}"], 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_what_runs() {
    let (mut script, gate) = endless().gated();
    script.limits.seqs = 1;
    script.settings.footprint = || Some(Footprint { resident: 7, anonymous: 3, files: 4 });
    let app = script.app();
    let (address, _stop, _) = start(app.clone()).await;
    let mut asked = Vec::new();
    for _ in 0..2 {
        let body = chat(json!({"max_tokens": 200, "stream": true}));
        let mut socket = ask(address, &body).await;
        // Headers come when the engine has it.
        read_until(&mut socket, "\r\n\r\n").await;
        asked.push(socket);
    }
    until("one runs and one waits", || {
        // One step at a time, so that the first answer cannot end unseen.
        gate.give(1);
        (stats(&app).running, stats(&app).waiting) == (1, 1)
    })
    .await;
    let status = send(&app, "GET", "/v1/status", "").await.ok();
    assert_eq!((&status["status"], &status["requests"]), (&json!("ok"), &json!(2)));
    let memory = json!({"resident_bytes": 7, "anonymous_bytes": 3, "file_bytes": 4});
    for (name, value) in memory.as_object().unwrap() {
        assert_eq!(&status["memory"][name], value);
    }
    let model = &status["models"][0];
    assert_eq!((&model["id"], &model["state"]), (&json!("toy/model"), &json!("loaded")));
    let engine = &model["engine"];
    assert_eq!((&engine["running"], &engine["waiting"]), (&json!(1), &json!(1)));
    let samples = scrape(&app).await;
    assert_eq!(of(&samples, "vllm:num_requests_running"), 1.0);
    assert_eq!(of(&samples, "vllm:num_requests_waiting"), 1.0);
    assert!(of(&samples, "vllm:kv_cache_usage_perc") > 0.0);
    gate.open();
    for socket in asked {
        assert!(rest(socket).await.contains("[DONE]"));
    }
    let status = send(&app, "GET", "/v1/status", "").await.ok();
    assert!(status["models"][0]["recent"]["generated_tokens_per_second"].as_f64() > Some(0.0));
    assert_eq!(status["models"][0]["totals"]["generated_tokens"], 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn caches_are_shown_and_emptied() {
    let app = Script::says(&["Two"]).app();
    let long = json!({"messages": [{"role": "user", "content": "word ".repeat(20)}]});
    let cached = |reply: &serde_json::Value| {
        reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    for _ in 0..2 {
        post(&app, CHAT, &chat(long.clone())).await.ok();
    }
    until("idle", || idle(&app)).await;
    let shown = send(&app, "GET", "/v1/cache/stats", "").await.ok()["models"][0].clone();
    let kept = shown["memory"]["cached"].as_u64().unwrap();
    assert!(kept > 0 && shown["tokens_found"].as_u64().unwrap() > 0, "{shown}");
    let misses = shown["misses"].as_object().unwrap();
    assert_eq!(misses["cold"], 1);
    let missed = scrape(&app).await;
    let cold = "hearth_prefix_cache_misses_total{model_name=\"toy/model\",reason=\"cold\"}";
    assert_eq!(missed[cold], 1.0);
    send(&app, "POST", "/v1/cache/clear", r#"{"model": "nobody"}"#).await.error(404);
    send(&app, "POST", "/v1/cache/clear", r#"{"model": 7}"#).await.error(400);
    assert!(cached(&post(&app, CHAT, &chat(long.clone())).await.ok()) > 0);
    let said = send(&app, "POST", "/v1/cache/clear", r#"{"model": "toy"}"#).await.ok();
    assert_eq!(said["models"][0]["memory"]["blocks"], kept);
    assert_eq!(cached(&post(&app, CHAT, &chat(long)).await.ok()), 0);
    let said = send(&app, "POST", "/v1/cache/clear", "").await.ok();
    assert_eq!(said["models"][0]["id"], "toy/model");
}

#[tokio::test(flavor = "multi_thread")]
async fn clearing_reaches_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mut script = Script::says(&["Two"]);
    script.disk = Some(folder.path().to_owned());
    let app = script.app();
    let body = chat(json!({"messages": [{"role": "user", "content": "word ".repeat(20)}]}));
    post(&app, CHAT, &body).await.ok();
    let models = app.chat.models();
    tokio::task::spawn_blocking(move || models[0].engine.flush().unwrap()).await.unwrap();
    let shown = send(&app, "GET", "/v1/cache/stats", "").await.ok()["models"][0].clone();
    let (kept, written) = (&shown["memory"]["cached"], &shown["disk"]["written"]);
    assert!(kept.as_u64() > Some(0) && written.as_u64() > Some(0), "{shown}");
    assert_eq!(
        of(&scrape(&app).await, "hearth_disk_cache_written_blocks_total"),
        written.as_f64().unwrap()
    );
    let said = send(&app, "POST", "/v1/cache/clear", "").await.ok()["models"][0].clone();
    assert_eq!((&said["memory"]["blocks"], &said["disk"]["blocks"]), (kept, written), "{said}");
    let reply = post(&app, CHAT, &body).await.ok();
    assert_eq!(reply["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

#[tokio::test]
async fn probes_answer() {
    let app = Script::says(&["Two"]).app();
    for path in ["/", "/health", "/livez", "/readyz"] {
        send(&app, "GET", path, "").await.ok();
    }
}
