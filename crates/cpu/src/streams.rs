//! Several residual streams side by side, and the largest activations of a row.
//!
//! Every op is a loop over rows in plain f32, whose sums go into sixteen lanes that are added in one
//! order on every machine.

use backend::ops::{LEAST_MEAN_SQUARE, StreamOps};

use crate::layer_inputs::with_row;
use crate::{Buf, Cpu, Vector};

/// Lanes of a sum over columns.
const LANES: usize = 16;

/// The mean of `f` of all numbers.
fn mean_of(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    for x in x.chunks(LANES) {
        lanes.iter_mut().zip(x).for_each(|(lane, x)| *lane += f(*x));
    }
    lanes.iter().sum::<f32>() / x.len() as f32
}

/// `x = max(x - (mean(x) + deviations * std(x)), 0)`.
pub(crate) fn keep_largest(x: &mut [f32], deviations: f32) {
    let mean = mean_of(x, |x| x);
    let variance = mean_of(x, |x| (x - mean) * (x - mean));
    let least = mean + variance.sqrt() * deviations;
    x.iter_mut().for_each(|x| *x = (*x - least).max(0.0));
}

impl StreamOps for Cpu {
    fn match_size(&self, x: &mut Buf, like: &Buf) {
        let cols = x.cols();
        self.each_row(x.values_mut(), cols, |r, row| {
            let size = mean_of(like.row(r), |x| x * x).sqrt();
            for group in row.chunks_exact_mut(like.cols()) {
                let own = mean_of(group, |x| x * x).max(LEAST_MEAN_SQUARE).sqrt();
                let by = size / own;
                group.iter_mut().for_each(|x| *x *= by);
            }
        });
    }

    fn stream(&self, streams: &Buf, (i, n): (usize, usize), gain: Option<&Vector>, out: &mut Buf) {
        let cols = streams.cols() / n;
        let out = out.reshape(streams.rows(), cols);
        self.each_row(out, cols, |r, out| {
            out.copy_from_slice(&streams.row(r)[i * cols..][..cols]);
            if let Some(gain) = gain {
                out.iter_mut().zip(&gain.0).for_each(|(x, gain)| *x *= gain);
            }
        });
    }

    fn predict_streams(&self, streams: &mut Buf, c: &Buf) {
        let (all, n) = (streams.cols(), c.cols().isqrt());
        let cols = all / n;
        self.each_row(streams.values_mut(), all, |r, row| {
            with_row(all, |before| {
                before.copy_from_slice(row);
                let groups = row.chunks_exact_mut(cols).zip(c.row(r).chunks_exact(n));
                for (stream, c) in groups {
                    for (c, other) in c.iter().zip(before.chunks_exact(cols)) {
                        stream.iter_mut().zip(other).for_each(|(x, other)| *x += c * other);
                    }
                }
            });
        });
    }

    fn correct_streams(&self, streams: &mut Buf, c: &Buf, x: &Buf, active: usize) {
        let (all, cols) = (streams.cols(), x.cols());
        self.each_row(streams.values_mut(), all, |r, row| {
            with_row(cols, |news| {
                let before = &row[active * cols..][..cols];
                for ((news, x), before) in news.iter_mut().zip(x.row(r)).zip(before) {
                    *news = x - before;
                }
                for (stream, c) in row.chunks_exact_mut(cols).zip(c.row(r)) {
                    let by = 1.0 + c;
                    stream.iter_mut().zip(&*news).for_each(|(s, news)| *s += by * news);
                }
            });
        });
    }

    fn add_to_other_streams(&self, streams: &mut Buf, y: &Buf) {
        let all = streams.cols();
        self.each_row(streams.values_mut(), all, |r, row| {
            for stream in row.chunks_exact_mut(y.cols()).skip(1) {
                stream.iter_mut().zip(y.row(r)).for_each(|(s, y)| *s += y);
            }
        });
    }
}
