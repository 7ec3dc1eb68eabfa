//! A named matrix: bytes that stay where they are (usually in a mapped file) and how to read them.

use bytes::Bytes;

use crate::Packing;

/// `rows x cols` numbers, row major, `rows` being the output features of a linear layer.
///
/// Cloning is cheap: the bytes are shared and usually belong to a mapped file.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Where it comes from, for messages.
    pub name: String,
    /// Output features. Stacked experts are stacked along this axis.
    pub rows: usize,
    /// Input features.
    pub cols: usize,
    /// How `data`, `scales` and `biases` are to be read.
    pub packing: Packing,
    /// The packed elements, `rows * packing.row_bytes(cols)` bytes.
    pub data: Bytes,
    /// Scales that lie apart from the elements; empty where the packing has none.
    pub scales: Bytes,
    /// Affine biases; empty for every other packing.
    pub biases: Bytes,
}
