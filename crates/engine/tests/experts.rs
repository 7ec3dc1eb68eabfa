//! A pass over a mixture reads the experts that its rows choose and leaves the others alone, by what the
//! system says of the pages of the file.
//!
//! How many bytes that is on real shapes is counted by `bench/bytes.py`.

#![cfg(target_os = "linux")]

mod common;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use common::{Ask, submit};
use cpu::{Cpu, Options};
use hearth_engine::{Engine, ExecutorShape, Limits, ModelExecutor};
use models::{Decoder, tiny};
use serde_json::json;
use weights::{Checkpoint, ConvertOptions, Float, Repacking, Scheme};

const EXPERTS: usize = 48;
const CHOSEN: usize = 3;
const LAYERS: usize = 2;
const HIDDEN: usize = 256;
const INNER: usize = 1024;

/// A mixture in 4 bits in a folder.
fn write(folder: &Path) {
    let mut config = tiny::config("qwen3_moe").unwrap();
    let sizes = json!({
        "hidden_size": HIDDEN, "moe_intermediate_size": INNER, "num_experts": EXPERTS,
        "num_experts_per_tok": CHOSEN, "num_hidden_layers": LAYERS,
    });
    config.as_object_mut().unwrap().extend(sizes.as_object().unwrap().clone());
    let options = ConvertOptions {
        packing: Repacking::To(Scheme::Affine { bits: 4, group: 64 }),
        dtype: Some(Float::Bf16),
        threads: 1,
        shard_bytes: ConvertOptions::SHARD,
    };
    let checkpoint = tiny::checkpoint(config, 3).unwrap();
    weights::convert(&checkpoint, folder, &options, &mut |_| {}).unwrap();
    // Written anew in small pieces, since the system tells of what was read by the pieces in which it holds a
    // file, and large ones hold many experts.
    let file = folder.join("model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let mut file = std::fs::File::create(&file).unwrap();
    bytes.chunks(4096).for_each(|piece| file.write_all(piece).unwrap());
}

/// Bytes of the pages of files in `folder` that were read since the last [`forget`].
fn referenced(folder: &Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let folder = folder.to_str().unwrap();
    let (mut ours, mut bytes) = (false, 0);
    for line in maps.lines() {
        match line.split_once(':').filter(|(name, _)| !name.contains(' ')) {
            Some(("Referenced", kib)) if ours => {
                let kib = kib.trim().trim_end_matches(" kB");
                bytes += 1024 * kib.parse::<usize>().unwrap();
            }
            Some(_) => {}
            None => ours = line.contains(folder),
        }
    }
    bytes
}

/// Forgets which pages were read.
fn forget() {
    std::fs::write("/proc/self/clear_refs", "1").unwrap();
}

#[test]
fn a_pass_reads_the_experts_that_its_rows_choose() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("model");
    write(&folder);
    let checkpoint = Checkpoint::open(&folder).unwrap();
    let spec = models::recipe(&checkpoint.config).unwrap();
    let device = Cpu::new(&Options { threads: 1, ..Options::default() });
    let decoder = Decoder::load(&spec, &checkpoint, &device).unwrap();
    let shape =
        ExecutorShape { n_blocks: 16, n_windowed: 0, n_slots: 0, max_rows: 64, max_want: 4 };
    let executor = ModelExecutor::new(device, decoder, shape);
    let limits = Limits { rows: 64, seqs: 4, queue: 10, context: 512, stall_target: None };
    let mut engine = Engine::new(Box::new(executor), limits, Box::new(|| Duration::ZERO));

    // Three matrices with 4 bits and a scale and an offset for 64 numbers. Around a page that is read for the first
    // time the system brings others, 64 KiB in all, and each of the nine pieces of an expert has two ends.
    let expert = 3 * HIDDEN * INNER * 9 / 16;
    let all = LAYERS * EXPERTS * expert;
    let pages = 9 * (64 << 10);
    // Everything else: embedding and head of few tokens, attention, routers.
    let rest = std::fs::metadata(folder.join("model.safetensors")).unwrap().len() as usize - all;
    assert!(rest < all / 20, "{rest} of {all}");
    for n_rows in [1, 2, 4] {
        let answers: Vec<_> = (0..n_rows)
            .map(|i| submit(&mut engine, &Ask::greedy(&[40 + 60 * i as u32], 3)))
            .collect();
        engine.step();
        forget();
        engine.step();
        let read = referenced(&folder);
        drop(answers);
        engine.step();
        // One row chooses as many as it must, several at most as many times that.
        let (least, most) = (LAYERS * CHOSEN, LAYERS * CHOSEN * n_rows);
        assert!(read >= least * expert, "{n_rows} rows read {read} bytes, an expert has {expert}");
        assert!(
            read <= most * (expert + pages) + rest,
            "{n_rows} rows read {read} bytes, all are {all}"
        );
    }
}
