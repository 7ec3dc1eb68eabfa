//! Several residual streams side by side, in f32 whatever activations are computed in.

use backend::ops::{LEAST_MEAN_SQUARE, StreamOps};

use crate::ffi::{Array, Dtype, Fault, concatenate};
use crate::{Buf, Mlx, Vector};

/// The mean square over the last of three axes.
fn mean_square(x: &Array) -> Result<Array, Fault> {
    x.square()?.sum(2)?.times(1.0 / x.dim(2) as f32)
}

/// `[rows, n, columns]` in f32.
fn apart(x: &Array, n: usize) -> Result<Array, Fault> {
    x.astype(Dtype::F32)?.reshape(&[x.dim(0), n, x.dim(1) / n])
}

impl Mlx {
    /// `[rows, n, columns]` as rows of the type of activations.
    fn beside(&self, x: &Array) -> Result<Array, Fault> {
        x.reshape(&[x.dim(0), x.dim(1) * x.dim(2)])?.astype(self.dtype)
    }
}

impl StreamOps for Mlx {
    fn match_size(&self, x: &mut Buf, like: &Buf) {
        self.update(x, |x| {
            let like = like.get()?;
            let groups = apart(x, x.dim(1) / like.dim(1))?;
            let least = Array::number(LEAST_MEAN_SQUARE, Dtype::F32)?;
            let own = mean_square(&groups)?.maximum(&least)?.sqrt()?;
            let size = mean_square(&apart(like, 1)?)?.sqrt()?;
            self.beside(&groups.multiply(&size.divide(&own)?)?)
        });
    }

    fn stream(&self, streams: &Buf, (i, n): (usize, usize), gain: Option<&Vector>, out: &mut Buf) {
        self.fill(out, || {
            let streams = streams.get()?;
            let cols = streams.dim(1) / n;
            let own = streams.slice(1, i * cols..(i + 1) * cols)?;
            gain.map_or_else(|| Ok(own.clone()), |gain| own.multiply(&gain.native))
        });
    }

    fn predict_streams(&self, streams: &mut Buf, c: &Buf) {
        self.update(streams, |streams| {
            let c = c.get()?;
            let n = c.dim(1).isqrt();
            let streams = apart(streams, n)?;
            let change = apart(c, n)?.matmul(&streams)?;
            self.beside(&streams.add(&change)?)
        });
    }

    fn correct_streams(&self, streams: &mut Buf, c: &Buf, x: &Buf, active: usize) {
        self.update(streams, |streams| {
            let (c, x) = (c.get()?, apart(x.get()?, 1)?);
            let n = c.dim(1);
            let streams = apart(streams, n)?;
            let news = x.subtract(&streams.slice(1, active..active + 1)?)?;
            let by = c.astype(Dtype::F32)?.plus(1.0)?.reshape(&[c.dim(0), n, 1])?;
            self.beside(&streams.add(&by.multiply(&news)?)?)
        });
    }

    fn add_to_other_streams(&self, streams: &mut Buf, y: &Buf) {
        self.update(streams, |streams| {
            let y = y.get()?;
            let cols = y.dim(1);
            let streams = apart(streams, streams.dim(1) / cols)?;
            let (first, others) = (streams.slice(1, 0..1)?, streams.slice(1, 1..streams.dim(1))?);
            let others = others.add(&apart(y, 1)?)?;
            self.beside(&concatenate(&[&first, &others], 1)?)
        });
    }
}
