//! Makes the bytes of one item, some rows at a time, on several threads.
//!
//! What an item becomes was decided before; here only the way there is chosen: copied where the
//! packing is the same, taken over where the integers are, quantised otherwise.

use std::ops::Range;

use crate::{
    Error, Float, Matrix, Packing, Scheme,
    quantize::{BitStream, Packed, quantize},
};

use super::{
    plan::{Becomes, Item},
    repack,
};

/// Numbers that one thread holds at a time.
const CHUNK: usize = 1 << 20;

/// What happened to the numbers of an item. The order is that of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tally {
    /// All are what they were.
    Exact,
    /// Some were rounded.
    Rounded,
    /// Some became infinite.
    Overflow,
}

/// Sends the bytes of `item` to `sink`: elements, then scales, then biases.
pub(super) fn write(
    item: &Item,
    threads: usize,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<Tally, Error> {
    let first = &item.parts[0];
    let n_rows = first.rows * item.parts.len();
    let chunk = (CHUNK / first.cols.max(1)).max(1);
    let (mut scales, mut biases, mut tally) = (Vec::new(), Vec::new(), Tally::Exact);
    let mut start = 0;
    while start < n_rows {
        let chunks: Vec<Range<usize>> = (0..threads.max(1))
            .map(|i| (start + i * chunk).min(n_rows)..(start + (i + 1) * chunk).min(n_rows))
            .collect();
        start = chunks.last().map_or(n_rows, |last| last.end);
        let packed = std::thread::scope(|scope| {
            let workers: Vec<_> =
                chunks.into_iter().map(|rows| scope.spawn(move || pack(item, rows))).collect();
            // A panic in a worker is our bug and goes on in the caller.
            let join = |worker: std::thread::ScopedJoinHandle<'_, _>| match worker.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            workers.into_iter().map(join).collect::<Vec<(Packed, Tally)>>()
        });
        for (packed, worst) in packed {
            sink(&packed.data)?;
            scales.extend(packed.scales);
            biases.extend(packed.biases);
            tally = tally.max(worst);
        }
    }
    sink(&scales)?;
    sink(&biases)?;
    Ok(tally)
}

fn pack(item: &Item, rows: Range<usize>) -> (Packed, Tally) {
    let per_part = item.parts[0].rows;
    let mut packer = Packer {
        values: vec![0.0; item.parts[0].cols],
        packed: Packed::default(),
        tally: Tally::Exact,
    };
    for row in rows {
        let row = item.interleaved.map_or(row, |head| source_row(row, head));
        let (matrix, row) = (&item.parts[row / per_part], row % per_part);
        match item.becomes {
            Becomes::Floats(float) => packer.floats(matrix, row, float),
            Becomes::Packed(scheme, float) => packer.packed(matrix, row, (scheme, float)),
        }
    }
    (packer.packed, packer.tally)
}

/// Where the row that belongs at `row` lies, when the two halves of every head of `head` rows were
/// dealt out alternately.
fn source_row(row: usize, head: usize) -> usize {
    let (start, within) = (row / head * head, row % head);
    let (half, pair) = (within / (head / 2), within % (head / 2));
    start + 2 * pair + half
}

struct Packer {
    /// One row.
    values: Vec<f32>,
    packed: Packed,
    tally: Tally,
}

impl Packer {
    fn floats(&mut self, matrix: &Matrix, row: usize, float: Float) {
        matrix.dequantize_row(row, &mut self.values);
        for &value in &self.values {
            self.tally = self.tally.max(rounding(value, float));
            float.push(value, &mut self.packed.data);
        }
    }

    fn packed(&mut self, matrix: &Matrix, row: usize, (scheme, float): (Scheme, Float)) {
        match matrix.packing {
            Packing::Affine { scale, .. } if scheme.packing(scale) == matrix.packing => {
                let line = matrix.rows_range(row..row + 1);
                self.packed.data.extend(&line.data);
                cast(&line.scales, scale, float, &mut self.packed.scales, &mut self.tally);
                cast(&line.biases, scale, float, &mut self.packed.biases, &mut self.tally);
            }
            packing if scheme.packing(float) == packing => {
                let line = matrix.rows_range(row..row + 1);
                self.packed.data.extend(&line.data);
                self.packed.scales.extend(&line.scales);
            }
            Packing::Gguf(ty) if repack::scheme(ty) == Some(scheme) => {
                let line = matrix.rows_range(row..row + 1);
                line.dequantize_row(0, &mut self.values);
                for group in 0..matrix.cols / repack::GROUP {
                    let (scale, bias) = repack::affine(ty, &line.data, group);
                    self.group(group, scheme.bits() as u8, (scale, bias), float);
                }
            }
            Packing::Plain(_) => {
                matrix.dequantize_row(row, &mut self.values);
                // MLX casts a model before it quantises it.
                self.values.iter_mut().for_each(|value| *value = float.round(*value));
                self.quantize(scheme, float);
            }
            _ => {
                matrix.dequantize_row(row, &mut self.values);
                // What was packed already is not rounded a second time on the way.
                let affine = matches!(scheme, Scheme::Affine { .. });
                self.quantize(scheme, if affine { float } else { Float::F32 });
            }
        }
    }

    fn quantize(&mut self, scheme: Scheme, float: Float) {
        let packed = quantize(scheme, float, &self.values);
        let is_infinite = |index| float.get(&packed.biases, index).is_infinite();
        let overflow = (0..packed.biases.len() / float.n_bytes()).any(is_infinite);
        self.tally = self.tally.max(if overflow { Tally::Overflow } else { Tally::Rounded });
        self.packed.data.extend(packed.data);
        self.packed.scales.extend(packed.scales);
        self.packed.biases.extend(packed.biases);
    }

    /// Stores a group whose integers `scale` and `bias` bring to light.
    fn group(&mut self, group: usize, bits: u8, (scale, bias): (f32, f32), float: Float) {
        let top = ((1u32 << bits) - 1) as f32;
        let (stored_scale, stored_bias) = (float.round(scale), float.round(bias));
        let mut stream = BitStream::default();
        for &value in &self.values[group * repack::GROUP..][..repack::GROUP] {
            let q =
                if scale == 0.0 { 0.0 } else { ((value - bias) / scale).round().clamp(0.0, top) };
            stream.push(q as u32, bits, &mut self.packed.data);
            if stored_scale * q + stored_bias != value {
                self.tally = self.tally.max(Tally::Rounded);
            }
        }
        for value in [scale, bias] {
            self.tally = self.tally.max(rounding(value, float));
        }
        float.push(scale, &mut self.packed.scales);
        float.push(bias, &mut self.packed.biases);
    }
}

/// What storing `value` as `float` does to it.
fn rounding(value: f32, float: Float) -> Tally {
    match float.round(value) {
        rounded if rounded == value || value.is_nan() => Tally::Exact,
        rounded if rounded.is_infinite() => Tally::Overflow,
        _ => Tally::Rounded,
    }
}

/// Appends floats of one type as floats of another.
fn cast(bytes: &[u8], from: Float, to: Float, out: &mut Vec<u8>, tally: &mut Tally) {
    for index in 0..bytes.len() / from.n_bytes() {
        let value = from.get(bytes, index);
        *tally = (*tally).max(rounding(value, to));
        to.push(value, out);
    }
}
