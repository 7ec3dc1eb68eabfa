//! Layers with a state: ragged sequences that catch up in passes of any cut, and states that are kept,
//! moved and gone on from.

mod cases;

use super::data::{Rng, Rows, download};
use super::passes::{self, Case as _, Pass};
use super::rounding::Rounding;
use super::{Tolerance, assert_close, assert_same_bits};
use crate::reference::Reference;
use crate::{BLOCK, Backend, Batch, SlotId, Span};
use cases::{Case, cases};

/// A sequence on its way: what came out so far, and where its state is.
struct Track {
    out: Rows,
    slot: Option<SlotId>,
}

/// A layer on a device, with its states.
struct Layer<'a, B: Backend> {
    device: &'a B,
    case: &'a Case,
    vectors: Vec<B::Vector>,
    states: B::States,
}

/// What a pass asks for.
struct Ask<'a> {
    rows: &'a Rows,
    state_in: Option<SlotId>,
    states_out: Vec<(usize, SlotId)>,
}

impl passes::Case for Case {
    type Outcome = Rows;

    fn name(&self) -> String {
        format!("{:?}", self.spec)
    }

    fn lengths(&self) -> Vec<usize> {
        self.sequences.iter().map(|rows| rows.rows).collect()
    }

    /// What the layer makes of every sequence. The states go from slot to slot.
    fn run<B: Backend>(&self, device: &B, passes: &[Pass]) -> Vec<Rows> {
        let cols = self.spec.out_cols();
        let empty = |_: &Rows| Track { out: Rows { rows: 0, cols, data: Vec::new() }, slot: None };
        let mut tracks: Vec<Track> = self.sequences.iter().map(empty).collect();
        let n_slots = 2 * tracks.len();
        let mut layer = Layer::new(device, self, n_slots);
        for pass in passes {
            let rows: Vec<Rows> = pass
                .iter()
                .map(|(i, n)| {
                    let done = tracks[*i].out.rows;
                    self.sequences[*i].range(done..done + n)
                })
                .collect();
            let next = |i: usize| match tracks[i].slot {
                Some(slot) if slot as usize == 2 * i => 2 * i + 1,
                _ => 2 * i,
            };
            let ask = |((i, n), rows): (&(usize, usize), _)| Ask {
                rows,
                state_in: tracks[*i].slot,
                states_out: vec![(n - 1, next(*i) as SlotId)],
            };
            let asks: Vec<Ask> = pass.iter().zip(&rows).map(ask).collect();
            let outs = layer.pass(&asks);
            for (((i, _), ask), out) in pass.iter().zip(&asks).zip(outs) {
                let track = &mut tracks[*i];
                track.out.rows += out.rows;
                track.out.data.extend(out.data);
                track.slot = Some(ask.states_out[0].1);
            }
        }
        tracks.into_iter().map(|track| track.out).collect()
    }

    fn assert_same(what: &str, got: &Rows, want: &Rows) {
        assert_same_bits(what, got, want);
    }
}

impl<'a, B: Backend> Layer<'a, B> {
    fn new(device: &'a B, case: &'a Case, n_slots: usize) -> Self {
        let vectors = case.vectors.iter().map(|values| device.vector(values)).collect();
        Layer { device, case, vectors, states: device.states(&case.spec, n_slots) }
    }

    /// What comes out for each.
    fn pass(&mut self, asks: &[Ask<'_>]) -> Vec<Rows> {
        let (device, spec) = (self.device, &self.case.spec);
        let mut batch = Batch::default();
        let cols = self.case.longest().cols;
        let mut x = Rows { rows: 0, cols, data: Vec::new() };
        for ask in asks {
            let rows = x.rows..x.rows + ask.rows.rows;
            let mut span = Span::new(rows, 0, vec![0; ask.rows.rows.div_ceil(BLOCK)]);
            (span.state_in, span.states_out) = (ask.state_in, ask.states_out.clone());
            batch.spans.push(span);
            x.rows += ask.rows.rows;
            x.data.extend(&ask.rows.data);
        }
        batch.tokens = vec![0; x.rows];
        let mut staged = device.staged(x.rows);
        device.stage(&batch, &mut staged);
        let mut out = device.buf(x.rows * spec.out_cols());
        let rows = (&x, &staged);
        self.case.run_op(device, rows, &self.vectors, &mut self.states, &mut out);
        let out = download(device, &out, x.rows, spec.out_cols());
        batch.spans.iter().map(|span| out.range(span.rows.clone())).collect()
    }

    /// Goes on from `slot`, or from nothing, keeping no state.
    fn rest(&mut self, rows: &Rows, state_in: Option<SlotId>) -> Rows {
        self.pass(&[Ask { rows, state_in, states_out: Vec::new() }]).remove(0)
    }

    fn state(&self, slot: SlotId) -> Vec<u8> {
        let mut bytes = vec![0; self.device.state_bytes(&self.states)];
        self.device.read_state(&self.states, slot, &mut bytes).expect("the device works");
        bytes
    }
}

pub(super) fn check<B: Backend>(device: &B, tolerance: Tolerance) {
    let rng = &mut Rng::new(8);
    for case in cases(rng) {
        let passes = case.ragged(rng);
        let (got, want) = (case.run(device, &passes), case.run(&Reference, &passes));
        for (got, want) in got.iter().zip(&want) {
            // A product of many roundings, one after the other.
            assert_close(&case.name(), got, want, 20.0 * tolerance.other);
        }
        check_kept(device, &case);
    }
}

/// States and all that becomes of them have f32 on every device: what comes out is rounded, and once more
/// is room for what f32 does.
pub(super) fn check_rounded<B: Backend>(device: &B, rounding: &Rounding) {
    let rng = &mut rounding.rng(8);
    for case in cases(rng) {
        let passes = case.ragged(rng);
        let (got, want) = (case.run(device, &passes), case.run(&Reference, &passes));
        for (got, want) in got.iter().zip(&want) {
            rounding.assert_near(&case.name(), got, want, 2.0);
        }
    }
}

/// A state that is kept after any row is that of a pass that ends there; whoever goes on from it,
/// wherever it was moved, gets what one pass over everything gives; and no other slot is touched.
fn check_kept<B: Backend>(device: &B, case: &Case) {
    let what = case.name();
    let rows = case.longest();
    let n = rows.rows;
    let whole = Layer::new(device, case, 0).rest(rows, None);
    let kept = [0, 1, 2, n / 2, n - 3];
    let first = n / 3;
    let mut layer = Layer::new(device, case, 9);
    // From the start, and from the middle of the sequence.
    let (head, tail) = (rows.range(0..first), rows.range(first..n));
    let to_first = Ask { rows: &head, state_in: None, states_out: vec![(first - 1, 8)] };
    layer.pass(&[to_first]);
    let begin = layer.state(8);
    let untouched = layer.state(7);
    for (rows, start, state_in) in [(rows, 0, None), (&tail, first, Some(8))] {
        let kept = kept.iter().filter(|row| **row < rows.rows).copied().zip([5, 0, 3, 1, 2]);
        let kept: Vec<(usize, SlotId)> = kept.collect();
        let out = layer.pass(&[Ask { rows, state_in, states_out: kept.clone() }]).remove(0);
        assert_same_bits(&what, &out, &whole.range(start..n));
        for (row, slot) in kept {
            let mut shorter = Layer::new(device, case, 10);
            let ask = Ask {
                rows: &case.longest().range(0..start + row + 1),
                state_in: None,
                states_out: vec![(start + row, 4)],
            };
            shorter.pass(&[ask]);
            let state = layer.state(slot);
            assert!(state == shorter.state(4), "{what}: the state after row {}", start + row);
            device.write_state(&mut shorter.states, 9, &state);
            let rest = shorter.rest(&case.longest().range(start + row + 1..n), Some(9));
            assert_same_bits(&what, &rest, &whole.range(start + row + 1..n));
        }
        assert!(layer.state(8) == begin, "{what}: the state that was read is another");
        assert!(layer.state(7) == untouched, "{what}: a slot that nobody named was written");
    }
}

pub(super) fn check_invariance<B: Backend>(device: &B) {
    let rng = &mut Rng::new(9);
    passes::check_invariance(device, &cases(rng), rng);
}

pub(super) fn check_equal<A: Backend, B: Backend>(a: &A, b: &B) {
    let rng = &mut Rng::new(10);
    passes::check_equal(a, b, &cases(rng), rng);
}
