//! What `hearth bench --submit` writes: measurements with everything that is needed to judge them, in a
//! form that programs check. It goes into a file and nowhere else.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::{Kind, Row};
use crate::load::Opened;

/// Version of the form; docs/lab.md describes it.
const SCHEMA: u32 = 1;
/// Largest rate that is believed.
const FASTEST: f64 = 1e7;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Payload {
    schema: u32,
    /// Seconds since 1970.
    measured: u64,
    software: Software,
    hardware: Hardware,
    model: Model,
    config: Config,
    rows: Vec<Cell>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Software {
    name: String,
    version: String,
    system: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hardware {
    cpu: String,
    processors: usize,
    memory_bytes: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    name: String,
    family: String,
    parameters: u64,
    weights_bytes: u64,
    bytes_read_per_token: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    threads: usize,
    runs: usize,
    warm_up_runs: usize,
    sampling: String,
    prompts: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cell {
    kind: Kind,
    n_prompt: usize,
    n_gen: usize,
    depth: usize,
    tok_s: f64,
    tok_s_mean: f64,
    tok_s_sd: f64,
    tok_s_runs: Vec<f64>,
}

impl Payload {
    /// Of what was measured, of at least one row.
    pub(super) fn of(rows: &[Row], opened: &Opened) -> Payload {
        let machine = lab::run::machine();
        let first = rows.first();
        Payload {
            schema: SCHEMA,
            measured: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs()),
            software: Software {
                name: "hearth".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                system: machine.system,
            },
            hardware: Hardware {
                cpu: machine.cpu,
                processors: machine.processors,
                memory_bytes: machine.memory,
            },
            model: Model {
                name: first.map(|row| row.model.clone()).unwrap_or_default(),
                family: opened.spec.family.to_owned(),
                parameters: opened.spec.n_params(),
                weights_bytes: opened.footprint.weight_bytes,
                bytes_read_per_token: opened.footprint.bytes_per_token,
            },
            config: Config {
                threads: first.map_or(0, |row| row.threads),
                runs: first.map_or(0, |row| row.tok_s_runs.len()),
                warm_up_runs: 1,
                sampling: "greedy".to_owned(),
                prompts: "random tokens, different in every run".to_owned(),
            },
            rows: rows.iter().map(Cell::of).collect(),
        }
    }

    /// As text that has been read back and checked.
    pub(super) fn text(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self)?;
        check(&text)?;
        Ok(text)
    }
}

impl Cell {
    fn of(row: &Row) -> Cell {
        Cell {
            kind: row.kind,
            n_prompt: row.n_prompt,
            n_gen: row.n_gen,
            depth: row.depth,
            tok_s: row.tok_s,
            tok_s_mean: lab::stats::mean(&row.tok_s_runs),
            tok_s_sd: lab::stats::sd(&row.tok_s_runs),
            tok_s_runs: row.tok_s_runs.clone(),
        }
    }
}

/// Whether a text is such a payload: all fields and no others, and numbers that can be.
fn check(text: &str) -> Result<()> {
    let payload: Payload = serde_json::from_str(text).context("not a payload of this form")?;
    if payload.schema != SCHEMA {
        bail!("schema {} is not {SCHEMA}", payload.schema);
    }
    if payload.rows.is_empty() {
        bail!("there is nothing in it");
    }
    for row in &payload.rows {
        let believed = |rate: &f64| *rate > 0.0 && *rate < FASTEST;
        if row.tok_s_runs.len() != payload.config.runs || !row.tok_s_runs.iter().all(believed) {
            bail!("a row has not {} rates that can be: {row:?}", payload.config.runs);
        }
        if row.tok_s != lab::stats::median(&row.tok_s_runs) {
            bail!("a rate is not the median of its runs: {row:?}");
        }
        let length = match row.kind {
            Kind::Prefill => row.n_prompt,
            Kind::Decode => row.n_gen,
        };
        if length == 0 {
            bail!("a row measures no token: {row:?}");
        }
    }
    Ok(())
}

pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{
        "schema": 1, "measured": 1,
        "software": {"name": "hearth", "version": "0.1.0", "system": "linux"},
        "hardware": {"cpu": "x", "processors": 2, "memory_bytes": 1},
        "model": {"name": "m", "family": "llama", "parameters": 1, "weights_bytes": 1, "bytes_read_per_token": 1},
        "config": {"threads": 2, "runs": 3, "warm_up_runs": 1, "sampling": "greedy", "prompts": "random"},
        "rows": [{"kind": "decode", "n_prompt": 0, "n_gen": 8, "depth": 0, "tok_s": 2.0, "tok_s_mean": 2.0,
                  "tok_s_sd": 1.0, "tok_s_runs": [3.0, 1.0, 2.0]}]
    }"#;

    /// By the published schema, as others would do it. The schema cannot say what depends on other fields:
    /// the number of rates, and which of them is the median.
    #[test]
    fn the_schema_says_what_is_written() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/submit.schema.json");
        let schema = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        jsonschema::meta::validate(&schema).unwrap();
        let schema = jsonschema::validator_for(&schema).unwrap();
        let is_valid = |text: &str| schema.is_valid(&serde_json::from_str(text).unwrap());
        let written: Payload = serde_json::from_str(TEXT).unwrap();
        assert!(is_valid(&written.text().unwrap()));
        for (from, to) in [
            ("\"schema\": 1", "\"schema\": 2"),
            ("\"measured\": 1", "\"measured\": 1, \"more\": 1"),
            ("\"threads\": 2,", ""),
            ("\"cpu\": \"x\"", "\"cpu\": 1"),
            ("[3.0, 1.0, 2.0]", "[3.0, -1.0, 2.0]"),
            ("[3.0, 1.0, 2.0]", "[]"),
            ("\"decode\"", "\"dreaming\""),
            ("\"n_gen\": 8", "\"n_gen\": 0"),
            ("\"n_gen\": 8", "\"n_gen\": 8.5"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            assert!(!is_valid(&TEXT.replace(from, to)), "{to}");
        }
    }

    #[test]
    fn a_payload_is_checked() {
        check(TEXT).unwrap();
        for (from, to, why) in [
            ("\"schema\": 1", "\"schema\": 2", "schema 2"),
            ("\"measured\": 1", "\"measured\": 1, \"more\": 1", "form"),
            ("\"threads\": 2,", "", "form"),
            ("[3.0, 1.0, 2.0]", "[3.0, 2.0]", "rates"),
            ("[3.0, 1.0, 2.0]", "[3.0, -1.0, 2.0]", "rates"),
            ("\"tok_s\": 2.0", "\"tok_s\": 2.5", "median"),
            ("\"n_gen\": 8", "\"n_gen\": 0", "no token"),
        ] {
            let error = check(&TEXT.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
    }
}
