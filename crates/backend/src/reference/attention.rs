//! Rotary embedding and softmax attention over pages, as loops.
//!
//! Attention takes all scores of a row, then their softmax, then the weighted sum: no blocks, no
//! running maximum. How a device cuts the keys must not show beyond rounding.

use half::f16;

use super::dense::{cap_score, norm_row};
use super::{Buf, Reference, dot, softmax};
use crate::ops::{AttentionOps, DeviceError, HeadNorm, RowNorm};
use crate::{Attention, BLOCK, Batch, BlockId, NormOrder, NormSpan, Rope, RopeLayout, Span};

/// Keys and values of one layer: one `[k | v]` row per position of every block, rounded to f16.
#[derive(Clone, Debug)]
pub struct Pages {
    cols: usize,
    data: Vec<f16>,
}

impl Pages {
    /// All rows of a block.
    fn block(&self, block: BlockId) -> std::ops::Range<usize> {
        let len = BLOCK * self.cols;
        block as usize * len..(block as usize + 1) * len
    }

    /// The `[k | v]` row of `position` in the sequence of `span`.
    fn row(&self, span: &Span, position: usize) -> std::ops::Range<usize> {
        let block = span.blocks[position / BLOCK] as usize;
        let first = (block * BLOCK + position % BLOCK) * self.cols;
        first..first + self.cols
    }

    /// `len` numbers of that row from column `first` on, as f32.
    fn read(&self, span: &Span, position: usize, first: usize, out: &mut [f32]) {
        let row = &self.data[self.row(span, position)][first..];
        out.iter_mut().zip(row).for_each(|(out, element)| *out = element.to_f32());
    }
}

impl AttentionOps for Reference {
    type Pages = Pages;

    fn pages(&self, spec: &Attention, n_blocks: usize) -> Pages {
        let cols = 2 * spec.kv_cols();
        Pages { cols, data: vec![f16::NAN; n_blocks * BLOCK * cols] }
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
        let rotated = qkv.cols.min(spec.q_cols() + spec.kv_cols());
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
                values.chunks_exact_mut(spec.head_dim).for_each(|head| norm_row(head, norm));
            }
        }
    }

    fn attend(&self, qkv: &Buf, spec: &Attention, pages: &mut Pages, batch: &Batch, out: &mut Buf) {
        assert_eq!(qkv.cols, spec.qkv_cols(), "rows are [q | k | v]");
        for span in &batch.spans {
            for (row, position) in span.rows.clone().zip(span.start..) {
                let place = pages.row(span, position);
                let fresh = &qkv.row(row)[spec.q_cols()..];
                for (stored, x) in pages.data[place].iter_mut().zip(fresh) {
                    *stored = f16::from_f32(*x);
                }
            }
        }
        self.attend_stored(qkv, spec, pages, batch, out);
    }

    fn attend_stored(
        &self,
        q: &Buf,
        spec: &Attention,
        pages: &Pages,
        batch: &Batch,
        out: &mut Buf,
    ) {
        out.shape(q.rows, spec.q_cols());
        for span in &batch.spans {
            for (row, position) in span.rows.clone().zip(span.start..) {
                let heads = out.row_mut(row).chunks_exact_mut(spec.head_dim);
                for ((head, q), out) in
                    q.row(row).chunks_exact(spec.head_dim).enumerate().zip(heads)
                {
                    attend_head(Query { q, head, position }, spec, pages, span, out);
                }
            }
        }
    }

    fn block_bytes(&self, pages: &Pages) -> usize {
        2 * BLOCK * pages.cols
    }

    fn read_block(&self, pages: &Pages, block: BlockId, out: &mut [u8]) -> Result<(), DeviceError> {
        assert_eq!(out.len(), self.block_bytes(pages), "a whole block is read");
        for (out, stored) in out.as_chunks_mut().0.iter_mut().zip(&pages.data[pages.block(block)]) {
            *out = stored.to_le_bytes();
        }
        Ok(())
    }

    fn write_block(&self, pages: &mut Pages, block: BlockId, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.block_bytes(pages), "a whole block is written");
        let place = pages.block(block);
        for (stored, bytes) in pages.data[place].iter_mut().zip(bytes.as_chunks().0) {
            *stored = f16::from_le_bytes(*bytes);
        }
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

fn attend_head(query: Query<'_>, spec: &Attention, pages: &Pages, span: &Span, out: &mut [f32]) {
    let Query { q, head, position } = query;
    let first = spec.window.map_or(0, |window| (position + 1).saturating_sub(window));
    let k_col = head / (spec.heads / spec.kv_heads) * spec.head_dim;
    let v_col = spec.kv_cols() + k_col;
    let mut read = vec![0.0; spec.head_dim];

    let mut weights = Vec::with_capacity(position + 1 - first);
    for seen in first..=position {
        pages.read(span, seen, k_col, &mut read);
        let score = dot(q, &read) * f64::from(spec.scale_at(position));
        weights.push(spec.soft_cap.map_or(score, |cap| cap_score(score, cap)));
    }
    softmax(&mut weights);

    let mut sum = vec![0.0f64; spec.head_dim];
    for (seen, weight) in (first..=position).zip(&weights) {
        pages.read(span, seen, v_col, &mut read);
        sum.iter_mut().zip(&read).for_each(|(sum, v)| *sum += weight * f64::from(*v));
    }
    out.iter_mut().zip(&sum).for_each(|(out, sum)| *out = *sum as f32);
}

/// Rotates the pairs of one head by the angles of its row, `[cos | sin]`.
fn rotate(head: &mut [f32], layout: RopeLayout, angles: &[f32]) {
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
