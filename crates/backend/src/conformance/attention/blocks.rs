//! Blocks that leave their pages as bytes and come back elsewhere: nothing may change.

use super::super::passes::{Case as _, Pass, assert_all_same};
use super::{Case, Outcome};
use crate::{Backend, BlockId};

/// Moves all blocks to other places in other pages after every pass.
pub(super) fn check<B: Backend>(device: &B, case: &Case) {
    let passes = case.in_chunks(50);
    let stayed = case.run(device, &passes);
    let what = format!("{} moved", case.name());
    assert_all_same::<Case>(&what, &run_moving(device, case, &passes), &stayed);
}

fn run_moving<B: Backend>(device: &B, case: &Case, passes: &[Pass]) -> Vec<Outcome> {
    let mut outcomes = case.no_outcomes();
    let mut case = case.clone();
    let mut pages = device.pages(&case.spec, case.format, case.n_blocks);
    for pass in passes {
        case.pass(device, &mut pages, pass, &mut outcomes);
        (case, pages) = moved(device, &case, &pages);
    }
    outcomes
}

fn moved<B: Backend>(device: &B, case: &Case, pages: &B::Pages) -> (Case, B::Pages) {
    let mut to = case.clone();
    to.n_blocks += 1;
    let mut new_pages = device.pages(&to.spec, to.format, to.n_blocks);
    let n_bytes = device.block_bytes(pages);
    assert_eq!(n_bytes, device.block_bytes(&new_pages), "the bytes of a block depend on its pages");
    for block in to.sequences.iter_mut().flat_map(|sequence| &mut sequence.blocks) {
        let old = std::mem::replace(block, case.n_blocks as BlockId - *block);
        let (mut bytes, mut again) = (vec![0; n_bytes], vec![0; n_bytes]);
        device.read_block(pages, old, &mut bytes).expect("the device works");
        device.write_block(&mut new_pages, *block, &bytes);
        device.read_block(&new_pages, *block, &mut again).expect("the device works");
        assert!(bytes == again, "{}: block {old} does not come back", case.name());
    }
    (to, new_pages)
}
