//! Several residual streams, and the largest activations of a row.

use std::ops::Range;

use super::data::{Rng, Rows, download, upload};
use super::rounding::Rounding;
use super::{Tolerance, assert_close, assert_same_bits};
use crate::Backend;
use crate::reference::Reference;

/// Streams of a model.
struct Case {
    n: usize,
    cols: usize,
    active: usize,
    gain: Vec<f32>,
}

/// Rows of everything the ops read.
struct Rowed {
    streams: Rows,
    predict: Rows,
    correct: Rows,
    x: Rows,
}

/// The name of each op and what it says.
type Outcome = Vec<(&'static str, Rows)>;

fn cases(rng: &mut Rng) -> Vec<Case> {
    let case = |(n, cols, active)| Case { n, cols, active, gain: rng.vector(cols) };
    [(2, 7, 1), (4, 48, 0), (3, 2048, 2)].map(case).into()
}

impl Case {
    fn rows(&self, n: usize, rng: &mut Rng) -> Rowed {
        let mut streams = rng.rows(n, self.n * self.cols);
        // A stream of next to nothing, which may not become anything large.
        streams.data[self.cols..2 * self.cols].iter_mut().for_each(|x| *x = rng.held(*x * 1e-4));
        Rowed {
            streams,
            predict: rng.rows(n, self.n * self.n),
            correct: rng.rows(n, self.n),
            x: rng.rows(n, self.cols),
        }
    }

    fn run<B: Backend>(&self, device: &B, rows: &Rowed) -> Outcome {
        let (n, all) = (rows.x.rows, self.n * self.cols);
        let up = |rows: &Rows| upload(device, rows);
        let gain = device.vector(&self.gain);
        let mut outcome = Vec::new();
        let mut say = |op, buf: &B::Buf, cols| outcome.push((op, download(device, buf, n, cols)));

        let (x, mut streams) = (up(&rows.x), up(&rows.streams));
        device.match_size(&mut streams, &x);
        say("match_size", &streams, all);
        let mut one = device.buf(n * self.cols);
        for (op, gain) in [("stream", None), ("stream with gain", Some(&gain))] {
            device.stream(&streams, (self.active, self.n), gain, &mut one);
            say(op, &one, self.cols);
        }
        device.predict_streams(&mut streams, &up(&rows.predict));
        say("predict_streams", &streams, all);
        device.correct_streams(&mut streams, &up(&rows.correct), &x, self.active);
        say("correct_streams", &streams, all);
        device.add_to_other_streams(&mut streams, &x);
        say("add_to_other_streams", &streams, all);
        let mut largest = up(&rows.streams);
        device.keep_largest(&mut largest, self.cols, 0.7);
        say("keep_largest", &largest, all);
        outcome
    }

    fn name(&self, op: &str) -> String {
        format!("{op}, {} streams of {} columns", self.n, self.cols)
    }
}

impl Rowed {
    fn range(&self, range: Range<usize>) -> Rowed {
        let of = |rows: &Rows| rows.range(range.clone());
        Rowed {
            streams: of(&self.streams),
            predict: of(&self.predict),
            correct: of(&self.correct),
            x: of(&self.x),
        }
    }
}

pub(super) fn check<B: Backend>(device: &B, tolerance: Tolerance) {
    let rng = &mut Rng::new(21);
    for case in cases(rng) {
        for n in [1, 2, 37] {
            let rows = case.rows(n, rng);
            let (got, want) = (case.run(device, &rows), case.run(&Reference, &rows));
            for ((op, got), (_, want)) in got.iter().zip(&want) {
                // Each op but the last goes on from what the one before has said.
                assert_close(&case.name(op), got, want, 4.0 * tolerance.other);
            }
        }
    }
}

/// Seven ops one after the other, of which two are sums of products of what those before have made.
pub(super) fn check_rounded<B: Backend>(device: &B, rounding: &Rounding) {
    let rng = &mut rounding.rng(21);
    for case in cases(rng) {
        let rows = case.rows(37, rng);
        let (got, want) = (case.run(device, &rows), case.run(&Reference, &rows));
        for ((op, got), (_, want)) in got.iter().zip(&want) {
            rounding.assert_near(&case.name(op), got, want, 16.0);
        }
    }
}

pub(super) fn check_invariance<B: Backend>(device: &B) {
    let rng = &mut Rng::new(22);
    for case in cases(rng) {
        let rows = case.rows(37, rng);
        let together = case.run(device, &rows);
        for first in 0..37 {
            let range = first..first + 1;
            let alone = case.run(device, &rows.range(range.clone()));
            for ((op, alone), (_, together)) in alone.iter().zip(&together) {
                let what = format!("{}, row {first} alone", case.name(op));
                assert_same_bits(&what, alone, &together.range(range.clone()));
            }
        }
    }
}

pub(super) fn check_equal<A: Backend, B: Backend>(a: &A, b: &B) {
    let rng = &mut Rng::new(23);
    for case in cases(rng) {
        let rows = case.rows(37, rng);
        for ((op, a), (_, b)) in case.run(a, &rows).iter().zip(&case.run(b, &rows)) {
            assert_same_bits(&case.name(op), a, b);
        }
    }
}
