//! A model that is split over several machines, layer by layer: the first has the two ends and some
//! layers, each other one has the layers that come next. What a pass makes of its rows goes from one to
//! the next, and from the last back to the first.
//!
//! Not how they find each other, nor who tells them what to do.

use std::ops::Range;

use backend::ops::PeerOps;
use backend::{Backend, Batch};
use weights::Checkpoint;

use crate::decoder::{Scratch, Store};
use crate::ends::Ends;
use crate::layers::Layers;
use crate::loader::Loader;
use crate::modules::Module;
use crate::recipe::{Branch, KeysValues, Mixer, Streams};
use crate::{Error, ModelSpec};

/// What one of several machines has of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which machine, from 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    /// Its layers.
    pub layers: Range<usize>,
}

impl Part {
    /// What machine `rank` of `ranks` has: layers of about as many numbers as each other one, where
    /// embedding and output matrix count for the first. Depends on the spec alone, so that every
    /// machine finds the same.
    ///
    /// # Errors
    /// The model has too few places where it can be cut: a layer that reads another one's keys stays
    /// with it, and so do all layers where tokens bring something along for each, or where there
    /// are several residual streams.
    pub fn of(spec: &ModelSpec, rank: usize, ranks: usize) -> Result<Part, Error> {
        let places: Vec<usize> = match (&spec.layer_inputs, &spec.streams) {
            (None, Streams::One) => {
                (1..spec.layers.len()).filter(|at| spec.parts_at(*at)).collect()
            }
            _ => Vec::new(),
        };
        if places.len() + 1 < ranks || rank >= ranks {
            let (family, most) = (spec.family, places.len() + 1);
            return Err(Error::TooManyParts { family, ranks, most });
        }
        let params = |modules: Vec<Module>| modules.iter().map(Module::n_params).sum::<u64>();
        let mut before = vec![params(spec.end_modules())];
        for (i, layer) in spec.layers.iter().enumerate() {
            before.push(before[i] + params(spec.layer_modules(i, layer)));
        }
        let total = before[spec.layers.len()];
        let (mut cuts, mut next) = (vec![0], 0);
        for part in 1..ranks {
            let ideal = (u128::from(total) * part as u128 / ranks as u128) as u64;
            // Enough places are left for the machines to come.
            let last = places.len() - (ranks - 1 - part);
            let best = (next..last).min_by_key(|i| before[places[*i]].abs_diff(ideal));
            let best = best.expect("there are enough places");
            cuts.push(places[best]);
            next = best + 1;
        }
        cuts.push(spec.layers.len());
        Ok(Part { rank, ranks, layers: cuts[rank]..cuts[rank + 1] })
    }

    /// Whether no layer comes after these.
    fn is_last(&self) -> bool {
        self.rank + 1 == self.ranks
    }
}

impl ModelSpec {
    /// Whether the layers from `at` on need nothing that earlier ones store.
    fn parts_at(&self, at: usize) -> bool {
        let mixers = |layers: &[crate::recipe::Layer]| {
            layers.iter().flat_map(|layer| layer.branches().map(borrowed)).flatten().collect()
        };
        let before: Vec<Option<usize>> = mixers(&self.layers[..at]);
        let after: Vec<Option<usize>> = mixers(&self.layers[at..]);
        after.into_iter().flatten().all(|of| of >= before.len())
    }

    /// A model of these layers alone, for what memory they take: its names are not those of a
    /// checkpoint.
    pub fn part(&self, part: &Part) -> ModelSpec {
        let before = self.layers[..part.layers.start].iter().flat_map(|layer| layer.branches());
        let n_before = before.filter_map(borrowed).count();
        let mut layers = self.layers[part.layers.clone()].to_vec();
        for branch in layers.iter_mut().flat_map(|l| &mut l.steps).flat_map(|s| &mut s.branches) {
            if let Branch::Mixer(Mixer::Attention(attention)) = branch
                && let KeysValues::OfMixer(of) = &mut attention.keys_values
            {
                *of -= n_before;
            }
        }
        ModelSpec { layers, ..self.clone() }
    }
}

/// Of a mixer, which other one's keys and values it reads, if any.
fn borrowed(branch: &Branch) -> Option<Option<usize>> {
    match branch {
        Branch::Ffn(_) => None,
        Branch::Mixer(Mixer::Attention(attention)) => Some(match attention.keys_values {
            KeysValues::OfMixer(of) => Some(of),
            KeysValues::Own | KeysValues::OneProjection => None,
        }),
        Branch::Mixer(_) => Some(None),
    }
}

/// A machine's part of a model, loaded.
pub struct PartDecoder<B: Backend> {
    spec: ModelSpec,
    part: Part,
    /// Only the first machine has them.
    ends: Option<Ends<B>>,
    layers: Layers<B>,
    notes: Vec<String>,
}

impl<B: Backend + PeerOps> PartDecoder<B> {
    /// Takes the weights of `part` of the model out of `checkpoint`, and gives them to the device. Calls
    /// `progress(done, total)` after each layer.
    ///
    /// # Errors
    /// As [`crate::Decoder::load`].
    pub fn load(
        (spec, part): (&ModelSpec, Part),
        checkpoint: &Checkpoint,
        b: &B,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<PartDecoder<B>, Error> {
        let loader = Loader::new(spec, checkpoint)?;
        let ends = (part.rank == 0).then(|| Ends::load(&loader, b)).transpose()?;
        let layers = Layers::load(&loader, b, part.layers.clone(), progress)?;
        let spec = loader.spec().part(&part);
        Ok(PartDecoder { ends, layers, notes: loader.into_notes(), spec, part })
    }

    /// The recipe of its own layers, [`ModelSpec::part`].
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// What loading decided or ignored, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// This machine's part of a pass over `batch`, which is what `staged` holds. The first machine
    /// has the wanted logits then. What is to be read, and how many numbers of it; others have nothing
    /// to say, but reading that tells what went wrong.
    pub fn forward<'s>(
        &self,
        b: &B,
        (batch, staged): (&Batch, &B::Staged),
        store: &mut Store<B>,
        s: &'s mut Scratch<B>,
    ) -> (&'s B::Buf, usize) {
        let (spec, Part { rank, ranks, .. }) = (&self.spec, &self.part);
        let (rows, wanted) = (batch.n_rows(), batch.want.len());
        match &self.ends {
            Some(ends) => ends.enter(b, spec, staged, s),
            None => b.receive((rows, spec.hidden), rank - 1, &mut s.x),
        }
        match self.part.is_last() {
            false => self.layers.every_row(b, (spec, staged), store, s),
            true => self.layers.all(b, (spec, staged), store, s),
        }
        let n = if self.part.is_last() { wanted } else { rows };
        b.send(&s.x, n, (rank + 1) % ranks);
        let Some(ends) = &self.ends else { return (&s.x, 0) };
        b.receive((wanted, spec.hidden), ranks - 1, &mut s.x);
        ends.leave(b, spec, s);
        (&s.logits, wanted * spec.vocab)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FAMILIES, Footprint, tiny};

    /// The parts of all machines.
    fn parts(spec: &ModelSpec, ranks: usize) -> Result<Vec<Part>, Error> {
        (0..ranks).map(|rank| Part::of(spec, rank, ranks)).collect()
    }

    #[test]
    fn together_they_are_the_model() {
        let mut split = Vec::new();
        for (family, names) in FAMILIES {
            let checkpoint = tiny::checkpoint(tiny::config(names[0]).unwrap(), 1).unwrap();
            let spec = crate::recipe(&checkpoint.config).unwrap();
            let Ok(parts) = parts(&spec, 2) else { continue };
            let [first, last] = &parts[..] else { panic!("{family}: {parts:?}") };
            assert!(first.layers.start == 0 && first.layers.end == last.layers.start, "{family}");
            assert!(!first.layers.is_empty() && !last.layers.is_empty(), "{family}: {parts:?}");
            assert_eq!(last.layers.end, spec.layers.len(), "{family}");
            let own: Vec<_> = parts.iter().map(|part| spec.part(part)).collect();
            let sum = |of: fn(&ModelSpec) -> usize| own.iter().map(of).sum::<usize>();
            assert_eq!(sum(ModelSpec::kv_bytes_per_block), spec.kv_bytes_per_block(), "{family}");
            assert_eq!(sum(ModelSpec::state_bytes), spec.state_bytes(), "{family}");
            let bytes = |part| Footprint::of_part(&spec, part, &checkpoint).unwrap().weight_bytes;
            let whole = Footprint::of(&spec, &checkpoint).unwrap().weight_bytes;
            assert_eq!(parts.iter().map(bytes).sum::<u64>(), whole, "{family}");
            split.push(*family);
        }
        assert!(split.len() > 10, "{split:?}");
    }

    /// What layers read of earlier ones stays with these, and is counted from there.
    #[test]
    fn nobody_reads_keys_of_another_machine() {
        let config = tiny::config("gemma3n_text").or_else(|| tiny::config("gemma4_text")).unwrap();
        let spec = crate::recipe(&config).unwrap();
        let reads = |spec: &ModelSpec| {
            let branches = spec.layers.iter().flat_map(|layer| layer.branches());
            branches.filter_map(borrowed).collect::<Vec<_>>()
        };
        assert!(reads(&spec).iter().any(Option::is_some), "a family of this kind");
        let mut n = 0;
        for at in (1..spec.layers.len()).filter(|at| spec.parts_at(*at)) {
            let part = spec.part(&Part { rank: 1, ranks: 2, layers: at..spec.layers.len() });
            for (i, of) in reads(&part).into_iter().enumerate() {
                assert!(of.is_none_or(|of| of < i), "{at}");
            }
            n += 1;
        }
        assert!(n < spec.layers.len() - 1, "not everywhere");
        assert!(spec.layer_inputs.is_none() || Part::of(&spec, 0, 2).is_err());
    }

    /// 30 layers of 3.5 million numbers each and an embedding of 28 million, as SmolLM2 has.
    #[test]
    fn the_ends_count_for_the_first() {
        let config = serde_json::json!({
            "model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
            "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
            "max_position_embeddings": 8192, "tie_word_embeddings": true,
        });
        let spec = crate::recipe(&config).unwrap();
        let layers = |ranks| -> Vec<usize> {
            parts(&spec, ranks).unwrap().iter().map(|part| part.layers.len()).collect()
        };
        assert_eq!(layers(1), [30]);
        assert_eq!(layers(2), [11, 19]);
        assert_eq!(layers(30), [1; 30]);
        let error = Part::of(&spec, 0, 31).unwrap_err().to_string();
        assert!(error.contains("30 machines at most, and there are 31"), "{error}");
        assert!(Part::of(&spec, 2, 2).is_err());
    }
}
