//! Several residual streams, as loops.

use super::{Buf, Reference};
use crate::ops::{LEAST_MEAN_SQUARE, StreamOps};

fn mean_square(x: &[f32]) -> f64 {
    x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>() / x.len() as f64
}

impl StreamOps for Reference {
    fn match_size(&self, x: &mut Buf, like: &Buf) {
        for r in 0..x.rows {
            let size = mean_square(like.row(r)).sqrt();
            for group in x.row_mut(r).chunks_exact_mut(like.cols) {
                let own = mean_square(group).max(f64::from(LEAST_MEAN_SQUARE)).sqrt();
                group.iter_mut().for_each(|x| *x = (f64::from(*x) * (size / own)) as f32);
            }
        }
    }

    fn stream(
        &self,
        streams: &Buf,
        (i, n): (usize, usize),
        gain: Option<&Vec<f32>>,
        out: &mut Buf,
    ) {
        let cols = streams.cols / n;
        out.shape(streams.rows, cols);
        for r in 0..streams.rows {
            out.row_mut(r).copy_from_slice(&streams.row(r)[i * cols..][..cols]);
            if let Some(gain) = gain {
                out.row_mut(r).iter_mut().zip(gain).for_each(|(x, gain)| *x *= gain);
            }
        }
    }

    fn predict_streams(&self, streams: &mut Buf, c: &Buf) {
        let n = c.cols.isqrt();
        let cols = streams.cols / n;
        for r in 0..streams.rows {
            let (before, c) = (streams.row(r).to_vec(), c.row(r));
            for (place, x) in streams.row_mut(r).iter_mut().enumerate() {
                let (i, col) = (place / cols, place % cols);
                let term = |j: usize| f64::from(c[i * n + j]) * f64::from(before[j * cols + col]);
                *x = (f64::from(*x) + (0..n).map(term).sum::<f64>()) as f32;
            }
        }
    }

    fn correct_streams(&self, streams: &mut Buf, c: &Buf, x: &Buf, active: usize) {
        let cols = x.cols;
        for r in 0..streams.rows {
            let (before, c) = (streams.row(r).to_vec(), c.row(r));
            for (place, s) in streams.row_mut(r).iter_mut().enumerate() {
                let (i, col) = (place / cols, place % cols);
                let news = f64::from(x.row(r)[col]) - f64::from(before[active * cols + col]);
                *s = (f64::from(*s) + (1.0 + f64::from(c[i])) * news) as f32;
            }
        }
    }

    fn add_to_other_streams(&self, streams: &mut Buf, y: &Buf) {
        for r in 0..streams.rows {
            for stream in streams.row_mut(r).chunks_exact_mut(y.cols).skip(1) {
                stream.iter_mut().zip(y.row(r)).for_each(|(s, y)| *s += y);
            }
        }
    }
}
