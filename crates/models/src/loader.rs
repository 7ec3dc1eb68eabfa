//! From a checkpoint to the matrices of a spec: merges what belongs together, settles where the head
//! comes from, and refuses weights with terms that the spec would leave out.
//!
//! It knows no device; a device takes over the parts that come from here.

mod experts;
mod latent;
mod spelling;

use std::collections::BTreeSet;
use std::ops::Range;

use backend::NormGain;
use weights::{Checkpoint, Matrix};

use crate::Error;
use crate::mixers::conv::Conv;
use crate::mixers::gated_delta;
use crate::modules::{Linear, Module};
use crate::recipe::{
    Bias, Branch, Correction, Ffn, Head, Layer, Mixer, ModelSpec, Norm, Orientation,
};
use crate::share::{Cut, Cuts, Share};

/// Everything that may belong to a module of a checkpoint.
const SUFFIXES: &[&str] = &[
    "weight",
    "bias",
    "scales",
    "biases",
    "weight_scale_inv",
    "weight_scale",
    "input_scale",
    "weight_packed",
    "weight_shape",
    "weight_zero_point",
    "weight_g_idx",
    "weight_global_scale",
    "input_global_scale",
    "input_zero_point",
];
/// Norms that some families have in a layer.
const NORMS: &[&str] = &[
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
    "post_self_attn_layernorm",
    "post_mlp_layernorm",
];
/// Norms that some families have on queries.
const HEAD_NORMS: &[&str] = &["q_norm", "q_layernorm", "query_layernorm"];
/// What follows from the config, and old files have all the same: frequencies, and masks.
const CONSTANTS: &[&str] = &[".inv_freq", ".attn.bias", ".attn.masked_bias"];
/// How many ignored tensors a note names.
const NAMED: usize = 3;

/// A checkpoint seen through a spec.
pub(crate) struct Loader<'a> {
    spec: ModelSpec,
    checkpoint: &'a Checkpoint,
    notes: Vec<String>,
    /// What is taken of tensors of which this machine has a share only.
    cuts: Option<Cuts>,
}

impl<'a> Loader<'a> {
    /// Settles the head and checks that nothing the model needs is there without being asked for.
    pub(crate) fn new(spec: &ModelSpec, checkpoint: &'a Checkpoint) -> Result<Loader<'a>, Error> {
        let mut loader = Loader { spec: spec.clone(), checkpoint, notes: Vec::new(), cuts: None };
        loader.settle_names();
        loader.settle_head()?;
        loader.settle_orientation();
        loader.settle_gains();
        loader.refuse_factors_of_mlx()?;
        loader.settle_corrections();
        loader.refuse_unused_terms()?;
        loader.note_ignored_tensors();
        Ok(loader)
    }

    /// The same for what one of several machines has of every matrix. The spec is
    /// [`ModelSpec::shared`] then.
    pub(crate) fn of_share(
        spec: &ModelSpec,
        checkpoint: &'a Checkpoint,
        share: Share,
    ) -> Result<Loader<'a>, Error> {
        let mut loader = Loader::new(spec, checkpoint)?;
        let shared = loader.spec.shared(share.ranks)?;
        loader.cuts = Some(loader.spec.cuts(share));
        loader.spec = shared;
        Ok(loader)
    }

    /// Which machine this is of how many that share the model.
    pub(crate) fn share(&self) -> Share {
        self.cuts.as_ref().map_or(Share::WHOLE, Cuts::share)
    }

    /// Over the columns of how many machines the norm called `name` goes.
    pub(crate) fn norm_over(&self, name: &str) -> usize {
        self.cuts.as_ref().map_or(1, |cuts| cuts.norm_over(name))
    }

    /// What is taken of the tensor or module called `name`, if not all.
    pub(crate) fn cut(&self, name: &str) -> Option<&Cut> {
        self.cuts.as_ref()?.of(name)
    }

    /// The spec with a head that is either tied or separate.
    pub(crate) fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// What was decided or ignored.
    pub(crate) fn into_notes(self) -> Vec<String> {
        self.notes
    }

    fn settle_head(&mut self) -> Result<(), Error> {
        let module = self.spec.lm_head().name;
        let tensor = format!("{module}.weight");
        match (self.spec.head, self.checkpoint.has_weight(&module)) {
            (Head::Separate | Head::UnitColumns, false) => Err(Error::MissingHead { tensor }),
            (Head::IfStored, false) => {
                self.notes.push(format!(
                    "config.json does not say whether the head is tied and there is no {tensor}: \
                     using the embedding"
                ));
                self.spec.head = Head::Tied;
                Ok(())
            }
            (Head::IfStored, true) => {
                self.spec.head = Head::Separate;
                Ok(())
            }
            (Head::Separate | Head::UnitColumns | Head::Tied, _) => Ok(()),
        }
    }

    /// Some programs turn the matrices of layers over when they convert a model. A fused projection to
    /// q, k and v is never square.
    fn settle_orientation(&mut self) {
        if self.spec.orientation != Orientation::Either {
            return;
        }
        let is_wide = |module: Module| match module {
            Module::Linear(linear) if linear.rows != linear.cols => {
                let stored = self.checkpoint.tensor(&format!("{}.weight", linear.name))?;
                Some(stored.shape == [linear.cols, linear.rows])
            }
            _ => None,
        };
        self.spec.orientation = match self.spec.modules().into_iter().find_map(is_wide) {
            Some(true) => Orientation::ByInput,
            Some(false) | None => Orientation::ByOutput,
        };
    }

    /// MLX adds the one to the gains of models with gated delta layers when it converts them, which
    /// shows in nothing but the order of the convolution's axes. The numbers themselves are in the
    /// same order either way.
    fn settle_gains(&mut self) {
        let conv = |layer: &str, branch: &Branch| match branch {
            Branch::Mixer(Mixer::GatedDelta(shape)) => {
                gated_delta::convs(shape, layer).first().map(Conv::weight_name)
            }
            _ => None,
        };
        if !self.is_from_mlx(conv) {
            return;
        }
        self.spec.final_norm.gain = NormGain::Stored;
        self.spec.layers.iter_mut().for_each(as_stored);
    }

    /// Whether MLX has converted these files: it moves the axes of convolutions, of which `name` gives
    /// one.
    fn is_from_mlx(&self, name: impl Fn(&str, &Branch) -> Option<String>) -> bool {
        let in_layer = |(i, layer): (usize, &Layer)| {
            let layer_name = self.spec.layer_name(i);
            layer.branches().find_map(|branch| name(&layer_name, branch))
        };
        let conv = self.spec.layers.iter().enumerate().find_map(in_layer);
        let stored = conv.and_then(|conv| self.checkpoint.tensor(&conv));
        stored.is_some_and(|conv| matches!(conv.shape[..], [_, taps, 1] if taps > 1))
    }

    /// MLX multiplies some of the factors of Falcon-H1 into the weights when it converts them.
    fn refuse_factors_of_mlx(&self) -> Result<(), Error> {
        let scaled = |layer: &str, branch: &Branch| match branch {
            Branch::Mixer(Mixer::Mamba2(mixer)) if mixer.has_factors() => {
                Some(mixer.conv(layer).weight_name())
            }
            _ => None,
        };
        match self.is_from_mlx(scaled) {
            true => Err(Error::config(
                "ssm_multipliers",
                "are in the weights already, as MLX converts them; use the files as published",
            )),
            false => Ok(()),
        }
    }

    /// Corrections of routers that need not be there either are or are not.
    fn settle_corrections(&mut self) {
        for (layer_name, layer) in self.spec.named_layers_mut() {
            for branch in layer.steps.iter_mut().flat_map(|step| &mut step.branches) {
                if let Branch::Ffn(Ffn::Moe(moe)) = branch
                    && let Correction::IfStored(name) = moe.router.correction
                {
                    let stored = format!("{layer_name}.{}.{name}", moe.name);
                    moe.router.correction = match self.checkpoint.contains(&stored) {
                        true => Correction::Stored(name),
                        false => Correction::Absent,
                    };
                }
            }
        }
    }

    /// A bias or a norm that lies there unused means that the config is not that of these weights.
    fn refuse_unused_terms(&self) -> Result<(), Error> {
        let mut unused = Vec::new();
        for module in self.spec.modules() {
            if let Module::Linear(Linear { name, bias: Bias::Absent, .. }) = module {
                unused.push(format!("{name}.bias"));
            }
        }
        for (i, layer) in self.spec.layers.iter().enumerate() {
            unused.extend(unused_in(layer, &self.spec.layer_name(i)));
        }
        match unused.into_iter().find(|tensor| self.checkpoint.contains(tensor)) {
            Some(tensor) => Err(Error::UnusedTerm { tensor, family: self.spec.family }),
            None => Ok(()),
        }
    }

    fn note_ignored_tensors(&mut self) {
        let mut used = BTreeSet::new();
        for module in self.spec.modules() {
            for name in self.stored_names(&module) {
                let parts = SUFFIXES.iter().map(|suffix| format!("{name}.{suffix}"));
                let stored =
                    parts.chain([name.clone()]).filter_map(|part| self.checkpoint.tensor(&part));
                used.extend(stored.map(|tensor| tensor.name.as_str()));
            }
        }
        // A draft head has notes of its own, and copies of what it shares with the model.
        for draft in &self.spec.drafts {
            let places = draft.layers.iter().map(|(name, _)| name).chain([&draft.parent]);
            places.for_each(|place| used.extend(self.checkpoint.names_in(place)));
        }
        let is_derived = |name: &str| CONSTANTS.iter().any(|end| name.ends_with(end));
        let is_ignored = |name: &&str| !used.contains(name) && !is_derived(name);
        let ignored: Vec<&str> = self.checkpoint.names().filter(is_ignored).collect();
        if let Some(first) = ignored.get(..NAMED.min(ignored.len())).filter(|f| !f.is_empty()) {
            let dots = if ignored.len() > NAMED { ", …" } else { "" };
            self.notes.push(format!(
                "ignored {} tensors that the language model does not use: {}{dots}",
                ignored.len(),
                first.join(", ")
            ));
        }
    }

    /// The names that a module's tensors have in this checkpoint, those with a suffix without it.
    fn stored_names(&self, module: &Module) -> Vec<String> {
        match module {
            Module::Linear(linear) | Module::Embedding(linear) => vec![linear.name.clone()],
            Module::Gain { name, .. } => vec![name.clone()],
            Module::Vector { name, .. } => vec![self.spelled(name)],
            Module::Experts(experts) => self.stored_experts(experts),
            Module::LatentUp(up) => self.stored_latent_up(up),
        }
    }

    /// Whether the matrix of a linear layer is turned over when it is loaded.
    fn is_turned(&self, linear: &Linear) -> bool {
        self.spec.orientation == Orientation::ByInput && self.spec.is_in_layer(&linear.name)
    }

    /// The matrix of a linear layer that no machine shares with others.
    pub(crate) fn matrix(&self, linear: &Linear) -> Result<Matrix, Error> {
        if self.is_turned(linear) {
            let stored = self.checkpoint.matrix(&linear.name, linear.cols, linear.rows)?;
            return Ok(stored.transposed()?);
        }
        Ok(self.checkpoint.matrix(&linear.name, linear.rows, linear.cols)?)
    }

    /// The matrices whose rows, one after the other, are those of a linear layer.
    pub(crate) fn matrices(&self, linear: &Linear) -> Result<Vec<Matrix>, Error> {
        Ok(match self.cut(&linear.name) {
            None => vec![self.matrix(linear)?],
            Some(Cut::Rows { whole, ranges }) => {
                let matrix = self.matrix(&Linear { rows: *whole, ..linear.clone() })?;
                ranges.iter().map(|range| matrix.rows_range(range.clone())).collect()
            }
            Some(Cut::Columns { whole, ranges }) => {
                let matrix = self.matrix(&Linear { cols: *whole, ..linear.clone() })?;
                vec![matrix.cols_of(ranges)?]
            }
        })
    }

    /// The rows of the output matrix that this machine has, if others have the rest.
    pub(crate) fn own_head(&self) -> Result<Option<Vec<Matrix>>, Error> {
        let head = self.spec.lm_head();
        let Some(Cut::Rows { ranges, .. }) = self.cut(&head.name) else { return Ok(None) };
        let whole = match self.spec.head {
            Head::Tied => self.matrix(&self.spec.embedding())?,
            Head::Separate | Head::UnitColumns | Head::IfStored => self.matrix(&head)?,
        };
        Ok(Some(ranges.iter().map(|range| whole.rows_range(range.clone())).collect()))
    }

    /// Bytes of what [`Loader::matrices`] gives. Copies nothing.
    fn matrix_bytes(&self, linear: &Linear) -> Result<u64, Error> {
        if let Some(Cut::Columns { whole, ranges }) = self.cut(&linear.name) {
            let matrix = self.matrix(&Linear { cols: *whole, ..linear.clone() })?;
            ranges.iter().try_for_each(|range| matrix.check_cols(range))?;
            let own: usize = ranges.iter().map(Range::len).sum();
            return Ok((matrix.n_bytes() / whole * own) as u64);
        }
        Ok(self.matrices(linear)?.iter().map(Matrix::n_bytes).sum::<usize>() as u64)
    }

    /// Whether what a layer multiplies to is a part of a sum.
    pub(crate) fn is_summed(&self, linear: &Linear) -> bool {
        matches!(self.cut(&linear.name), Some(Cut::Columns { .. }))
    }

    /// The biases of `linears` one after the other; `None` if none of them has one.
    pub(crate) fn biases(&self, linears: &[Linear]) -> Result<Option<Vec<f32>>, Error> {
        let mut values = Vec::new();
        for linear in linears {
            match linear.bias {
                Bias::Absent => {}
                Bias::Stored => values.extend(self.bias(linear)?),
            }
        }
        Ok(Some(values).filter(|values| !values.is_empty()))
    }

    fn bias(&self, linear: &Linear) -> Result<Vec<f32>, Error> {
        self.vector(&linear.name, &format!("{}.bias", linear.name), linear.rows)
    }

    /// `len` numbers of a tensor, of which a machine may have a share under the name `module`.
    fn vector(&self, module: &str, tensor: &str, len: usize) -> Result<Vec<f32>, Error> {
        let Some(Cut::Rows { whole, ranges }) = self.cut(module) else {
            return Ok(self.checkpoint.vector(tensor, len)?);
        };
        let all = self.checkpoint.vector(tensor, *whole)?;
        Ok(ranges.iter().flat_map(|range| &all[range.clone()]).copied().collect())
    }

    /// A norm's bias, if it has one.
    pub(crate) fn norm_bias(
        &self,
        norm: &Norm,
        name: &str,
        len: usize,
    ) -> Result<Option<Vec<f32>>, Error> {
        match norm.bias {
            Bias::Absent => Ok(None),
            Bias::Stored => Ok(Some(self.numbers(&format!("{name}.bias"), len)?)),
        }
    }

    /// A norm's gain.
    pub(crate) fn gain(&self, name: &str, len: usize) -> Result<Vec<f32>, Error> {
        self.vector(name, &format!("{name}.weight"), len)
    }

    /// The `len` numbers of a tensor, in the order they are stored.
    pub(crate) fn numbers(&self, name: &str, len: usize) -> Result<Vec<f32>, Error> {
        self.vector(name, &self.spelled(name), len)
    }

    /// Bytes of one module that do not stay where the checkpoint has them.
    pub(crate) fn n_copied_bytes(&self, module: &Module) -> Result<u64, Error> {
        Ok(match module {
            Module::Linear(linear) if self.is_turned(linear) || self.is_summed(linear) => {
                self.n_bytes(module)?
            }
            Module::Linear(linear) | Module::Embedding(linear) => {
                let biases = self.biases(std::slice::from_ref(linear))?;
                biases.map_or(0, |biases| 4 * biases.len() as u64)
            }
            Module::Experts(experts) => self.expert_bytes(experts)?[1],
            Module::LatentUp(_) => 0,
            Module::Gain { .. } | Module::Vector { .. } => self.n_bytes(module)?,
        })
    }

    /// Bytes of one module as stored.
    pub(crate) fn n_bytes(&self, module: &Module) -> Result<u64, Error> {
        Ok(match module {
            Module::Linear(linear) | Module::Embedding(linear) => {
                let bias = self.biases(std::slice::from_ref(linear))?.map_or(0, |b| 4 * b.len());
                self.matrix_bytes(linear)? + bias as u64
            }
            Module::Experts(experts) => self.expert_bytes(experts)?[0],
            Module::LatentUp(up) => self.latent_up(up)?.n_bytes(),
            Module::Gain { name, len, .. } => 4 * self.gain(name, *len)?.len() as u64,
            Module::Vector { name, shape } => {
                4 * self.numbers(name, shape.iter().product())?.len() as u64
            }
        })
    }
}

/// Makes the gains of a layer what is stored of them.
pub(crate) fn as_stored(layer: &mut Layer) {
    for step in &mut layer.steps {
        step.norms.all_mut().into_iter().for_each(|norm| norm.gain = NormGain::Stored);
        for branch in &mut step.branches {
            if let Branch::Mixer(Mixer::Attention(attention)) = branch
                && let Some(norm) = &mut attention.head_norm
            {
                norm.gain = NormGain::Stored;
            }
        }
    }
}

/// Norms, and biases of norms, that other families have in a layer of this name.
fn unused_in(layer: &Layer, name: &str) -> Vec<String> {
    let mut unused = Vec::new();
    for norm in layer.norms().filter(|norm| norm.bias == Bias::Absent) {
        unused.push(format!("{}.bias", norm.name_in(name)));
    }
    for other in NORMS.iter().filter(|other| layer.norms().all(|norm| norm.name != **other)) {
        unused.push(format!("{name}.{other}.weight"));
    }
    for branch in layer.branches() {
        if let Branch::Mixer(Mixer::Attention(attention)) = branch
            && attention.head_norm.is_none()
        {
            let norms = HEAD_NORMS.iter();
            unused.extend(norms.map(|norm| format!("{name}.{}.{norm}.weight", attention.name)));
        }
        if let Branch::Mixer(Mixer::Attention(attention)) = branch
            && attention.sinks == Bias::Absent
        {
            unused.push(format!("{name}.{}.sinks", attention.name));
        }
        if let Branch::Ffn(Ffn::Moe(moe)) = branch
            && moe.router.correction == Correction::Absent
        {
            let places = [String::new(), format!("{}.", moe.router.name)];
            let correction = |place| format!("{name}.{}.{place}e_score_correction_bias", moe.name);
            unused.extend(places.map(correction));
        }
    }
    unused
}
