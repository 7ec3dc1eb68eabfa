//! Families with layers that carry a state.

use backend::{BLOCK, Batch, Span, TokenId};
use cpu::{Cpu, Options};
use hearth_models::recipe;
use weights::Checkpoint;

use super::check;
use crate::common::{Runner, golden_cases, tokens};
use crate::packings;

#[test]
fn lfm2_with_every_bias_and_an_adjusted_width() {
    check("lfm2");
}

#[test]
fn mamba2_alone_with_steps_clamped_and_not() {
    check("mamba2");
    check("mamba2/free");
}

#[test]
fn granite_hybrids_without_experts() {
    check("granitemoehybrid_dense");
}

#[test]
fn granite_hybrids_with_experts() {
    check("granitemoehybrid");
    check("granitemoehybrid/rope");
}

#[test]
fn lfm2_with_experts() {
    check("lfm2_moe");
    check("lfm2_moe/plain");
}

#[test]
fn nemotron_hybrids_with_layers_of_every_kind() {
    check("nemotron_h");
}

#[test]
fn nemotron_experts_of_a_width_of_their_own() {
    check("nemotron_h_latent");
}

#[test]
fn kimi_linear_with_its_delta_rule_and_latents() {
    check("kimi_linear");
}

#[test]
fn falcon_h1_with_all_factors() {
    check("falcon_h1");
}

#[test]
fn falcon_h1_with_norms_on_either_side_of_the_gate() {
    check("falcon_h1_norm");
    check("falcon_h1_norm/after");
}

/// Experts in stacks of other names, gate and up as most have them.
#[test]
fn hybrids_with_experts_as_mlx_converts_them() {
    packings::check("lfm2_moe_affine4");
    packings::check("nemotron_h_affine4");
    packings::check("granitemoehybrid_affine4");
    packings::check("kimi_linear_affine4");
}

/// Wherever a prompt is cut, what comes after goes on from the state that was kept there.
#[test]
fn prompts_cut_anywhere_go_on_from_their_states() {
    let cpu = Cpu::new(&Options { threads: 2, ..Options::default() });
    for folder in golden_cases() {
        let case = folder.display();
        let checkpoint = Checkpoint::open(&folder).unwrap_or_else(|e| panic!("{case}: {e}"));
        let spec = recipe(&checkpoint.config).unwrap_or_else(|e| panic!("{case}: {e}"));
        if spec.state_bytes() == 0 {
            continue;
        }
        let tokens = tokens(&folder.join("input.json"));
        let n = tokens.len();
        let mut runner = Runner::new(&cpu, &spec, &checkpoint);
        let whole = runner.logits(&tokens, n);
        for cut in 1..n {
            let blocks = |end: usize| (0..end.div_ceil(BLOCK) as u32).collect();
            let mut before = Span::new(0..cut, 0, blocks(cut));
            before.states_out = vec![(cut - 1, 3)];
            let mut after = Span::new(0..n - cut, cut, blocks(n));
            after.state_in = Some(3);
            let pass = |span: Span, tokens: &[TokenId]| Batch {
                want: (0..tokens.len() as u32).collect(),
                tokens: tokens.to_vec(),
                spans: vec![span],
            };
            let mut found = runner.pass(&pass(before, &tokens[..cut]));
            found.extend(runner.pass(&pass(after, &tokens[cut..])));
            assert!(found == whole, "{case}: a cut after {cut} tokens changes the logits");
        }
    }
}
