//! Writes any readable checkpoint as an MLX folder that mlx-lm and this program load.
//!
//! What becomes of each tensor is decided in `plan`, the numbers are made in `rows`, the files in
//! `folder`. Nothing here knows a format or a family beyond the names of modules.
//!
//! **Invariant:** the target folder appears whole or not at all, and the model is never in memory as
//! a whole: a few megabytes of rows are.

mod config;
mod folder;
mod plan;
mod repack;
mod rows;

use std::path::Path;

use crate::{Checkpoint, Dtype, Error, Float, Format, Scheme, Tensor};

use self::{
    folder::Staging,
    plan::{Item, Plan},
    rows::Tally,
};

/// What to make of a checkpoint.
#[derive(Clone, Debug)]
pub struct ConvertOptions {
    /// The packing of linear layers and embeddings.
    pub packing: Repacking,
    /// The type of scales, biases and everything unpacked. `None` takes that of the source, or F16
    /// where the source (a GGUF) has no single one.
    pub dtype: Option<Float>,
    /// Threads that pack rows; at least one.
    pub threads: usize,
    /// Bytes after which a new file is begun; [`ConvertOptions::SHARD`] is what others use.
    pub shard_bytes: u64,
}

/// The packing a conversion aims at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repacking {
    /// Every weight stays as near as MLX's packings allow to what it is. Floats stay floats; MLX
    /// packings are copied; GGUF blocks that are affine groups of 32 (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0,
    /// Q4_K, Q5_K) become such groups with the same integers, so that only the rounding of scales to
    /// the stored type can change a number, and for the legacy types in F16 or F32 nothing does.
    /// MXFP4 becomes MLX's. Q2_K and Q3_K are quantised anew to 4 bits, all else to 8, in groups of
    /// 32.
    Keep,
    /// Every linear weight and embedding whose columns the group divides, as `mlx_lm.convert` does;
    /// routers get 8 bits in groups of 64. Weights that [`Repacking::Keep`] would give this very
    /// packing are not quantised again.
    To(Scheme),
    /// Nothing stays packed.
    Floats,
}

/// How far a conversion has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Bytes written.
    pub done: u64,
    /// Bytes there will be.
    pub total: u64,
    /// The tensor being written.
    pub tensor: &'a str,
}

/// What a conversion did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConvertReport {
    /// Bytes of all tensors written.
    pub n_bytes: u64,
    /// Numbers they stand for.
    pub n_params: u64,
    /// Tensors whose every number is what it was.
    pub n_exact: usize,
    /// Tensors whose numbers were rounded, to another float type or to a packing.
    pub n_rounded: usize,
    /// Tensors left out, and why.
    pub notes: Vec<String>,
}

impl ConvertOptions {
    /// Bytes of one file of a sharded model.
    pub const SHARD: u64 = 5 << 30;
}

impl ConvertReport {
    /// Bits per number, scales included.
    pub fn bits_per_weight(&self) -> f64 {
        self.n_bytes as f64 * 8.0 / self.n_params.max(1) as f64
    }

    fn count(&mut self, item: &Item, tally: Tally, float: Float) -> Result<(), Error> {
        match tally {
            Tally::Exact => self.n_exact += 1,
            Tally::Rounded => self.n_rounded += 1,
            Tally::Overflow => {
                let (name, float) = (&item.name, Dtype::Float(float));
                return Err(Error::BadOptions(format!(
                    "the numbers of {name} do not fit {float}; choose another dtype, F32 holds all"
                )));
            }
        }
        self.n_params += item.n_params() as u64;
        Ok(())
    }
}

/// Converts `src` into the folder `dst`, which must not exist or be empty. `progress` is called
/// after every few megabytes.
pub fn convert(
    src: &Checkpoint,
    dst: &Path,
    options: &ConvertOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<ConvertReport, Error> {
    let float = options.dtype.unwrap_or_else(|| source_float(src));
    let plan = Plan::of(src, options.packing, float)?;
    let staging = Staging::new(dst)?;
    let shards = plan.shards(options.shard_bytes);
    let names = folder::shard_names(shards.len());
    let mut report = ConvertReport { notes: plan.notes.clone(), ..ConvertReport::default() };
    let total = plan.n_bytes();
    for (shard, name) in shards.iter().zip(&names) {
        let mut file = staging.shard(name, shard)?;
        for item in *shard {
            let done = &mut report.n_bytes;
            let tally = rows::write(item, options.threads, &mut |bytes| {
                *done += bytes.len() as u64;
                file.write(bytes)?;
                progress(Progress { done: *done, total, tensor: &item.name });
                Ok(())
            })?;
            report.count(item, tally, float)?;
        }
        file.finish()?;
    }
    staging.index(&shards, &names, total)?;
    staging.text(src)?;
    staging.json("config.json", &config::config(src, &plan, float))?;
    staging.finish()?;
    Ok(report)
}

/// The float type of a source: of its packed scales, else of its largest unpacked weight. GGUF
/// keeps its scales in F16, whatever the few unpacked tensors are.
fn source_float(src: &Checkpoint) -> Float {
    if src.format() == Format::Gguf {
        return Float::F16;
    }
    let floats = src.tensors().filter_map(|tensor| match tensor.dtype {
        Dtype::Float(float) => Some((tensor, float)),
        _ => None,
    });
    let rank = |tensor: &Tensor| (tensor.name.ends_with(".scales"), tensor.data.len());
    floats.max_by_key(|(tensor, _)| rank(tensor)).map_or(Float::F16, |(_, float)| float)
}
