//! Linear layers, norms and everything else a row does alone.

use backend::ops::{DenseOps, Input, Output, RowNorm};
use backend::{Activation, NormCenter, NormGain};

use crate::ffi::{Array, Dtype, Fault, concatenate};
use crate::weight::Portion;
use crate::{Buf, Mlx, Staged, Vector, Weight, indices};

impl DenseOps for Mlx {
    fn embed(&self, table: &Weight, batch: &Staged, scale: f32, out: &mut Buf) {
        self.fill(out, || table.rows_of(batch.tokens()?, self.dtype)?.times(scale));
    }

    fn add_positions(&self, table: &Weight, batch: &Staged, x: &mut Buf) {
        self.update(x, |x| {
            let spans = batch.batch.spans.iter();
            let places = spans.flat_map(|span| (0..span.rows.len()).map(|i| span.start + i));
            let places: Vec<u32> = places.map(|place| place as u32).collect();
            x.add(&table.rows_of(&indices(&places)?, self.dtype)?)
        });
    }

    fn linear(&self, x: Input<'_, Mlx>, w: &Weight, bias: Option<&Vector>, out: Output<'_, Mlx>) {
        let product = || match x {
            Input::Rows(x) => self.product(x.get()?, w, bias),
            Input::Normed { x, norm } => self.product(&self.normed(x.get()?, norm)?, w, bias),
        };
        match out {
            Output::Into(out) => self.fill(out, product),
            Output::Onto(out) => self.sum(out, |out| out.add(&product()?)),
            Output::Activated(act, out) => self.fill(out, || activate(&product()?, act)),
            Output::Gated(act, out) => self.fill(out, || glu(&product()?, act)),
        }
    }

    fn norm(&self, x: &Buf, norm: RowNorm<'_, Vector>, out: &mut Buf) {
        self.fill(out, || self.normed(x.get()?, norm));
    }

    fn add(&self, x: &mut Buf, y: &Buf, scale: f32) {
        self.sum(x, |x| match scale {
            1.0 => x.add(y.get()?),
            scale => x.add(&y.get()?.times(scale)?),
        });
    }

    fn scale(&self, x: &mut Buf, by: f32) {
        self.update(x, |x| x.times(by));
    }

    fn glu(&self, x: &Buf, act: Activation, out: &mut Buf) {
        self.fill(out, || glu(x.get()?, act));
    }

    fn gather(&self, x: &Buf, batch: &Staged, out: &mut Buf) {
        self.fill(out, || x.get()?.take(batch.want()?, 0));
    }

    fn soft_cap(&self, x: &mut Buf, cap: f32) {
        self.update(x, |x| capped(x, cap));
    }

    fn join(&self, a: &Buf, b: &Buf, out: &mut Buf) {
        self.fill(out, || concatenate(&[a.get()?, b.get()?], 1));
    }

    fn gate(&self, x: &mut Buf, gate: &Buf) {
        self.update(x, |x| x.multiply(&gate.get()?.sigmoid()?));
    }

    fn keep_largest(&self, x: &mut Buf, cols: usize, deviations: f32) {
        self.update(x, |x| {
            let few = x.slice(1, 0..cols)?.astype(Dtype::F32)?;
            let mean = |x: &Array| x.sum(1)?.times(1.0 / cols as f32);
            let off = few.subtract(&mean(&few)?)?;
            let least = mean(&off.square()?)?.sqrt()?.times(deviations)?;
            let kept = activate(&off.subtract(&least)?, Activation::Relu)?.astype(self.dtype)?;
            concatenate(&[&kept, &x.slice(1, cols..x.dim(1))?], 1)
        });
    }
}

impl Mlx {
    /// `x . w^T + bias`, put together with what peers have if they have the rest of the weight: rows of it on
    /// the first rank alone.
    fn product(&self, x: &Array, w: &Weight, bias: Option<&Vector>) -> Result<Array, Fault> {
        let own = w.multiply(x)?;
        let y = match w.portion {
            Portion::Columns => self.sum_of_all(&own)?,
            Portion::Whole | Portion::Rows => own,
        };
        let y = bias.map_or_else(|| Ok(y.clone()), |bias| y.add(&bias.native))?;
        match w.portion {
            Portion::Rows => self.join_on_first(&y),
            Portion::Whole | Portion::Columns => Ok(y),
        }
    }

    /// A norm over the last axis, of whose columns peers may have some.
    pub(crate) fn normed(&self, x: &Array, norm: RowNorm<'_, Vector>) -> Result<Array, Fault> {
        let RowNorm { center, gain, kind, bias, eps } = norm;
        let (over, gain) = (gain.over, gain_of(&gain.native, kind)?);
        match (center, bias) {
            (NormCenter::Zero, None) if over > 1 => {
                let normed = self.rms_norm_over(&x.astype(Dtype::F32)?, over, eps)?;
                normed.astype(self.dtype)?.multiply(&gain)
            }
            _ if over > 1 => Err(Fault("only RMS norms go over what peers have".to_owned())),
            (NormCenter::Mean, bias) => {
                x.layer_norm(Some(&gain), bias.map(|bias| &*bias.native), eps)
            }
            (NormCenter::Zero, None) => x.rms_norm(Some(&gain), eps),
            (NormCenter::Zero, Some(bias)) => x.rms_norm(Some(&gain), eps)?.add(&bias.native),
        }
    }
}

/// `cap * tanh(x / cap)`.
pub(crate) fn capped(x: &Array, cap: f32) -> Result<Array, Fault> {
    x.divide(&Array::number(cap, x.dtype())?)?.tanh()?.times(cap)
}

/// What is multiplied with.
pub(crate) fn gain_of(stored: &Array, kind: NormGain) -> Result<Array, Fault> {
    match kind {
        NormGain::Stored => Ok(stored.clone()),
        NormGain::OnePlus => stored.plus(1.0),
    }
}

pub(crate) fn activate(x: &Array, act: Activation) -> Result<Array, Fault> {
    let zero = || Array::number(0.0, x.dtype());
    match act {
        Activation::Silu => x.multiply(&x.sigmoid()?),
        Activation::GeluTanh => {
            let cube = x.multiply(&x.square()?)?.times(0.044715)?;
            let inner = x.add(&cube)?.times((2.0 / std::f32::consts::PI).sqrt())?;
            x.times(0.5)?.multiply(&inner.tanh()?.plus(1.0)?)
        }
        Activation::GeluErf => {
            let inner = x.times(std::f32::consts::FRAC_1_SQRT_2)?;
            x.times(0.5)?.multiply(&inner.erf()?.plus(1.0)?)
        }
        Activation::Relu => x.maximum(&zero()?),
        Activation::ReluSquared => x.maximum(&zero()?)?.square(),
    }
}

/// `act(gate) * up` where the last axis is `[gate | up]`.
pub(crate) fn glu(x: &Array, act: Activation) -> Result<Array, Fault> {
    let (gate, up) = halves(x)?;
    activate(&gate, act)?.multiply(&up)
}

/// Both halves of the last axis.
pub(crate) fn halves(x: &Array) -> Result<(Array, Array), Fault> {
    let shape = x.shape();
    let (axis, half) = (shape.len() - 1, shape[shape.len() - 1] / 2);
    Ok((x.slice(axis, 0..half)?, x.slice(axis, half..2 * half)?))
}

/// `ln(1 + e^x)`.
pub(crate) fn softplus(x: &Array) -> Result<Array, Fault> {
    x.log_add_exp(&Array::number(0.0, Dtype::F32)?)
}
