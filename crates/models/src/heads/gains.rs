//! What the gains of a draft head mean in files that MLX has converted.
//!
//! MLX adds the one to the gains of a model whose published ones lack it, but drops draft heads. Those
//! that people put back come from the published files or from ones that were converted with their
//! heads, and nothing says which. A head and its model are trained together, so gains that are there
//! for the same purpose have about the same mean: the reading that brings them closer is right.

use backend::NormGain;
use weights::Checkpoint;

use crate::Error;
use crate::loader::{Loader, as_stored};
use crate::modules::Module;
use crate::recipe::{Branch, Draft, Layer, Mixer};

/// `draft` with gains that mean what they do in these files.
pub(super) fn settled(
    draft: &Draft,
    trunk: &Loader,
    checkpoint: &Checkpoint,
) -> Result<Draft, Error> {
    let mut draft = draft.clone();
    if trunk.spec().final_norm.gain == draft.final_norm.gain {
        return Ok(draft);
    }
    let body = Loader::new(&draft.body(trunk.spec()), checkpoint)?;
    let is_attention = |branch: &Branch| matches!(branch, Branch::Mixer(Mixer::Attention(_)));
    let alike = |layer: &Layer| layer.branches().any(is_attention);
    if let Some(i) = trunk.spec().layers.iter().rposition(alike) {
        let theirs = trunk.spec().layer_name(i);
        let mut score = Score::default();
        for (layer_name, _) in draft.layers.iter().filter(|(_, layer)| alike(layer)) {
            for (name, len) in gains_in(&body, layer_name) {
                let other = name.replacen(layer_name, &theirs, 1);
                score.compare(&body.gain(&name, len)?, &trunk.gain(&other, len)?);
            }
        }
        if score.is_whole() {
            draft.layers.iter_mut().for_each(|(_, layer)| as_stored(layer));
            draft.token_norm.gain = NormGain::Stored;
            draft.hidden_norm.gain = NormGain::Stored;
        }
    }
    let (name, len) = (body.spec().final_norm_name(), body.spec().hidden);
    let mut score = Score::default();
    score.compare(&body.gain(&name, len)?, &trunk.gain(&trunk.spec().final_norm_name(), len)?);
    if score.is_whole() {
        draft.final_norm.gain = NormGain::Stored;
    }
    Ok(draft)
}

/// Names and lengths of the gains of the layer called `layer`.
fn gains_in(loader: &Loader, layer: &str) -> Vec<(String, usize)> {
    let gain = |module: Module| match module {
        Module::Gain { name, len, .. } if name.starts_with(layer) => Some((name, len)),
        _ => None,
    };
    loader.spec().modules().into_iter().filter_map(gain).collect()
}

/// How far gains are from those of the model, which are whole.
#[derive(Default)]
struct Score {
    /// If they are whole too.
    whole: f32,
    /// If they lack the one.
    lacking: f32,
}

impl Score {
    fn compare(&mut self, ours: &[f32], theirs: &[f32]) {
        let mean = |gains: &[f32]| gains.iter().sum::<f32>() / gains.len().max(1) as f32;
        let (ours, theirs) = (mean(ours), mean(theirs));
        self.whole += (ours - theirs).abs();
        self.lacking += (ours + 1.0 - theirs).abs();
    }

    fn is_whole(&self) -> bool {
        self.whole < self.lacking
    }
}
