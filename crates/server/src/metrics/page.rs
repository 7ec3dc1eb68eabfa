//! The page for Prometheus. Where a number means what vLLM's of the same name means, it has vLLM's
//! name, so that dashboards and routers made for it work; the rest is called `hearth_…`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::DiskStats;

use super::histogram::{Counts, Histogram};
use super::meters::Meters;
use super::text::{Kind, Page};
use super::{Metrics, lock};
use crate::app::{App, Loaded};

/// Everything, as of now.
pub(crate) fn page(app: &App) -> String {
    let mut page = Page::default();
    let metrics = app.chat.metrics();
    let loaded = app.loaded();
    let meters: Vec<_> = lock(&metrics.models).clone().into_iter().collect();
    for (name, kind, help, value) in ENGINE {
        let mut family = page.family(name, *kind, help);
        for model in &loaded {
            family.sample(&[("model_name", &model.id)], value(model));
        }
    }
    for (name, help, counter) in COUNTERS {
        let mut family = page.family(name, Kind::Counter, help);
        for (model, meters) in &meters {
            family.sample(&[("model_name", model)], counter(meters).load(Ordering::Relaxed) as f64);
        }
    }
    for (name, help, histogram) in HISTOGRAMS {
        let mut family = page.family(name, Kind::Histogram, help);
        for (model, meters) in &meters {
            family.histogram(&[("model_name", model)], histogram(meters));
        }
    }
    passes(&mut page, &loaded);
    endings(&mut page, &meters);
    cache_config(&mut page, &loaded);
    blocks(&mut page, &loaded);
    windowed_blocks(&mut page, &loaded);
    misses(&mut page, &loaded);
    disk(&mut page, &loaded);
    http(&mut page, metrics);
    process(&mut page, app);
    page.finish()
}

type OfEngine = (&'static str, Kind, &'static str, fn(&Loaded) -> f64);

/// What the engines know.
const ENGINE: &[OfEngine] = &[
    ("vllm:num_requests_running", Kind::Gauge, "Requests in the model's passes.", |model| {
        model.stats.running as f64
    }),
    ("vllm:num_requests_waiting", Kind::Gauge, "Requests that wait to run.", |model| {
        model.stats.waiting as f64
    }),
    (
        "vllm:kv_cache_usage_perc",
        Kind::Gauge,
        "Share of the cache blocks that running requests hold, from 0 to 1.",
        |model| share(model.stats.blocks.held, model.blocks()),
    ),
    (
        "vllm:num_preemptions_total",
        Kind::Counter,
        "Times a running request was parked, because blocks ran out or for one of higher priority.",
        |model| model.stats.totals.preemptions as f64,
    ),
    (
        "hearth_requests_parked",
        Kind::Gauge,
        "Of the requests that wait, those that ran already and gave up their blocks.",
        |model| model.stats.parked as f64,
    ),
    ("hearth_last_step_seconds", Kind::Gauge, "Time of the latest pass.", |model| {
        model.stats.pace.last_step.as_secs_f64()
    }),
    (
        "hearth_mean_step_seconds",
        Kind::Gauge,
        "Mean time of a pass; recent ones weigh more.",
        |model| model.stats.pace.mean_step.as_secs_f64(),
    ),
    (
        "hearth_disk_cache_tokens_total",
        Kind::Counter,
        "Prompt tokens that were brought back from disk.",
        |model| model.stats.totals.disk_tokens as f64,
    ),
    (
        "hearth_prefix_waits_total",
        Kind::Counter,
        "Passes in which a request left a stretch of its prompt to another one that has the same.",
        |model| model.stats.totals.prefix_waits as f64,
    ),
    ("hearth_steps_total", Kind::Counter, "Passes through the model.", |model| {
        model.stats.totals.steps as f64
    }),
    ("hearth_rows_total", Kind::Counter, "Tokens that went through the model.", |model| {
        model.stats.totals.rows as f64
    }),
    (
        "hearth_cache_book_faults_total",
        Kind::Counter,
        "Times the cache books did not balance. Anything but 0 is a bug.",
        |model| model.stats.totals.book_faults as f64,
    ),
];

type OfAnswers = (&'static str, &'static str, fn(&Meters) -> &AtomicU64);

/// What the server counts by model.
const COUNTERS: &[OfAnswers] = &[
    (
        "vllm:prefix_cache_queries_total",
        "Prompt tokens that were looked up in the prefix cache.",
        |meters| &meters.prompt_tokens,
    ),
    (
        "vllm:prefix_cache_hits_total",
        "Prompt tokens that were found in the prefix cache.",
        |meters| &meters.cached_tokens,
    ),
    (
        "vllm:prompt_tokens_total",
        "Tokens of the prompts that were started, cached ones included.",
        |meters| &meters.prompt_tokens,
    ),
    ("vllm:generation_tokens_total", "Tokens generated.", |meters| &meters.generated_tokens),
    ("hearth_answers_left_total", "Answers whose reader left before the end.", |meters| {
        &meters.endings.left
    }),
    ("hearth_answers_cancelled_total", "Answers that somebody cancelled by name.", |meters| {
        &meters.endings.cancelled
    }),
    ("hearth_answers_timed_out_total", "Answers that took longer than they may.", |meters| {
        &meters.endings.timed_out
    }),
];

type Measured = (&'static str, &'static str, fn(&Meters) -> &Histogram);

const HISTOGRAMS: &[Measured] = &[
    (
        "vllm:time_to_first_token_seconds",
        "From a request's arrival to its first token.",
        |meters| &meters.first_token,
    ),
    ("vllm:inter_token_latency_seconds", "Between two tokens of an answer.", |meters| {
        &meters.between_tokens
    }),
    (
        "vllm:time_per_output_token_seconds",
        "Between two tokens of an answer, under vLLM's older name.",
        |meters| &meters.between_tokens,
    ),
    (
        "vllm:request_time_per_output_token_seconds",
        "Mean time between the tokens of one answer.",
        |meters| &meters.per_token,
    ),
    ("vllm:e2e_request_latency_seconds", "From a request's arrival to its last token.", |meters| {
        &meters.whole
    }),
    (
        "vllm:request_queue_time_seconds",
        "From a request's arrival until the engine began with it.",
        |meters| &meters.queue,
    ),
    (
        "vllm:request_inference_time_seconds",
        "From the engine's begin with a request to the last token.",
        |meters| &meters.inference,
    ),
    (
        "vllm:request_prefill_time_seconds",
        "From the engine's begin with a request to the first token.",
        |meters| &meters.prefill,
    ),
    (
        "vllm:request_decode_time_seconds",
        "From the first token of an answer to the last.",
        |meters| &meters.decode,
    ),
    ("vllm:request_prompt_tokens", "Tokens of a prompt.", |meters| &meters.prompt),
    ("vllm:request_generation_tokens", "Tokens of an answer.", |meters| &meters.generation),
];

/// What the engines count of every pass.
fn passes(page: &mut Page, loaded: &[Loaded]) {
    let help = "Time of a pass, with all that is done around it.";
    let mut family = page.family("hearth_step_seconds", Kind::Histogram, help);
    for model in loaded {
        let (bounds, counts) = spread(&model.stats.passes.micros, 1e6);
        family.buckets(&[("model_name", &model.id)], &bounds, &counts);
    }
    // vLLM's name, though it is no counter.
    let help = "Tokens that went through the model in a pass.";
    let mut family = page.family("vllm:iteration_tokens_total", Kind::Histogram, help);
    for model in loaded {
        let (bounds, counts) = spread(&model.stats.passes.rows, 1.0);
        family.buckets(&[("model_name", &model.id)], &bounds, &counts);
    }
}

/// Bounds and counts in a unit so many times as large.
fn spread<const N: usize>(spread: &engine::Spread<N>, unit: f64) -> (Vec<f64>, Counts) {
    let buckets = spread.counts.iter().copied().chain([spread.above]).collect();
    let bounds = spread.bounds.iter().map(|bound| *bound as f64 / unit).collect();
    (bounds, Counts { buckets, sum: spread.sum as f64 / unit })
}

fn endings(page: &mut Page, meters: &[(String, Arc<Meters>)]) {
    let help = "Answers that ended, by the way they did.";
    let mut family = page.family("vllm:request_success_total", Kind::Counter, help);
    for (model, meters) in meters {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let endings = &meters.endings;
        let aborted = count(&endings.left) + count(&endings.cancelled) + count(&endings.timed_out);
        for (reason, n) in [
            ("stop", count(&endings.stop)),
            ("length", count(&endings.length)),
            ("abort", aborted),
            ("error", count(&endings.failed)),
        ] {
            family.sample(&[("model_name", model), ("finished_reason", reason)], n as f64);
        }
    }
}

/// Routers take the size of the cache from here.
fn cache_config(page: &mut Page, loaded: &[Loaded]) {
    let help = "The cache of a model: tokens in a block, and blocks.";
    let mut family = page.family("vllm:cache_config_info", Kind::Gauge, help);
    for model in loaded {
        let (size, blocks) = (engine::BLOCK.to_string(), model.blocks().to_string());
        let labels =
            [("model_name", &*model.id), ("block_size", &*size), ("num_gpu_blocks", &*blocks)];
        family.sample(&labels, 1.0);
    }
}

fn blocks(page: &mut Page, loaded: &[Loaded]) {
    let help = "Cache blocks in memory, by what they are used for.";
    let mut family = page.family("hearth_cache_blocks", Kind::Gauge, help);
    for model in loaded {
        let engine::Blocks { free, cached, held, .. } = model.stats.blocks;
        for (state, n) in [("free", free), ("cached", cached), ("held", held)] {
            family.sample(&[("model_name", &model.id), ("state", state)], n as f64);
        }
    }
    let help = "Recurrent states in memory, by what they are used for.";
    let mut family = page.family("hearth_recurrent_states", Kind::Gauge, help);
    for model in loaded.iter().filter(|model| model.stats.states != engine::States::default()) {
        let engine::States { free, kept, held } = model.stats.states;
        for (state, n) in [("free", free), ("kept", kept), ("held", held)] {
            family.sample(&[("model_name", &model.id), ("state", state)], n as f64);
        }
    }
}

fn windowed_blocks(page: &mut Page, loaded: &[Loaded]) {
    let help = "Cache blocks of layers that see only a window, by what they are used for.";
    let mut family = page.family("hearth_windowed_blocks", Kind::Gauge, help);
    for model in loaded.iter().filter(|model| model.stats.panes != engine::Panes::default()) {
        let engine::Panes { free, kept, held } = model.stats.panes;
        for (state, n) in [("free", free), ("kept", kept), ("held", held)] {
            family.sample(&[("model_name", &model.id), ("state", state)], n as f64);
        }
    }
}

fn misses(page: &mut Page, loaded: &[Loaded]) {
    let help = "Prompts that were not found whole in the prefix cache, by reason.";
    let mut family = page.family("hearth_prefix_cache_misses_total", Kind::Counter, help);
    for model in loaded {
        for (reason, n) in model.stats.totals.misses.by_name() {
            family.sample(&[("model_name", &model.id), ("reason", reason)], n as f64);
        }
    }
}

type OfDisk = (&'static str, Kind, &'static str, fn(&DiskStats) -> u64);

/// What the engines know of their caches on disk.
const DISK: &[OfDisk] = &[
    ("hearth_disk_cache_blocks", Kind::Gauge, "Blocks on disk.", |disk| disk.blocks),
    ("hearth_disk_cache_bytes", Kind::Gauge, "What they take.", |disk| disk.bytes),
    (
        "hearth_disk_cache_max_bytes",
        Kind::Gauge,
        "What the whole directory may take, other models included.",
        |disk| disk.max_bytes,
    ),
    (
        "hearth_disk_cache_written_blocks_total",
        Kind::Counter,
        "Blocks that were written.",
        |disk| disk.written,
    ),
    (
        "hearth_disk_cache_read_blocks_total",
        Kind::Counter,
        "Blocks that were brought back.",
        |disk| disk.read,
    ),
    (
        "hearth_disk_cache_dropped_blocks_total",
        Kind::Counter,
        "Blocks that were not kept: the writer could not follow, or the disk refused.",
        |disk| disk.dropped,
    ),
    ("hearth_disk_cache_write_errors_total", Kind::Counter, "Times that writing failed.", |disk| {
        disk.write_errors
    }),
    (
        "hearth_disk_cache_damaged_total",
        Kind::Counter,
        "Records and segments that were not what they should be, and were ignored.",
        |disk| disk.damaged,
    ),
    (
        "hearth_disk_cache_evicted_segments_total",
        Kind::Counter,
        "Segments that were removed to make room.",
        |disk| disk.evicted,
    ),
];

/// Families without samples where nothing is kept on disk.
fn disk(page: &mut Page, loaded: &[Loaded]) {
    for (name, kind, help, value) in DISK {
        let mut family = page.family(name, *kind, help);
        for model in loaded {
            if let Some(disk) = &model.stats.disk {
                family.sample(&[("model_name", &model.id)], value(disk) as f64);
            }
        }
    }
}

fn http(page: &mut Page, metrics: &Metrics) {
    let help = "HTTP responses by method, pattern of the route, and status.";
    let mut family = page.family("hearth_http_responses_total", Kind::Counter, help);
    for (response, n) in lock(&metrics.responses).iter() {
        let status = response.status.to_string();
        let labels =
            [("method", response.method), ("route", &*response.route), ("status", &*status)];
        family.sample(&labels, *n as f64);
    }
    let help = "Requests that got an error instead of an answer, by the error's code.";
    let mut family = page.family("hearth_requests_refused_total", Kind::Counter, help);
    for (code, n) in lock(&metrics.refusals).iter() {
        family.sample(&[("code", code)], *n as f64);
    }
}

fn process(page: &mut Page, app: &App) {
    let mut family = page.family("hearth_answers", Kind::Gauge, "Answers that are being made.");
    family.sample(&[], app.chat.live().count() as f64);
    let help = "Whether the server stops and takes nothing new.";
    page.family("hearth_draining", Kind::Gauge, help).sample(&[], f64::from(app.is_draining()));
    let help = "Time since the server started.";
    let uptime = app.started.elapsed().as_secs_f64();
    page.family("hearth_uptime_seconds", Kind::Gauge, help).sample(&[], uptime);
    if let Some(memory) = app.chat.pool().memory().device {
        let help = "Memory of the device that computes, as it counts it: in use, kept for what is \
                    to come, and the most that was in use.";
        let mut family = page.family("hearth_device_memory_bytes", Kind::Gauge, help);
        family.sample(&[("kind", "active")], memory.active as f64);
        family.sample(&[("kind", "cached")], memory.cached as f64);
        family.sample(&[("kind", "peak")], memory.peak as f64);
    }
    let Some(memory) = (app.settings.footprint)() else { return };
    let help = "Memory of the process that is in RAM.";
    let mut family = page.family("process_resident_memory_bytes", Kind::Gauge, help);
    family.sample(&[], memory.resident as f64);
    let help = "Memory of the process in RAM, by whether it could be read again from files.";
    let mut family = page.family("hearth_memory_bytes", Kind::Gauge, help);
    family.sample(&[("kind", "anonymous")], memory.anonymous as f64);
    family.sample(&[("kind", "files")], memory.files as f64);
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
