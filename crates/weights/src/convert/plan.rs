//! Decides what becomes of each tensor, from names, shapes and packings alone. No number is read.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    Checkpoint, Dtype, Error, Float, GgufType, Matrix, Packing, Scheme, Tensor,
    checkpoint::{canonical, mismatch},
    safetensors::Slot,
};

use super::{Repacking, repack};

/// Everything a conversion writes, in order.
pub(super) struct Plan {
    pub(super) items: Vec<Item>,
    /// What is left out, and why.
    pub(super) notes: Vec<String>,
}

/// One weight, bias or gain.
pub(super) struct Item {
    /// The module of a packed weight, the tensor otherwise.
    pub(super) name: String,
    /// Its sizes in numbers.
    pub(super) shape: Vec<usize>,
    /// What its rows are made of, one after the other.
    pub(super) parts: Vec<Matrix>,
    /// Rows of one head, where the rows of a head have to be brought back into two halves.
    pub(super) interleaved: Option<usize>,
    pub(super) becomes: Becomes,
}

/// How an item is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Becomes {
    Floats(Float),
    /// Packed; affine scales and biases in the float type.
    Packed(Scheme, Float),
}

impl Item {
    pub(super) fn n_params(&self) -> usize {
        self.shape.iter().product()
    }

    /// The arrays it is stored as.
    pub(super) fn slots(&self) -> Vec<Slot> {
        let slot = |part: &str, dtype, cols| {
            let mut shape = self.shape.clone();
            if let Some(last) = shape.last_mut() {
                *last = cols;
            }
            Slot { name: format!("{}{part}", self.name), dtype, shape }
        };
        let cols = self.shape.last().copied().unwrap_or(1);
        match self.becomes {
            Becomes::Floats(float) => {
                vec![Slot {
                    name: self.name.clone(),
                    dtype: Dtype::Float(float),
                    shape: self.shape.clone(),
                }]
            }
            Becomes::Packed(scheme, float) => {
                let (words, groups) = (cols * scheme.bits() / 32, cols / scheme.group());
                let mut slots = vec![slot(".weight", Dtype::U32, words)];
                match scheme {
                    Scheme::Affine { .. } => {
                        slots.push(slot(".scales", Dtype::Float(float), groups));
                        slots.push(slot(".biases", Dtype::Float(float), groups));
                    }
                    _ => slots.push(slot(".scales", Dtype::U8, groups)),
                }
                slots
            }
        }
    }

    fn n_bytes(&self) -> u64 {
        self.slots().iter().map(|slot| slot.n_bytes() as u64).sum()
    }
}

impl Plan {
    /// Plans the conversion of `src`.
    pub(super) fn of(src: &Checkpoint, aim: Repacking, float: Float) -> Result<Plan, Error> {
        let head_dim = interleaved_heads(src);
        let mut planner = Planner { src, aim, float, head_dim, items: BTreeMap::new() };
        let mut notes = Vec::new();
        for tensor in src.tensors() {
            if tensor.name.ends_with(".weight_packed") {
                return Err(Error::Unsupported {
                    file: tensor.file.to_path_buf(),
                    what: format!("converting {}", tensor.name),
                    advice: "convert the unquantized version of the model".into(),
                });
            }
            if let Some(why) = left_out(src, tensor) {
                notes.push(format!("{} is left out: {why}", tensor.name));
            } else if !is_companion(src, &tensor.name) {
                planner.add(tensor)?;
            }
        }
        Ok(Plan { items: planner.finish()?, notes })
    }

    pub(super) fn n_bytes(&self) -> u64 {
        self.items.iter().map(Item::n_bytes).sum()
    }

    /// The items in runs of at most `limit` bytes, at least one item each.
    pub(super) fn shards(&self, limit: u64) -> Vec<&[Item]> {
        let mut shards = Vec::new();
        let (mut start, mut bytes) = (0, 0u64);
        for (i, item) in self.items.iter().enumerate() {
            let n = item.n_bytes();
            if i > start && bytes + n > limit {
                shards.push(&self.items[start..i]);
                (start, bytes) = (i, 0);
            }
            bytes += n;
        }
        shards.push(&self.items[start..]);
        shards
    }
}

/// Collects the items, by name.
struct Planner<'a> {
    src: &'a Checkpoint,
    aim: Repacking,
    float: Float,
    head_dim: Option<usize>,
    /// Keyed by the name written. Experts stored one by one are gathered under one name, so they
    /// are kept by their index until all have been seen.
    items: BTreeMap<String, (BTreeMap<usize, Matrix>, Template)>,
}

/// An item but for its parts.
struct Template {
    shape: Vec<usize>,
    interleaved: Option<usize>,
    becomes: Becomes,
}

impl Planner<'_> {
    fn add(&mut self, tensor: &Tensor) -> Result<(), Error> {
        if let Some(parent) = joined_experts(self.src, tensor) {
            return self.add_stack(tensor, parent);
        }
        let (matrix, mut shape) = self.read(tensor)?;
        let module = tensor.name.strip_suffix(".weight").filter(|_| shape.len() > 1);
        let expert = module.and_then(expert);
        let name = expert.as_ref().map_or(module.unwrap_or(&tensor.name), |(name, _)| name);
        let becomes = match module {
            Some(_) if is_packable(name, &shape) => self.becomes(name, &matrix),
            _ => Becomes::Floats(self.float_for(&tensor.name, matrix.packing)),
        };
        if expert.is_some() {
            shape.insert(0, 0);
        }
        let interleaved = self.interleaved(tensor, matrix.rows)?;
        let key = match becomes {
            Becomes::Floats(_) if module.is_some() => format!("{name}.weight"),
            _ => name.to_owned(),
        };
        let template = Template { shape, interleaved, becomes };
        let (parts, template) =
            self.items.entry(key).or_insert_with(|| (BTreeMap::new(), template));
        if let Some(other) = parts.values().next()
            && (other.rows, other.cols) != (matrix.rows, matrix.cols)
        {
            let expected = format!("{} x {}, as {}", other.rows, other.cols, other.name);
            return Err(mismatch(tensor, expected, format!("{} x {}", matrix.rows, matrix.cols)));
        }
        let index = expert.as_ref().map_or(0, |(_, index)| *index);
        if let Some(other) = parts.insert(index, matrix) {
            let found = format!("{}, which would become the same", other.name);
            return Err(mismatch(tensor, "a name of its own".into(), found));
        }
        if expert.is_some() {
            template.shape[0] = parts.len();
        }
        Ok(())
    }

    /// Takes a stack that is a parameter of its own in Hugging Face's manner apart into what MLX has:
    /// a stack for each projection.
    fn add_stack(&mut self, tensor: &Tensor, parent: &str) -> Result<(), Error> {
        let &[n, rows, cols] = &tensor.shape[..] else {
            unreachable!("stacks were found by their three sizes");
        };
        let stack = self.src.experts(&tensor.name, n, rows, cols)?;
        let projections = match tensor.name.ends_with("gate_up_proj") {
            true => vec![("gate_proj", 0..rows / 2), ("up_proj", rows / 2..rows)],
            false => vec![("down_proj", 0..rows)],
        };
        for (projection, own) in projections {
            let name = format!("{parent}.switch_mlp.{projection}");
            let becomes = self.becomes(&name, &stack);
            let key = match becomes {
                Becomes::Floats(_) => format!("{name}.weight"),
                Becomes::Packed(..) => name,
            };
            let of = |e: usize| (e, stack.rows_range(e * rows + own.start..e * rows + own.end));
            let template = Template { shape: vec![n, own.len(), cols], interleaved: None, becomes };
            if self.items.insert(key, ((0..n).map(of).collect(), template)).is_some() {
                let found = format!("other tensors of {parent}.switch_mlp.{projection}");
                return Err(mismatch(tensor, "a name of its own".into(), found));
            }
        }
        Ok(())
    }

    /// The items, once all tensors have been added.
    fn finish(self) -> Result<Vec<Item>, Error> {
        let item = |(name, (parts, template)): (String, (BTreeMap<usize, Matrix>, Template))| {
            // Expert numbers without a gap are as many as their largest says.
            if let Some(missing) = (0..parts.len()).find(|index| !parts.contains_key(index)) {
                return Err(Error::MissingTensor {
                    path: self.src.path().to_owned(),
                    tensor: format!("of expert {missing} of {name}"),
                });
            }
            let Template { shape, interleaved, becomes } = template;
            Ok(Item { name, shape, parts: parts.into_values().collect(), interleaved, becomes })
        };
        self.items.into_iter().map(item).collect()
    }

    /// The numbers of a tensor, and its sizes in numbers.
    fn read(&self, tensor: &Tensor) -> Result<(Matrix, Vec<usize>), Error> {
        let module = tensor.name.strip_suffix(".weight");
        if let (Some(module), 2 | 3) = (module, tensor.shape.len()) {
            let shape = self.src.sizes(module, tensor);
            let matrix = match shape[..] {
                [n, rows, cols] => self.src.experts(module, n, rows, cols)?,
                [rows, cols] => self.src.matrix(module, rows, cols)?,
                _ => unreachable!("the length was just looked at"),
            };
            return Ok((matrix, shape));
        }
        let tensor = self.src.sound(&tensor.name)?;
        let Dtype::Float(float) = tensor.dtype else {
            return Err(mismatch(tensor, "F32, F16 or BF16".into(), tensor.describe()));
        };
        let matrix = Matrix {
            name: tensor.name.clone(),
            rows: tensor.data.len() / float.n_bytes(),
            cols: 1,
            packing: Packing::Plain(float),
            data: tensor.data.clone(),
            scales: Default::default(),
            biases: Default::default(),
        };
        Ok((matrix, tensor.shape.clone()))
    }

    fn becomes(&self, module: &str, matrix: &Matrix) -> Becomes {
        const ROUTER: Scheme = Scheme::Affine { bits: 8, group: 64 };
        let scheme = match self.aim {
            Repacking::Floats => None,
            Repacking::Keep => kept(matrix.packing),
            Repacking::To(scheme) if !matrix.cols.is_multiple_of(scheme.group()) => None,
            Repacking::To(_) if module.ends_with(".gate") || module.ends_with("_gate") => {
                Some(ROUTER)
            }
            Repacking::To(scheme) => Some(scheme),
        };
        match scheme.filter(|scheme| matrix.cols > 0 && matrix.cols.is_multiple_of(scheme.group()))
        {
            Some(scheme) => Becomes::Packed(scheme, self.float),
            None => Becomes::Floats(self.float_for(module, matrix.packing)),
        }
    }

    /// Corrections of router scores decide between experts and keep their precision, as in MLX.
    fn float_for(&self, name: &str, packing: Packing) -> Float {
        match packing {
            Packing::Plain(Float::F32) if name.ends_with("e_score_correction_bias") => Float::F32,
            _ => self.float,
        }
    }

    /// Rows per head where `tensor` holds q or k in interleaved order.
    fn interleaved(&self, tensor: &Tensor, rows: usize) -> Result<Option<usize>, Error> {
        let Some(head_dim) = self.head_dim else { return Ok(None) };
        let Some((module, _)) = tensor.name.rsplit_once('.') else { return Ok(None) };
        if !module.ends_with("self_attn.q_proj") && !module.ends_with("self_attn.k_proj") {
            return Ok(None);
        }
        if head_dim == 0 || !head_dim.is_multiple_of(2) || !rows.is_multiple_of(head_dim) {
            let expected = format!("heads of {head_dim} rows, as the config says");
            return Err(mismatch(tensor, expected, format!("{rows} rows")));
        }
        Ok(Some(head_dim))
    }
}

/// Rows per head, where the source stores q and k in interleaved order.
fn interleaved_heads(src: &Checkpoint) -> Option<usize> {
    let config = &src.config;
    config.get("rope_interleaved").and_then(Value::as_bool).filter(|&interleaved| interleaved)?;
    let number = |key: &str| config.get(key).and_then(Value::as_u64);
    let head_dim = number("head_dim")
        .or_else(|| number("hidden_size")?.checked_div(number("num_attention_heads")?));
    // Zero is refused with the name of the tensor that would need it.
    Some(head_dim.and_then(|dim| usize::try_from(dim).ok()).unwrap_or(0))
}

/// The MLX packing nearest to `packing`, see [`Repacking::Keep`].
fn kept(packing: Packing) -> Option<Scheme> {
    const EIGHT: Scheme = Scheme::Affine { bits: 8, group: 32 };
    match packing {
        Packing::Plain(_) => None,
        Packing::Affine { bits, group, .. } => Some(Scheme::Affine { bits, group }),
        Packing::Mxfp4 | Packing::Gguf(GgufType::Mxfp4) => Some(Scheme::Mxfp4),
        Packing::Mxfp8 => Some(Scheme::Mxfp8),
        Packing::Nvfp4 => Some(Scheme::Nvfp4),
        Packing::DividedNvfp4(_) | Packing::Int8 { .. } | Packing::Fp8Blocks { .. } => Some(EIGHT),
        Packing::Gguf(GgufType::Q2K | GgufType::Q3K) => Some(Scheme::Affine { bits: 4, group: 32 }),
        Packing::Gguf(ty) => Some(repack::scheme(ty).unwrap_or(EIGHT)),
    }
}

/// Linear layers and embeddings of the language model; experts only where they are stacked.
fn is_packable(module: &str, shape: &[usize]) -> bool {
    let elsewhere = ["vision_tower", "vision_model", "visual", "audio_tower", "conv1d"];
    let is_ours = !module.split('.').any(|part| elsewhere.contains(&part));
    is_ours && (shape.len() == 2 || module.contains("switch_mlp"))
}

/// What `x.experts.gate_up_proj` and `x.experts.down_proj` lie in, if their sizes say that each expert
/// has its rows of gate before those of up: some families have inputs and outputs the other way round.
fn joined_experts<'t>(src: &Checkpoint, tensor: &'t Tensor) -> Option<&'t str> {
    let (parent, projection) = tensor.name.rsplit_once(".experts.")?;
    let both = |projection: &str| src.tensor(&format!("{parent}.experts.{projection}"));
    let (gate_up, down) = (both("gate_up_proj")?, both("down_proj")?);
    let is_ours = matches!(projection, "gate_up_proj" | "down_proj");
    let (&[n, rows, cols], &[n_down, rows_down, inner]) = (&gate_up.shape[..], &down.shape[..])
    else {
        return None;
    };
    let fits = n == n_down && rows == inner.checked_mul(2)? && cols == rows_down;
    let floats = [gate_up, down].iter().all(|stack| matches!(stack.dtype, Dtype::Float(_)));
    (is_ours && fits && floats && !tensor.data.is_empty()).then_some(parent)
}

/// `x.experts.3.up_proj` is expert 3 of `x.switch_mlp.up_proj`.
fn expert(module: &str) -> Option<(String, usize)> {
    let (before, after) = module.split_once(".experts.")?;
    let (index, projection) = after.split_once('.')?;
    Some((format!("{before}.switch_mlp.{projection}"), index.parse().ok()?))
}

/// Whether a tensor is a part of the weight of the module it names.
fn is_companion(src: &Checkpoint, name: &str) -> bool {
    const PARTS: [&str; 7] = [
        "scales",
        "biases",
        "weight_scale_inv",
        "weight_scale",
        "weight_zero_point",
        "input_scale",
        "activation_scale",
    ];
    name.rsplit_once('.').is_some_and(|(module, part)| {
        PARTS.contains(&part) && src.contains(&format!("{module}.weight"))
    })
}

/// Why a tensor is not written, if it is not.
fn left_out(src: &Checkpoint, tensor: &Tensor) -> Option<&'static str> {
    let tied = src.config.get("tie_word_embeddings").and_then(Value::as_bool) == Some(true);
    if tied && canonical(&tensor.name).starts_with("lm_head.") {
        return Some("the config ties the output head to the embedding");
    }
    if tensor.name.ends_with("rotary_emb.inv_freq") {
        return Some("it follows from the config");
    }
    // Without a byte behind it, a shape can claim sizes that no arithmetic survives.
    if tensor.data.is_empty() {
        return Some("it holds no numbers");
    }
    let is_foreign = matches!(tensor.dtype, Dtype::I64 | Dtype::Other { .. });
    is_foreign.then_some("no model computes with its type")
}
