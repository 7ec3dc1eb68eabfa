//! Rotary embedding and softmax attention over pages, as loops.
//!
//! Attention takes all scores of a row, then their softmax, then the weighted sum: no blocks, no
//! running maximum. How a device cuts the keys must not show beyond rounding.

use std::ops::Range;

use super::dense::{cap_score, norm_row};
use super::{Buf, Reference, dot, kv, softmax};
use crate::ops::{AttentionLayer, AttentionOps, DeviceError, HeadNorm, RowNorm};
use crate::{
    Attention, BLOCK, Batch, BlockId, KvFormat, KvGroup, NormOrder, NormSpan, Rope, RopeLayout,
    Span, Values,
};

/// Keys and values of one layer, block by block and head by head: the base, the keys of all positions,
/// then their values, each as [`kv`] leaves it. Keys whose columns are the values are there once, as
/// values.
#[derive(Clone, Debug)]
pub struct Pages {
    format: KvFormat,
    /// Bytes of all heads of a block.
    block_bytes: usize,
    kv_heads: usize,
    /// Columns of a head of keys that are kept apart from values; may be none.
    key_cols: usize,
    /// Columns of what is kept as a value.
    value_cols: usize,
    /// Whose table says where its blocks are.
    group: KvGroup,
    data: Vec<u8>,
}

/// One position and head in pages.
struct Place {
    base: Range<usize>,
    key: Range<usize>,
    value: Range<usize>,
}

impl Pages {
    /// All of a block.
    fn block(&self, block: BlockId) -> Range<usize> {
        let len = self.block_bytes;
        block as usize * len..(block as usize + 1) * len
    }

    /// Where `position` of the sequence of `span` is.
    fn place(&self, span: &Span, position: usize, kv_head: usize) -> Place {
        let format = self.format;
        let block = self.block(span.table(self.group)[position / BLOCK]).start;
        let block = block + kv_head * (self.block_bytes / self.kv_heads);
        let keys = block + format.base_bytes(self.key_cols);
        let values = keys + BLOCK * format.key_bytes(self.key_cols);
        let slot = |first: usize, bytes: usize| {
            let first = first + position % BLOCK * bytes;
            first..first + bytes
        };
        Place {
            base: block..keys,
            key: slot(keys, format.key_bytes(self.key_cols)),
            value: slot(values, format.value_bytes(self.value_cols)),
        }
    }

    fn store_key(&mut self, place: &Place, first_of_block: bool, k: &[f32]) {
        let (base, key) = (place.base.clone(), place.key.clone());
        if first_of_block {
            kv::store_base(self.format, k, &mut self.data[base.clone()]);
        }
        let (bases, keys) = self.data.split_at_mut(base.end);
        let key = key.start - base.end..key.end - base.end;
        kv::store_key(self.format, &bases[base], k, &mut keys[key]);
    }

    fn store_value(&mut self, place: &Place, v: &[f32]) {
        kv::store_value(self.format, v, &mut self.data[place.value.clone()]);
    }

    fn read_key(&self, place: Place, out: &mut [f32]) {
        if self.key_cols == 0 {
            return self.read_value(place, out);
        }
        kv::read_key(self.format, &self.data[place.base], &self.data[place.key], out);
    }

    fn read_value(&self, place: Place, out: &mut [f32]) {
        kv::read_value(self.format, &self.data[place.value], out);
    }
}

impl AttentionOps for Reference {
    type Pages = Pages;

    fn pages(&self, spec: &Attention, format: KvFormat, n_blocks: usize) -> Pages {
        let (key_cols, value_cols) = match spec.values {
            Values::Own(cols) => (spec.head_dim, cols),
            Values::OfKeys(_) => (0, spec.head_dim),
        };
        let (kv_heads, block_bytes) = (spec.kv_heads, spec.block_bytes(format));
        let format = spec.kept_in(format);
        // Which is not a number in either format, should anybody read what was never written.
        let data = vec![0xff; n_blocks * block_bytes];
        Pages { format, block_bytes, kv_heads, key_cols, value_cols, group: spec.group(), data }
    }

    fn angles(&self, rope: &Rope, batch: &Batch, out: &mut Buf) {
        let pairs = rope.inv_freq.len();
        out.shape(batch.n_rows(), 2 * pairs);
        for span in &batch.spans {
            for (row, position) in span.rows.clone().zip(span.start..) {
                let (cos, sin) = out.row_mut(row).split_at_mut(pairs);
                for (i, inv_freq) in rope.inv_freq.iter().enumerate() {
                    let angle = f64::from(position as f32 * inv_freq);
                    let factor = f64::from(rope.attention_factor);
                    cos[i] = (libm::cos(angle) * factor) as f32;
                    sin[i] = (libm::sin(angle) * factor) as f32;
                }
            }
        }
    }

    fn rope(
        &self,
        qkv: &mut Buf,
        spec: &Attention,
        norm: Option<HeadNorm<'_, Vec<f32>>>,
        rotation: Option<(&Rope, &Buf)>,
    ) {
        assert!(spec.has_rows_of(qkv.cols), "rows are [q | k | v], or q alone");
        let rotated = qkv.cols.min(spec.q_cols() + spec.k_cols());
        let is_due = |order| norm.filter(|norm| norm.order == order);
        for r in 0..qkv.rows {
            let (row, values) = qkv.row_mut(r).split_at_mut(rotated);
            norm_heads(row, spec, is_due(NormOrder::BeforeRotation));
            if let Some((rope, angles)) = rotation {
                for head in row.chunks_exact_mut(spec.head_dim) {
                    rotate(head, rope.layout, angles.row(r));
                }
            }
            norm_heads(row, spec, is_due(NormOrder::AfterRotation));
            if let Some(norm) = norm.and_then(|norm| norm.v) {
                values.chunks_exact_mut(spec.v_dim()).for_each(|head| norm_row(head, norm));
            }
        }
    }

    fn attend(
        &self,
        qkv: &Buf,
        layer: AttentionLayer<'_, Vec<f32>>,
        pages: &mut Pages,
        batch: &Batch,
        out: &mut Buf,
    ) {
        let spec = layer.spec;
        assert_eq!(qkv.cols, spec.qkv_cols(), "rows are [q | k | v]");
        for span in &batch.spans {
            for (row, position) in span.rows.clone().zip(span.start..) {
                let (keys, values) = qkv.row(row)[spec.q_cols()..].split_at(spec.k_cols());
                for (kv_head, k) in keys.chunks_exact(spec.head_dim).enumerate() {
                    let place = pages.place(span, position, kv_head);
                    match spec.values {
                        Values::Own(cols) => {
                            pages.store_key(&place, position % BLOCK == 0, k);
                            pages.store_value(&place, &values[kv_head * cols..][..cols]);
                        }
                        Values::OfKeys(_) => pages.store_value(&place, k),
                    }
                }
            }
        }
        self.attend_stored(qkv, layer, pages, batch, out);
    }

    fn attend_stored(
        &self,
        q: &Buf,
        layer: AttentionLayer<'_, Vec<f32>>,
        pages: &Pages,
        batch: &Batch,
        out: &mut Buf,
    ) {
        let spec = layer.spec;
        out.shape(q.rows, spec.out_cols());
        for span in &batch.spans {
            for (row, position) in span.rows.clone().zip(span.start..) {
                let heads = out.row_mut(row).chunks_exact_mut(spec.v_dim());
                for ((head, q), out) in
                    q.row(row).chunks_exact(spec.head_dim).enumerate().zip(heads)
                {
                    attend_head(Query { q, head, position }, layer, (pages, span), out);
                }
            }
        }
    }

    fn block_bytes(&self, pages: &Pages) -> usize {
        pages.block_bytes
    }

    fn read_block(&self, pages: &Pages, block: BlockId, out: &mut [u8]) -> Result<(), DeviceError> {
        assert_eq!(out.len(), self.block_bytes(pages), "a whole block is read");
        out.copy_from_slice(&pages.data[pages.block(block)]);
        Ok(())
    }

    fn write_block(&self, pages: &mut Pages, block: BlockId, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.block_bytes(pages), "a whole block is written");
        let place = pages.block(block);
        pages.data[place].copy_from_slice(bytes);
    }
}

/// Norms the queries and keys of a `[q | k]` row.
fn norm_heads(row: &mut [f32], spec: &Attention, norm: Option<HeadNorm<'_, Vec<f32>>>) {
    let Some(HeadNorm { q, k, span, .. }) = norm else { return };
    let (queries, keys) = row.split_at_mut(spec.q_cols());
    for (x, norm) in [(queries, q), (keys, k)] {
        let len = if span == NormSpan::AllHeads { x.len().max(1) } else { spec.head_dim };
        for (i, x) in x.chunks_exact_mut(len).enumerate() {
            let first = if span == NormSpan::OwnHead { i * len } else { 0 };
            let own = |all: &Vec<f32>| all[first..first + len].to_vec();
            let (gain, bias) = (own(norm.gain), norm.bias.map(own));
            norm_row(x, RowNorm { gain: &gain, bias: bias.as_ref(), ..norm });
        }
    }
}

/// One head of one row, asking.
#[derive(Clone, Copy)]
struct Query<'a> {
    q: &'a [f32],
    head: usize,
    position: usize,
}

fn attend_head(
    query: Query<'_>,
    layer: AttentionLayer<'_, Vec<f32>>,
    (pages, span): (&Pages, &Span),
    out: &mut [f32],
) {
    let (Query { q, head, position }, spec) = (query, layer.spec);
    let first = spec.window.map_or(0, |window| (position + 1).saturating_sub(window));
    let place = |seen| pages.place(span, seen, head / (spec.heads / spec.kv_heads));
    let mut read = vec![0.0; spec.head_dim];
    let q = kv::round_query(pages.format, q);

    let mut weights = Vec::with_capacity(position + 2 - first);
    for seen in first..=position {
        pages.read_key(place(seen), &mut read);
        let score = dot(&q, &read) * f64::from(spec.scale_at(position));
        weights.push(spec.soft_cap.map_or(score, |cap| cap_score(score, cap)));
    }
    // The last weight goes with no value.
    weights.extend(layer.sinks.map(|sinks| f64::from(sinks[head])));
    softmax(&mut weights);

    let mut sum = vec![0.0f64; spec.v_dim()];
    read.resize(pages.value_cols, 0.0);
    for (seen, weight) in (first..=position).zip(&weights) {
        pages.read_value(place(seen), &mut read);
        sum.iter_mut().zip(&read).for_each(|(sum, v)| *sum += weight * f64::from(*v));
    }
    out.iter_mut().zip(&sum).for_each(|(out, sum)| *out = *sum as f32);
}

/// Rotates the pairs of one head by the angles of its row, `[cos | sin]`.
pub(super) fn rotate(head: &mut [f32], layout: RopeLayout, angles: &[f32]) {
    let pairs = angles.len() / 2;
    let (cos, sin) = angles.split_at(pairs);
    for i in 0..pairs {
        let (first, second) = match layout {
            RopeLayout::Halves => (i, i + pairs),
            RopeLayout::Interleaved => (2 * i, 2 * i + 1),
        };
        let (x, y) = (f64::from(head[first]), f64::from(head[second]));
        let (cos, sin) = (f64::from(cos[i]), f64::from(sin[i]));
        head[first] = (x * cos - y * sin) as f32;
        head[second] = (x * sin + y * cos) as f32;
    }
}
