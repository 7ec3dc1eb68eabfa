//! Every family computes the logits that transformers computes, and however the prompt is cut the
//! bytes are the same. The goldens come from `tools/goldens/families.py`. One file per area.

mod dense;
mod first;
mod gemma;
mod mla;
mod moe;
mod state;

use backend::reference::Reference;
use hearth_models::{ModelSpec, recipe};
use weights::Checkpoint;

use crate::common::{Golden, Runner, distance, fixtures, floats, golden_cases, json, tokens};

/// The largest difference to transformers in plain f32: what keys and values in f16 cost.
const TOLERANCE_F32: f32 = 1.5e-2;

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
fn keys_and_values_in_f16_cost_little() {
    for folder in golden_cases() {
        let case = folder.display();
        let checkpoint = Checkpoint::open(&folder).unwrap_or_else(|e| panic!("{case}: {e}"));
        let spec = recipe(&checkpoint.config).unwrap_or_else(|e| panic!("{case}: {e}"));
        let tokens = tokens(&folder.join("input.json"));
        let ours = Runner::new(&Reference, &spec, &checkpoint).logits(&tokens, tokens.len());
        let (worst, _) = distance(&ours, &floats(&folder.join("logits.f32")));
        assert!(worst < TOLERANCE_F32, "{case}: {worst} deviations from plain f32");
    }
}
