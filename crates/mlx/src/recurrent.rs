//! Layers with a state: what is around their steps, which are in `steps/`.

use std::ops::Range;

use backend::ops::{
    ConvWeights, DeltaRows, DeltaWeights, DeviceError, Mamba2Weights, RecurrentOps,
};
use backend::{
    Activation, DeltaPlace, DeltaRule, GatedDelta, Mamba2, MambaGate, ReadOrder, Recurrence,
    ShortConv, SlotId, Span,
};

use crate::dense::{activate, softplus};
use crate::ffi::{Array, Dtype, Fault, concatenate};
use crate::steps::{Rows, Stepped, Steps};
use crate::{Buf, Mlx, Staged, Vector, indices};

/// States of one layer, `[slots, numbers]` of f32: the rows that the convolution looks back at, then
/// the matrices.
#[derive(Debug)]
pub struct States {
    array: Array,
    window: usize,
}

/// A sequence's way through a layer.
struct Walk {
    /// `[taps - 1 + rows, columns]`: what the convolution reads.
    extended: Array,
    taps: usize,
    /// Matrices before the first row, in one row.
    matrices: Array,
    /// After which rows a state is kept.
    stops: Vec<usize>,
    /// The matrices there, in one row each, where there are any.
    kept: Vec<Array>,
}

impl States {
    fn new(spec: &Recurrence, n_slots: usize) -> Result<States, Fault> {
        let array = Array::zeros(&[n_slots, spec.state_len()], Dtype::F32)?;
        crate::ffi::compute(&[&array])?;
        Ok(States { array, window: spec.window_len() })
    }

    fn slot(&self, slot: SlotId) -> Result<Array, Fault> {
        self.array.slice(0, slot as usize..slot as usize + 1)
    }

    /// The way of `span`, whose rows bring `fresh` columns to the convolution.
    fn walk(&self, span: &Span, fresh: &Array) -> Result<Walk, Fault> {
        let len = self.array.dim(1);
        let state = match span.state_in {
            Some(slot) => self.slot(slot)?,
            None => Array::zeros(&[1, len], Dtype::F32)?,
        };
        let cols = fresh.dim(1);
        let mut stops: Vec<usize> = span.states_out.iter().map(|(after, _)| *after).collect();
        stops.dedup();
        let window = state.slice(1, 0..self.window)?.reshape(&[self.window / cols, cols])?;
        Ok(Walk {
            extended: concatenate(&[&window, fresh], 0)?,
            taps: self.window / cols + 1,
            matrices: state.slice(1, self.window..len)?,
            stops,
            kept: Vec::new(),
        })
    }

    /// Keeps what a span asks for.
    fn keep(&mut self, span: &Span, walk: &Walk) -> Result<(), Fault> {
        for (after, slot) in &span.states_out {
            let rows = after + 1..after + walk.taps;
            let window = walk.extended.slice(0, rows)?.reshape(&[1, self.window])?;
            let stop = walk.stops.iter().position(|stop| stop == after);
            let matrices = stop.and_then(|stop| walk.kept.get(stop)).unwrap_or(&walk.matrices);
            let state = concatenate(&[&window, matrices], 1)?;
            self.array = self.array.with_rows(*slot as usize, &state)?;
        }
        Ok(())
    }
}

impl Walk {
    /// What the convolution makes of every row.
    fn convolved(&self, weights: ConvWeights<'_, Vector>) -> Result<Array, Fault> {
        let (rows, cols) = (self.extended.dim(0) + 1 - self.taps, self.extended.dim(1));
        let taps = weights.taps.exact.reshape(&[self.taps, cols])?;
        let mut sum = match weights.bias {
            Some(bias) => bias.exact.broadcast(&[rows, cols])?,
            None => Array::zeros(&[rows, cols], Dtype::F32)?,
        };
        for t in 0..self.taps {
            let past = self.extended.slice(0, t..t + rows)?;
            sum = sum.add(&past.multiply(&taps.slice(0, t..t + 1)?)?)?;
        }
        Ok(sum)
    }
}

/// Rows whose value heads lie by key head, with these in turn.
fn in_turn(y: &Array, spec: &GatedDelta) -> Result<Array, Fault> {
    let (rows, cols) = (y.dim(0), spec.v_cols());
    let heads = y.reshape(&[rows, spec.k_heads, spec.group(), spec.v_dim])?;
    heads.transpose(&[0, 2, 1, 3])?.reshape(&[rows, cols])
}

impl RecurrentOps for Mlx {
    type States = States;

    fn states(&self, spec: &Recurrence, n_slots: usize) -> States {
        let bytes = n_slots.saturating_mul(4 * spec.state_len());
        if !matches!(spec, Recurrence::ShortConv(_)) {
            // The kernel is tried now rather than in the middle of the first answer.
            self.steps_by();
        }
        self.roomy(States::new(spec, n_slots), ("states", bytes))
            .unwrap_or_else(|| States::new(spec, 0).expect("no states take no memory"))
    }

    fn gated_delta(
        &self,
        x: DeltaRows<'_, Buf>,
        weights: DeltaWeights<'_, Vector>,
        spec: &GatedDelta,
        states: &mut States,
        batch: &Staged,
        out: &mut Buf,
    ) {
        self.fill(out, || {
            let parts = DeltaParts::of(&x, spec)?;
            let y = self.each_span(batch, states, spec.v_cols(), |span, states| {
                let parts = parts.rows(span.rows.clone())?;
                let mut walk = states.walk(span, &parts.qkv)?;
                let y = self.delta_rows(&mut walk, &parts, weights, spec)?;
                states.keep(span, &walk)?;
                match spec.read_order {
                    ReadOrder::ByKeyHead => Ok(y),
                    ReadOrder::InTurn => in_turn(&y, spec),
                }
            })?;
            y.astype(self.dtype)
        });
    }

    fn mamba2(
        &self,
        x: &Buf,
        weights: Mamba2Weights<'_, Vector>,
        spec: &Mamba2,
        states: &mut States,
        batch: &Staged,
        out: &mut Buf,
    ) {
        self.fill(out, || {
            let x = x.get()?.astype(Dtype::F32)?;
            let (inner, conv) = (spec.inner(), spec.conv_cols());
            let y = self.each_span(batch, states, inner, |span, states| {
                let x = x.slice(0, span.rows.clone())?;
                let mut walk = states.walk(span, &x.slice(1, inner..inner + conv)?)?;
                let y = self.mamba_rows(&mut walk, &x, weights, spec)?;
                states.keep(span, &walk)?;
                Ok(y)
            })?;
            // All rows at once: peers that have a part of a group are asked once for all.
            let z = x.slice(1, 0..inner)?.times(spec.scales.z)?;
            self.gated(&y, &z, weights.gain, spec)?.astype(self.dtype)
        });
    }

    fn short_conv(
        &self,
        x: &Buf,
        weights: ConvWeights<'_, Vector>,
        spec: &ShortConv,
        states: &mut States,
        batch: &Staged,
        out: &mut Buf,
    ) {
        self.fill(out, || {
            let x = x.get()?.astype(Dtype::F32)?;
            let part = |i: usize| x.slice(1, i * spec.cols..(i + 1) * spec.cols);
            let (fresh, after) = (part(0)?.multiply(&part(2)?)?, part(1)?);
            let y = self.each_span(batch, states, spec.cols, |span, states| {
                let rows = span.rows.clone();
                let walk = states.walk(span, &fresh.slice(0, rows.clone())?)?;
                states.keep(span, &walk)?;
                after.slice(0, rows)?.multiply(&walk.convolved(weights)?)
            })?;
            y.astype(self.dtype)
        });
    }

    fn state_bytes(&self, states: &States) -> usize {
        4 * states.array.dim(1)
    }

    fn read_state(&self, states: &States, slot: SlotId, out: &mut [u8]) -> Result<(), DeviceError> {
        let copied = states.slot(slot).and_then(|state| state.read(|x| out.copy_from_slice(x)));
        copied.map_err(|fault| DeviceError(fault.to_string()))
    }

    fn write_state(&self, states: &mut States, slot: SlotId, bytes: &[u8]) {
        let state = Array::new(bytes, &[1, states.array.dim(1)], Dtype::F32);
        let written = state.and_then(|state| states.array.with_rows(slot as usize, &state));
        if let Some(array) = self.kept(written) {
            states.array = array;
        }
    }
}

impl Mlx {
    /// Rows of all spans, in f32.
    fn each_span(
        &self,
        batch: &Staged,
        states: &mut States,
        cols: usize,
        mut rows_of: impl FnMut(&Span, &mut States) -> Result<Array, Fault>,
    ) -> Result<Array, Fault> {
        let mut rows = vec![Array::zeros(&[0, cols], Dtype::F32)?];
        for span in &batch.batch.spans {
            rows.push(rows_of(span, states)?);
        }
        self.leave(&states.array);
        concatenate(&rows.iter().collect::<Vec<_>>(), 0)
    }
}

/// Rows of a gated delta layer, taken apart: each of all heads, in the order of heads.
struct DeltaParts {
    /// `[q | k | v]`, as the convolution wants it.
    qkv: Array,
    z: Array,
    b: Array,
    a: Array,
}

impl DeltaParts {
    fn of(x: &DeltaRows<'_, Buf>, spec: &GatedDelta) -> Result<DeltaParts, Fault> {
        let columns = |of: &[fn(&DeltaPlace) -> &Range<usize>]| {
            let places: Vec<DeltaPlace> = (0..spec.k_heads).map(|head| spec.place(head)).collect();
            let all = of.iter().flat_map(|of| places.iter().flat_map(|place| of(place).clone()));
            indices(&all.map(|column| column as u32).collect::<Vec<_>>())
        };
        let take = |buf: &Buf, of: &[fn(&DeltaPlace) -> &Range<usize>]| {
            buf.get()?.take(&columns(of)?, 1)?.astype(Dtype::F32)
        };
        Ok(DeltaParts {
            qkv: take(x.qkv, &[|place| &place.q, |place| &place.k, |place| &place.v])?,
            z: take(x.z, &[|place| &place.z])?,
            b: take(x.qkv, &[|place| &place.b])?,
            a: take(x.a, &[|place| &place.a])?,
        })
    }

    fn rows(&self, rows: Range<usize>) -> Result<DeltaParts, Fault> {
        let part = |x: &Array| x.slice(0, rows.clone());
        Ok(DeltaParts {
            qkv: part(&self.qkv)?,
            z: part(&self.z)?,
            b: part(&self.b)?,
            a: part(&self.a)?,
        })
    }
}

impl Mlx {
    fn delta_rows(
        &self,
        walk: &mut Walk,
        parts: &DeltaParts,
        weights: DeltaWeights<'_, Vector>,
        spec: &GatedDelta,
    ) -> Result<Array, Fault> {
        let n = parts.qkv.dim(0);
        let (heads, k_dim, v_dim, k_cols) = (spec.v_heads, spec.k_dim, spec.v_dim, spec.k_cols());
        let qkv = silu(&walk.convolved(weights.conv)?)?;
        // A query or key for each value head: `[rows, heads, k_dim]`.
        let normed = |first: usize, scale: f32| {
            let x = qkv.slice(1, first..first + k_cols)?.reshape(&[n, spec.k_heads, 1, k_dim])?;
            let length = x.square()?.sum(3)?.plus(1e-6)?.rsqrt()?;
            let x = x.multiply(&length)?.times(scale)?;
            x.broadcast(&[n, spec.k_heads, spec.group(), k_dim])?.reshape(&[n, heads, k_dim])
        };
        let (q, k) = (normed(0, (k_dim as f32).sqrt().recip())?, normed(k_cols, 1.0)?);
        let v = qkv.slice(1, 2 * k_cols..2 * k_cols + spec.v_cols())?;
        let beta = parts.b.sigmoid()?.reshape(&[n, heads, 1])?;
        let rate = weights.a_log.exact.exp()?.reshape(&[1, heads, 1])?;
        let step = softplus(&parts.a.add(&weights.dt_bias.exact)?)?;
        let decays = match spec.rule {
            DeltaRule::PerHead => step.reshape(&[n, heads, 1])?,
            DeltaRule::PerChannel => step.reshape(&[n, heads, k_dim])?,
        };
        let y = self.through(
            walk,
            Rows {
                keys: &k,
                queries: &q,
                values: &v.reshape(&[n, heads, v_dim])?,
                decays: &decays.multiply(&rate)?.negative()?.exp()?,
                strengths: Some(&beta),
            },
        )?;
        let normed = y.rms_norm(Some(&weights.gain.exact), spec.eps)?;
        let z = parts.z.reshape(&[n, heads, v_dim])?;
        let gate = match spec.rule {
            DeltaRule::PerHead => silu(&z)?,
            DeltaRule::PerChannel => z.sigmoid()?,
        };
        normed.multiply(&gate)?.reshape(&[n, spec.v_cols()])
    }

    fn mamba_rows(
        &self,
        walk: &mut Walk,
        x: &Array,
        weights: Mamba2Weights<'_, Vector>,
        spec: &Mamba2,
    ) -> Result<Array, Fault> {
        let n = x.dim(0);
        let (heads, dim, groups, size) = (spec.heads, spec.head_dim, spec.groups, spec.state);
        let (inner, conv) = (spec.inner(), spec.conv_cols());
        let dt = x.slice(1, inner + conv..inner + conv + heads)?.times(spec.scales.dt)?;
        let number = |x| Array::number(x, Dtype::F32);
        let [least, most] = spec.dt_limit;
        let dt = softplus(&dt.add(&weights.dt_bias.exact)?)?;
        let dt = dt.maximum(&number(least)?)?.minimum(&number(most)?)?.reshape(&[n, heads, 1])?;
        let rate = weights.a_log.exact.exp()?.reshape(&[1, heads, 1])?;
        let xbc = silu(&walk.convolved(weights.conv)?)?;
        let values = xbc.slice(1, 0..inner)?.reshape(&[n, heads, dim])?;
        // `B` and `C` of each head: `[rows, heads, size]`.
        let shared = |i: usize| {
            let first = inner + i * groups * size;
            let x = xbc.slice(1, first..first + groups * size)?.reshape(&[n, groups, 1, size])?;
            x.broadcast(&[n, groups, spec.group(), size])?.reshape(&[n, heads, size])
        };
        let y = self.through(
            walk,
            Rows {
                keys: &shared(0)?,
                queries: &shared(1)?,
                values: &values.multiply(&dt)?,
                decays: &dt.multiply(&rate)?.negative()?.exp()?,
                strengths: None,
            },
        )?;
        let skip = weights.skip.exact.reshape(&[1, heads, 1])?;
        y.add(&values.multiply(&skip)?)?.reshape(&[n, inner])
    }

    /// What a Mamba-2 layer has read, gated and normed.
    fn gated(
        &self,
        y: &Array,
        z: &Array,
        gain: Option<&Vector>,
        spec: &Mamba2,
    ) -> Result<Array, Fault> {
        let (n, cols) = (y.dim(0), y.dim(1));
        let norm = |x: &Array, eps: f32| {
            let normed = match gain.map_or(1, |gain| gain.over) {
                1 => {
                    let each = x.reshape(&[n, spec.groups, cols / spec.groups])?;
                    each.rms_norm(None, eps)?.reshape(&[n, cols])?
                }
                // A part of one group.
                over => self.rms_norm_over(x, over, eps)?,
            };
            gain.map_or(Ok(normed.clone()), |gain| normed.multiply(&gain.exact))
        };
        match spec.gate {
            MambaGate::Bare => y.multiply(&silu(z)?),
            MambaGate::ThenNorm(eps) => norm(&y.multiply(&silu(z)?)?, eps),
            MambaGate::AfterNorm(eps) => norm(y, eps)?.multiply(&silu(z)?),
        }
    }

    /// Takes the matrices of a sequence through its rows: what is read of them.
    fn through(&self, walk: &mut Walk, rows: Rows<'_>) -> Result<Array, Fault> {
        let (before, stops) = (&walk.matrices, &walk.stops[..]);
        let Stepped { said, kept } = self.take(&Steps { rows, before, stops })?;
        walk.kept = kept;
        Ok(said)
    }
}

fn silu(x: &Array) -> Result<Array, Fault> {
    activate(x, Activation::Silu)
}
