//! Every family computes the logits that transformers computes, and however the prompt is cut the
//! bytes are the same. The goldens come from `tools/goldens/families.py`. One file per area.

mod dense;
mod first;
mod gemma;
mod gpt;
mod mla;
mod moe;
mod state;

use backend::KvFormat;
use backend::reference::Reference;
use cpu::{Activations, Cpu, Options};
use hearth_models::recipe::Mixer;
use hearth_models::{ModelSpec, recipe};
use weights::Checkpoint;

use crate::common::{Golden, Runner, distance, fixtures, floats, golden_cases, json, tokens};

/// The largest difference to transformers in plain f32: what keys and values in 16 bits cost, as whole
/// numbers and in f16.
const TOLERANCES: [(KvFormat, f32); 2] = [(KvFormat::Int16, 4e-3), (KvFormat::F16, 1.5e-2)];

fn check(case: &str) {
    let folder = fixtures().join(case);
    let config = json(&folder.join("config.json"));
    check_spec(case, &recipe(&config).expect(case));
}

/// `case` is `<weights>` or `<weights>/<variant>`.
fn check_spec(case: &str, spec: &ModelSpec) {
    let weights = fixtures().join(case.split('/').next().unwrap_or(case));
    let folder = fixtures().join(case);
    let golden = Golden {
        name: case,
        spec,
        checkpoint: &Checkpoint::open(&weights).expect(case),
        tokens: tokens(&weights.join("input.json")),
        logits: floats(&folder.join("logits_kv16.f32")),
    };
    golden.check_all();
}

/// Every case of plain f32 logits is held to them.
#[test]
fn keys_and_values_in_16_bits_cost_little() {
    for folder in golden_cases() {
        let case = folder.display();
        let checkpoint = Checkpoint::open(&folder).unwrap_or_else(|e| panic!("{case}: {e}"));
        let spec = recipe(&checkpoint.config).unwrap_or_else(|e| panic!("{case}: {e}"));
        let tokens = tokens(&folder.join("input.json"));
        let golden = floats(&folder.join("logits.f32"));
        let exact = Options { activations: Activations::Exact, threads: 2, ..Options::default() };
        let has_latents = spec.mixers().any(|mixer| matches!(mixer, Mixer::Latent(_)));
        // Which are kept in f16 in either case.
        for (format, tolerance) in TOLERANCES.into_iter().skip(usize::from(has_latents)) {
            let spec = spec.clone().with_kv_format(format);
            let plain = Runner::new(&Reference, &spec, &checkpoint).logits(&tokens, tokens.len());
            let cpu = Cpu::new(&exact);
            let fast = Runner::new(&cpu, &spec, &checkpoint).logits(&tokens, tokens.len());
            for (device, ours) in [("the reference", plain), ("the CPU", fast)] {
                let (worst, _) = distance(&ours, &golden);
                let what = format!("{case}, {format:?}, {device}");
                assert!(worst < tolerance, "{what}: {worst} deviations from plain f32");
            }
        }
    }
}
