//! From tensors to matrices: finds the parts of a module's weight, decides its packing, and checks
//! that what is stored is what the config and the caller say.
//!
//! It unpacks nothing; see [`Matrix::dequantize_row`] for that.

use bytes::Bytes;

use crate::{
    Checkpoint, Dtype, Error, Float, Matrix, Packing, Tensor, checkpoint::mismatch, float::e8m0,
    quantization::Rule, scheme::Scheme,
};

/// The sizes a caller asks for.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Experts, where they are stacked on an axis of their own.
    pub(crate) stack: Option<usize>,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

impl Shape {
    /// The stored sizes with `cols` in the last place.
    pub(crate) fn with(self, rows: usize, cols: usize) -> Vec<usize> {
        self.stack.into_iter().chain([rows, cols]).collect()
    }

    pub(crate) fn n_rows(self) -> usize {
        self.stack.unwrap_or(1).saturating_mul(self.rows)
    }
}

impl Checkpoint {
    /// The weight of a module such as `model.layers.0.self_attn.q_proj`: its `.weight` with
    /// whatever scales belong to it, checked to be `rows x cols` in the packing the config names.
    pub fn matrix(&self, module: &str, rows: usize, cols: usize) -> Result<Matrix, Error> {
        self.assemble(module, Shape { stack: None, rows, cols })
    }

    /// The weights of `n` stacked experts, `[n, rows, cols]`, as one matrix of `n * rows` rows.
    pub fn experts(
        &self,
        module: &str,
        n: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Matrix, Error> {
        self.assemble(module, Shape { stack: Some(n), rows, cols })
    }

    /// The sizes, in numbers, of the stored weight of `module`.
    pub(crate) fn sizes(&self, module: &str, weight: &Tensor) -> Vec<usize> {
        let mut shape = weight.shape.clone();
        if let (Dtype::U32, Some(Rule::Packed(scheme)), Some(words)) =
            (weight.dtype, self.quantization.rule(module), shape.last_mut())
        {
            *words = words.saturating_mul(32) / scheme.bits();
        }
        shape
    }

    fn assemble(&self, module: &str, shape: Shape) -> Result<Matrix, Error> {
        let name = format!("{module}.weight");
        if let Some(packed) = self.tensor(&format!("{name}_packed")) {
            return self.compressed(module, &packed.name, shape);
        }
        if let (None, Some(_), Some(n)) = (self.tensor(&name), self.blocks(module), shape.stack) {
            return self.experts_of_blocks(module, n, shape.rows, shape.cols);
        }
        let weight = match self.sound(&name) {
            Err(Error::MissingTensor { .. }) if self.quantization.foreign().is_some() => {
                return Err(self.foreign());
            }
            result => result?,
        };
        let scales = self.tensor(&format!("{module}.scales"));
        let rule = match scales {
            Some(_) => self.quantization.rule(module),
            None => self.quantization.override_of(module),
        };
        match (rule, scales, weight.dtype) {
            (_, None, Dtype::Gguf(ty)) => plain(weight, shape, Packing::Gguf(ty)),
            (Some(Rule::Packed(scheme)), _, _) => self.packed(module, weight, *scheme, shape),
            (Some(Rule::Malformed(expected)), _, _) => Err(Error::BadConfig {
                file: self.path().join("config.json"),
                key: format!("quantization of {module}"),
                expected: expected.clone(),
                found: "something else".into(),
            }),
            (Some(Rule::Off), Some(scales), _) => Err(mismatch(
                scales,
                "none, as config.json says not quantized".into(),
                scales.describe(),
            )),
            (None, Some(scales), _) => Err(mismatch(
                scales,
                "`quantization` in config.json to say how it is packed".into(),
                "nothing there".into(),
            )),
            (Some(Rule::Off) | None, None, Dtype::Float(float)) => {
                plain(weight, shape, Packing::Plain(float))
            }
            (Some(Rule::Off) | None, None, Dtype::F8E4m3) => self.fp8(module, weight, shape),
            (Some(Rule::Off) | None, None, Dtype::I8) => self.int8(module, weight, shape),
            (Some(Rule::Off) | None, None, _) if self.quantization.foreign().is_some() => {
                Err(self.foreign())
            }
            (Some(Rule::Off) | None, None, _) => Err(mismatch(
                weight,
                format!("floats, or packed elements with {module}.scales"),
                weight.describe(),
            )),
        }
    }

    fn foreign(&self) -> Error {
        Error::Unsupported {
            file: self.path().join("config.json"),
            what: format!("quant_method {}", self.quantization.foreign().unwrap_or_default()),
            advice: "use an MLX, GGUF, FP8 or unquantized version of the model".into(),
        }
    }

    /// MLX packings: words of elements, and scales (and biases) per group.
    fn packed(
        &self,
        module: &str,
        weight: &Tensor,
        scheme: Scheme,
        shape: Shape,
    ) -> Result<Matrix, Error> {
        let (cols, group, bits) = (shape.cols, scheme.group(), scheme.bits());
        if cols % group != 0 {
            let found = format!("groups of {group} in config.json");
            return Err(mismatch(weight, format!("groups that divide {cols} columns"), found));
        }
        let words = shape.with(shape.rows, cols / 32 * bits + cols % 32 * bits / 32);
        if weight.dtype != Dtype::U32 || weight.shape != words {
            let expected = format!("U32 {words:?} ({bits} bits for {cols} columns)");
            return Err(mismatch(weight, expected, weight.describe()));
        }
        let groups = shape.with(shape.rows, cols / group);
        let scales = self.sound(&format!("{module}.scales"))?;
        let affine = matches!(scheme, Scheme::Affine { .. });
        let float = match scales.dtype {
            Dtype::Float(float) if affine => float,
            Dtype::U8 if !affine => Float::F32,
            _ => return Err(bad_groups(scales, affine, &groups)),
        };
        if scales.shape != groups {
            return Err(bad_groups(scales, affine, &groups));
        }
        let biases = if affine {
            let biases = self.sound(&format!("{module}.biases"))?;
            if biases.shape != groups || biases.dtype != scales.dtype {
                let expected = format!("{} {groups:?}", scales.dtype);
                return Err(mismatch(biases, expected, biases.describe()));
            }
            biases.data.clone()
        } else {
            if let Some(global) = self.tensor(&format!("{module}.global_scale")) {
                return Err(Error::Unsupported {
                    file: global.file.to_path_buf(),
                    what: format!("the global scale {}", global.name),
                    advice: "use a version of the model without it".into(),
                });
            }
            Bytes::new()
        };
        Ok(Matrix {
            packing: scheme.packing(float),
            scales: scales.data.clone(),
            biases,
            ..plain_unchecked(weight, shape)
        })
    }

    /// FP8 with `weight_scale_inv` or `weight_scale`: one scale for all, one per row, or one per
    /// block of the size the config names. All of them multiply.
    fn fp8(&self, module: &str, weight: &Tensor, shape: Shape) -> Result<Matrix, Error> {
        let expected = shape.with(shape.rows, shape.cols);
        if weight.shape != expected {
            return Err(mismatch(weight, format!("{expected:?}"), weight.describe()));
        }
        let inverse = format!("{module}.weight_scale_inv");
        let name = if self.contains(&inverse) { inverse } else { format!("{module}.weight_scale") };
        let scales = self.sound(&name)?;
        let n = scales.shape.iter().product::<usize>();
        let mut values = vec![0.0; n];
        match scales.dtype {
            Dtype::Float(float) => float.read(&scales.data, &mut values),
            Dtype::F8E8m0 => {
                values.iter_mut().zip(scales.data.iter()).for_each(|(v, &b)| *v = e8m0(b));
            }
            _ => return Err(mismatch(scales, "float scales".into(), scales.describe())),
        }
        let (block_rows, block_cols) = self.quantization.fp8_block;
        let blocks = shape.with(
            shape.rows.div_ceil(block_rows as usize),
            shape.cols.div_ceil(block_cols as usize),
        );
        let all = (u32::try_from(shape.n_rows()), u32::try_from(shape.cols));
        let (Ok(all_rows), Ok(all_cols)) = all else {
            return Err(mismatch(
                weight,
                "fewer than 2^32 rows and columns".into(),
                weight.describe(),
            ));
        };
        let (rows, cols) = if n == 1 {
            (all_rows.max(1), all_cols.max(1))
        } else if scales.shape == blocks
            && (shape.stack.is_none() || shape.rows.is_multiple_of(block_rows as usize))
        {
            (block_rows, block_cols)
        } else if n == shape.n_rows() {
            (1, all_cols.max(1))
        } else {
            let expected = format!("{blocks:?} (blocks of {block_rows} x {block_cols})");
            return Err(mismatch(scales, expected, scales.describe()));
        };
        let scales: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Ok(Matrix {
            packing: Packing::Fp8Blocks { rows, cols },
            scales: scales.into(),
            ..plain_unchecked(weight, shape)
        })
    }
}

fn bad_groups(scales: &Tensor, affine: bool, groups: &[usize]) -> Error {
    let types = if affine { "F32, F16 or BF16" } else { "U8" };
    mismatch(scales, format!("{types} {groups:?}"), scales.describe())
}

/// A weight whose only part is `tensor`.
fn plain(tensor: &Tensor, shape: Shape, packing: Packing) -> Result<Matrix, Error> {
    let expected = shape.with(shape.rows, shape.cols);
    if tensor.shape != expected {
        return Err(mismatch(tensor, format!("{expected:?}"), tensor.describe()));
    }
    Ok(Matrix { packing, ..plain_unchecked(tensor, shape) })
}

/// A matrix of `tensor`'s bytes, without scales; the packing is still to be set.
pub(crate) fn plain_unchecked(tensor: &Tensor, shape: Shape) -> Matrix {
    Matrix {
        name: tensor.name.clone(),
        rows: shape.n_rows(),
        cols: shape.cols,
        packing: Packing::Plain(Float::F32),
        data: tensor.data.clone(),
        scales: Bytes::new(),
        biases: Bytes::new(),
    }
}
