//! The oracle: every op as the obvious loop.
//!
//! Slow on purpose, and not a device for users. Numbers are f32 wherever they are stored; sums and
//! functions are carried in f64 and rounded once, so that a difference to another device is that
//! device's own rounding.

mod attention;
mod dense;
pub mod kv;
mod latent;
mod layer_inputs;
mod moe;
mod recurrent;
mod streams;

pub use attention::Pages;
pub use recurrent::States;

use weights::Matrix;

use crate::ops::{DeviceError, Memory};
use crate::{Activation, Batch};

/// The device that defines all others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

/// `rows x cols` of f32, row major.
#[derive(Clone, Debug)]
pub struct Buf {
    rows: usize,
    cols: usize,
    data: Vec<f32>,
}

/// A weight, dequantised when it was taken over.
#[derive(Clone, Debug)]
pub struct Weight {
    rows: usize,
    cols: usize,
    data: Vec<f32>,
}

impl Memory for Reference {
    type Buf = Buf;
    type Weight = Weight;
    type Vector = Vec<f32>;
    type Staged = Batch;

    fn buf(&self, max_len: usize) -> Buf {
        // Not a number, so that whoever reads what nobody wrote is found out.
        Buf { rows: 0, cols: 0, data: vec![f32::NAN; max_len] }
    }

    fn weight(&self, parts: &[Matrix]) -> Weight {
        let cols = parts.first().map_or(0, |part| part.cols);
        let rows = parts.iter().map(|part| part.rows).sum();
        let mut data = vec![0.0; rows * cols];
        let mut out = data.chunks_exact_mut(cols.max(1));
        for part in parts {
            assert_eq!(part.cols, cols, "the parts of one weight have the same columns");
            for (row, out) in (0..part.rows).zip(&mut out) {
                part.dequantize_row(row, out);
            }
        }
        Weight { rows, cols, data }
    }

    fn vector(&self, values: &[f32]) -> Vec<f32> {
        values.to_vec()
    }

    fn staged(&self, _max_rows: usize) -> Batch {
        Batch::default()
    }

    fn stage(&self, batch: &Batch, staged: &mut Batch) {
        staged.clone_from(batch);
    }

    fn read(&self, buf: &Buf, len: usize, out: &mut Vec<f32>) -> Result<(), DeviceError> {
        out.clear();
        out.extend_from_slice(&buf.data[..len]);
        Ok(())
    }
}

impl Buf {
    fn shape(&mut self, rows: usize, cols: usize) {
        let max_len = self.data.len();
        assert!(rows * cols <= max_len, "{rows} x {cols} does not fit a buffer of {max_len}");
        (self.rows, self.cols) = (rows, cols);
    }

    fn row(&self, r: usize) -> &[f32] {
        &self.data[r * self.cols..][..self.cols]
    }

    fn row_mut(&mut self, r: usize) -> &mut [f32] {
        &mut self.data[r * self.cols..][..self.cols]
    }

    fn elements_mut(&mut self) -> &mut [f32] {
        &mut self.data[..self.rows * self.cols]
    }
}

impl Weight {
    fn row(&self, r: usize) -> &[f32] {
        &self.data[r * self.cols..][..self.cols]
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

fn activate(activation: Activation, x: f32) -> f64 {
    let x = f64::from(x);
    match activation {
        Activation::Silu => x * sigmoid(x),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + libm::tanh(inner))
        }
        Activation::GeluErf => 0.5 * x * (1.0 + libm::erf(x / std::f64::consts::SQRT_2)),
        Activation::Relu => x.max(0.0),
        Activation::ReluSquared => x.max(0.0) * x.max(0.0),
    }
}

/// Makes `x` the softmax of `x`.
fn softmax(x: &mut [f64]) {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    x.iter_mut().for_each(|x| *x = libm::exp(*x - max));
    let sum: f64 = x.iter().sum();
    x.iter_mut().for_each(|x| *x /= sum);
}
