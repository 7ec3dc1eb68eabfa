//! Rotation, and attention over pages: sequence by sequence, each over its own positions.

use backend::ops::{AttentionLayer, AttentionOps, DeviceError, HeadNorm, RowNorm};
use backend::{Attention, BlockId, KvFormat, NormOrder, NormSpan, Rope, RopeLayout, Span, Values};

use crate::dense::{capped, gain_of};
use crate::ffi::{Array, Attended, Dtype, Fault, Seen, concatenate};
use crate::pages::round_queries;
use crate::{Buf, Mlx, Pages, Staged, Vector, floats};

impl AttentionOps for Mlx {
    type Pages = Pages;

    fn pages(&self, spec: &Attention, format: KvFormat, n_blocks: usize) -> Pages {
        let bytes = n_blocks.saturating_mul(spec.block_bytes(spec.kept_in(format)));
        self.roomy(Pages::new(spec, format, n_blocks), ("keys and values", bytes)).unwrap_or_else(
            || Pages::new(spec, format, 0).expect("pages of no blocks take no memory"),
        )
    }

    /// On the host, as other devices do it: in f32 a large angle's sine has few right digits.
    fn angles(&self, rope: &Rope, batch: &Staged, out: &mut Buf) {
        let pairs = rope.inv_freq.len();
        let factor = f64::from(rope.attention_factor);
        let batch = &batch.batch;
        let mut rows = Vec::with_capacity(batch.n_rows() * 2 * pairs);
        for position in batch.spans.iter().flat_map(|span| span.start..span.start + span.rows.len())
        {
            let angles = rope.inv_freq.iter().map(|f| f64::from(position as f32 * f));
            let (sin, cos): (Vec<f64>, Vec<f64>) = angles.map(libm::sincos).unzip();
            rows.extend(cos.iter().chain(&sin).map(|x| (x * factor) as f32));
        }
        self.fill(out, || floats(&rows, &[batch.n_rows(), 2 * pairs]));
    }

    fn rope(
        &self,
        qkv: &mut Buf,
        spec: &Attention,
        norm: Option<HeadNorm<'_, Vector>>,
        rotation: Option<(&Rope, &Buf)>,
    ) {
        self.update(qkv, |qkv| {
            let (rows, cols) = (qkv.dim(0), qkv.dim(1));
            assert!(spec.has_rows_of(cols), "rows are [q | k | v], or q alone");
            let turned = cols.min(spec.q_cols() + spec.k_cols());
            let is_due = |order| norm.filter(|norm| norm.order == order);
            let mut heads = qkv.slice(1, 0..turned)?;
            heads = self.norm_heads(&heads, spec, is_due(NormOrder::BeforeRotation))?;
            if let Some((rope, angles)) = rotation {
                let each = heads.reshape(&[rows, turned / spec.head_dim, spec.head_dim])?;
                let each = rotate(&each, rope.layout, angles.get()?)?;
                heads = each.reshape(&[rows, turned])?;
            }
            heads = self.norm_heads(&heads, spec, is_due(NormOrder::AfterRotation))?;
            if turned == cols {
                return Ok(heads);
            }
            let mut values = qkv.slice(1, turned..cols)?;
            if let Some(norm) = norm.and_then(|norm| norm.v) {
                let v_dim = spec.v_dim();
                let each = values.reshape(&[rows, (cols - turned) / v_dim, v_dim])?;
                values = self.normed(&each, norm)?.reshape(&[rows, cols - turned])?;
            }
            concatenate(&[&heads, &values], 1)
        });
    }

    fn attend(
        &self,
        qkv: &Buf,
        layer: AttentionLayer<'_, Vector>,
        pages: &mut Pages,
        batch: &Staged,
        out: &mut Buf,
    ) {
        let stored = qkv.get().and_then(|qkv| self.store(qkv, layer.spec, pages, batch));
        if self.kept(stored).is_some() {
            self.attend_stored(qkv, layer, pages, batch, out);
        }
    }

    fn attend_stored(
        &self,
        q: &Buf,
        layer: AttentionLayer<'_, Vector>,
        pages: &Pages,
        batch: &Staged,
        out: &mut Buf,
    ) {
        let spec = layer.spec;
        self.fill(out, || {
            let q = q.get()?.slice(1, 0..spec.q_cols())?;
            let q = q.reshape(&[q.dim(0), spec.heads, spec.head_dim])?;
            let q = round_queries(&q, pages.format)?;
            let spans = (0..batch.batch.spans.len())
                .map(|span| self.attend_span(&q, layer, pages, (batch, span)));
            let spans = spans.collect::<Result<Vec<_>, Fault>>()?;
            if spans.is_empty() {
                return Array::zeros(&[0, spec.out_cols()], self.dtype);
            }
            concatenate(&spans.iter().collect::<Vec<_>>(), 0)
        });
    }

    fn block_bytes(&self, pages: &Pages) -> usize {
        pages.block_bytes()
    }

    fn read_block(&self, pages: &Pages, block: BlockId, out: &mut [u8]) -> Result<(), DeviceError> {
        pages.read_block(block, out).map_err(|fault| DeviceError(fault.to_string()))
    }

    fn write_block(&self, pages: &mut Pages, block: BlockId, bytes: &[u8]) {
        self.kept(pages.write_block(block, bytes));
    }
}

impl Mlx {
    /// Puts this pass's keys and values into the pages.
    fn store(
        &self,
        qkv: &Array,
        spec: &Attention,
        pages: &mut Pages,
        batch: &Staged,
    ) -> Result<(), Fault> {
        let (rows, q_cols, k_cols) = (qkv.dim(0), spec.q_cols(), spec.k_cols());
        assert_eq!(qkv.dim(1), spec.qkv_cols(), "rows are [q | k | v]");
        let keys = qkv.slice(1, q_cols..q_cols + k_cols)?;
        let keys = keys.reshape(&[rows, spec.kv_heads, spec.head_dim])?;
        let places = batch.places(pages.group);
        match (&mut pages.keys, spec.values) {
            (Some(stored), Values::Own(cols)) => {
                let values = qkv.slice(1, q_cols + k_cols..spec.qkv_cols())?;
                stored.write(&keys, &places)?;
                pages.values.write(&values.reshape(&[rows, spec.kv_heads, cols])?, &places)?;
            }
            _ => pages.values.write(&keys, &places)?,
        }
        pages.stores().flat_map(|store| store.arrays()).for_each(|array| self.leave(array));
        Ok(())
    }

    /// What the queries of a span see: `[rows, columns of all heads]`.
    fn attend_span(
        &self,
        q: &Array,
        layer: AttentionLayer<'_, Vector>,
        pages: &Pages,
        (batch, index): (&Staged, usize),
    ) -> Result<Array, Fault> {
        let spec = layer.spec;
        let span = &batch.batch.spans[index];
        let n = span.rows.len();
        let end = span.start + n;
        let first = spec.window.map_or(0, |window| (span.start + 1).saturating_sub(window));
        let places = batch.rows((pages.group, index), first..end)?;
        let values = pages.values.read(&places, self.dtype)?;
        let (keys, values) = match &pages.keys {
            Some(keys) => (keys.read(&places, self.dtype)?, values),
            None => (values.clone(), values.slice(2, 0..spec.v_dim())?),
        };
        let q = grown(&q.slice(0, span.rows.clone())?, spec, span)?;
        let mask = match spec.window.filter(|window| n > 1 && end > *window) {
            Some(window) => Some(batch.seen(index, first, window)?),
            None => None,
        };
        let seen = match &mask {
            Some(mask) => Seen::Where(mask),
            None if n == 1 => Seen::Everything,
            None => Seen::Causal,
        };
        // `[1, heads, rows, columns]`.
        let heads_first = |x: &Array| {
            let [rows, heads, cols] = x.shape()[..] else { unreachable!("three axes") };
            x.transpose(&[1, 0, 2])?.reshape(&[1, heads, rows, cols])
        };
        let (q, keys, values) = (heads_first(&q)?, heads_first(&keys)?, heads_first(&values)?);
        let attended = Attended {
            queries: &q,
            keys: &keys,
            values: &values,
            sinks: layer.sinks.map(|sinks| &*sinks.native),
            scale: if spec.growth.is_some() { 1.0 } else { spec.scale },
        };
        let means = match spec.soft_cap {
            None => attended.attend(seen)?,
            Some(cap) => {
                let all =
                    Span { rows: 0..n, start: span.start - first, ..Span::new(0..n, 0, vec![]) };
                let causal = causal(&all)?;
                attend_capped(&attended, mask.as_ref().unwrap_or(&causal), cap)?
            }
        };
        means.transpose(&[0, 2, 1, 3])?.reshape(&[n, spec.out_cols()])
    }
}

impl Mlx {
    /// Norms the queries and keys of `[q | k]` rows.
    fn norm_heads(
        &self,
        x: &Array,
        spec: &Attention,
        norm: Option<HeadNorm<'_, Vector>>,
    ) -> Result<Array, Fault> {
        let Some(HeadNorm { q, k, span, .. }) = norm else { return Ok(x.clone()) };
        let (rows, cols) = (x.dim(0), x.dim(1));
        let mut parts = Vec::new();
        for (range, norm) in [(0..spec.q_cols(), q), (spec.q_cols()..cols, k)] {
            if !range.is_empty() {
                let part = x.slice(1, range.clone())?;
                parts.push(
                    self.norm_part(&part, spec.head_dim, span, norm)?
                        .reshape(&[rows, range.len()])?,
                );
            }
        }
        concatenate(&parts.iter().collect::<Vec<_>>(), 1)
    }

    fn norm_part(
        &self,
        x: &Array,
        head_dim: usize,
        span: NormSpan,
        norm: RowNorm<'_, Vector>,
    ) -> Result<Array, Fault> {
        let (rows, cols) = (x.dim(0), x.dim(1));
        let heads = cols / head_dim;
        match span {
            NormSpan::AllHeads => self.normed(x, norm),
            NormSpan::Head => self.normed(&x.reshape(&[rows, heads, head_dim])?, norm),
            NormSpan::OwnHead => {
                // A gain for every head: the norm without one, then all gains at once.
                let each = x.reshape(&[rows, heads, head_dim])?;
                let per_head = |x: &Array| x.reshape(&[heads, head_dim]);
                let plain = match norm.center {
                    backend::NormCenter::Zero => each.rms_norm(None, norm.eps)?,
                    backend::NormCenter::Mean => each.layer_norm(None, None, norm.eps)?,
                };
                let scaled = plain.multiply(&per_head(&gain_of(&norm.gain.native, norm.kind)?)?)?;
                norm.bias.map_or(Ok(scaled.clone()), |bias| scaled.add(&per_head(&bias.native)?))
            }
        }
    }
}

/// Which of the keys before it each row of a span sees, if there is no window.
fn causal(span: &Span) -> Result<Array, Fault> {
    let n = span.rows.len();
    let keys = span.start + n;
    let sees = |row: usize| (0..keys).map(move |key| u8::from(key <= span.start + row));
    let bytes: Vec<u8> = (0..n).flat_map(sees).collect();
    Array::new(&bytes, &[n, keys], Dtype::Bool)
}

/// Queries times what their position makes of the scale, if it makes anything of it.
fn grown(q: &Array, spec: &Attention, span: &Span) -> Result<Array, Fault> {
    if spec.growth.is_none() {
        return Ok(q.clone());
    }
    let scales = (span.start..).take(span.rows.len()).map(|position| spec.scale_at(position));
    let scales = floats(&scales.collect::<Vec<_>>(), &[span.rows.len(), 1, 1])?;
    q.multiply(&scales.astype(q.dtype())?)
}

/// Attention whose scores are capped, which MLX has no kernel for.
fn attend_capped(attended: &Attended<'_>, mask: &Array, cap: f32) -> Result<Array, Fault> {
    let Attended { queries, keys, values, sinks, scale } = attended;
    let ([_, heads, n, dim], [_, kv_heads, len, _]) = (&queries.shape()[..], &keys.shape()[..])
    else {
        unreachable!("four axes")
    };
    let group = heads / kv_heads;
    let q = queries.reshape(&[*kv_heads, group, *n, *dim])?;
    let k = keys.reshape(&[*kv_heads, 1, *len, *dim])?.transpose(&[0, 1, 3, 2])?;
    let scores = capped(&q.matmul(&k)?.times(*scale)?, cap)?;
    let nothing = Array::number(f32::NEG_INFINITY, scores.dtype())?;
    let mut scores = mask.choose(&scores, &nothing)?;
    if let Some(sinks) = sinks {
        let sinks = sinks.reshape(&[*kv_heads, group, 1, 1])?;
        scores = concatenate(&[&scores, &sinks.broadcast(&[*kv_heads, group, *n, 1])?], 3)?;
    }
    let weights = scores.softmax(3)?.slice(3, 0..*len)?;
    let v_dim = values.dim(3);
    let means = weights.matmul(&values.reshape(&[*kv_heads, 1, *len, v_dim])?)?;
    means.reshape(&[1, *heads, *n, v_dim])
}

/// Rotates the pairs of every head of `[rows, heads, columns]` by the angles of its row, `[cos | sin]`.
pub(crate) fn rotate(x: &Array, layout: RopeLayout, angles: &Array) -> Result<Array, Fault> {
    let [rows, heads, cols] = x.shape()[..] else { unreachable!("three axes") };
    let pairs = angles.dim(1) / 2;
    let wide = angles.reshape(&[rows, 1, 2 * pairs])?;
    let (cos, sin) = (wide.slice(2, 0..pairs)?, wide.slice(2, pairs..2 * pairs)?);
    // `[rows, heads, 2, pairs]`, or the last two the other way round.
    let turned = x.slice(2, 0..2 * pairs)?.astype(Dtype::F32)?;
    let (axis, shape) = match layout {
        RopeLayout::Halves => (2, [rows, heads, 2, pairs]),
        RopeLayout::Interleaved => (3, [rows, heads, pairs, 2]),
    };
    let both = turned.reshape(&shape)?;
    let side = |i: usize| both.slice(axis, i..i + 1)?.reshape(&[rows, heads, pairs]);
    let (a, b) = (side(0)?, side(1)?);
    let first = a.multiply(&cos)?.subtract(&b.multiply(&sin)?)?;
    let second = a.multiply(&sin)?.add(&b.multiply(&cos)?)?;
    let mut one = shape;
    one[axis] = 1;
    let turned = concatenate(&[&first.reshape(&one)?, &second.reshape(&one)?], axis)?;
    let turned = turned.reshape(&[rows, heads, 2 * pairs])?.astype(x.dtype())?;
    if 2 * pairs == cols {
        return Ok(turned);
    }
    concatenate(&[&turned, &x.slice(2, 2 * pairs..cols)?], 2)
}
