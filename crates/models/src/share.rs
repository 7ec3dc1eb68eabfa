//! A model that is split over several machines, matrix by matrix: each has some heads of every attention
//! and some of the columns between the projections of every feed-forward layer. What layers add to the
//! residual stream is summed over all of them, so that each has all of the stream, and the embedding. Each
//! has the logits of some tokens, if as many of them for each can be found, and these are put together.
//!
//! Splitting by layers, of which each machine has some whole ones, is `part.rs`. Not here either: how
//! machines find each other, nor who tells them what to do.

use std::collections::BTreeMap;
use std::ops::Range;

use backend::{Backend, Batch};
use weights::Checkpoint;

use crate::decoder::{Scratch, Store};
use crate::ends::Ends;
use crate::layers::Layers;
use crate::loader::Loader;
use crate::recipe::{Branch, Ffn, Mixer};
use crate::{Error, ModelSpec};

/// What one of several machines has of everything that is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which machine, from 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
}

/// What is taken of tensors that are shared, by name.
#[derive(Debug)]
pub(crate) struct Cuts {
    share: Share,
    by_name: BTreeMap<String, Cut>,
}

/// What is taken of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Of so many rows, or numbers of a vector, these.
    Rows { whole: usize, ranges: Vec<Range<usize>> },
    /// Of so many columns, these: what it is multiplied to is a part of a sum.
    Columns { whole: usize, range: Range<usize> },
}

impl Share {
    /// Which of `n`, which the machines share evenly.
    pub(crate) fn of(self, n: usize) -> Range<usize> {
        let each = n / self.ranks;
        self.rank * each..(self.rank + 1) * each
    }
}

impl Cuts {
    /// Takes rows of what is called `name`: of parts of so many, one after the other, its share of each.
    pub(crate) fn rows(&mut self, name: String, parts: &[usize]) {
        let (mut ranges, mut first) = (Vec::new(), 0);
        for part in parts {
            let Range { start, end } = self.share.of(*part);
            ranges.push(first + start..first + end);
            first += part;
        }
        self.by_name.insert(name, Cut::Rows { whole: first, ranges });
    }

    /// Takes columns of what is called `name`.
    pub(crate) fn columns(&mut self, name: String, whole: usize) {
        let range = self.share.of(whole);
        self.by_name.insert(name, Cut::Columns { whole, range });
    }

    pub(crate) fn of(&self, name: &str) -> Option<&Cut> {
        self.by_name.get(name)
    }

    /// Which machine this is of how many. Experts, whose names depend on how they are stored, are not
    /// listed: each machine has its share of the columns between their projections.
    pub(crate) fn share(&self) -> Share {
        self.share
    }
}

/// What cannot be shared by so many, for [`Error::NotShared`].
pub(crate) type Unshared = String;

/// A share of `n` things, or what cannot be shared.
pub(crate) fn evenly(n: usize, ranks: usize, what: &str) -> Result<usize, Unshared> {
    match n.is_multiple_of(ranks) {
        true => Ok(n / ranks),
        false => Err(format!("its {n} {what}")),
    }
}

impl ModelSpec {
    /// The model of which each of `ranks` machines has its share: as many heads and inner columns.
    ///
    /// # Errors
    /// Something cannot be shared evenly, or not at all.
    pub fn shared(&self, ranks: usize) -> Result<ModelSpec, Error> {
        let mut spec = self.clone();
        for branch in
            spec.layers.iter_mut().flat_map(|l| &mut l.steps).flat_map(|s| &mut s.branches)
        {
            let shared = match branch {
                Branch::Mixer(Mixer::Attention(attention)) => attention.share(ranks),
                Branch::Mixer(Mixer::Latent(_)) => Err("latent attention".to_owned()),
                Branch::Mixer(_) => Err("layers with a state".to_owned()),
                Branch::Ffn(Ffn::Gated(gated)) => gated.share(ranks),
                Branch::Ffn(Ffn::Plain(plain)) => plain.share(ranks),
                // It is small, and everybody has all of it.
                Branch::Ffn(Ffn::LayerInput(_)) => Ok(()),
                Branch::Ffn(Ffn::Moe(moe)) => moe.share(ranks),
                Branch::Ffn(Ffn::Twin(_)) => Err("experts beside another layer".to_owned()),
            };
            let family = self.family;
            shared.map_err(|what| Error::NotShared { family, ranks, what })?;
        }
        Ok(spec)
    }

    /// Whether so many machines have as many rows each of the output matrix; else each has all of it, and
    /// the first one needs it.
    fn has_shared_head(&self, ranks: usize) -> bool {
        self.vocab.is_multiple_of(ranks)
    }

    /// What a machine takes of the tensors of this model, which can be shared.
    pub(crate) fn cuts(&self, share: Share) -> Cuts {
        let mut cuts = Cuts { share, by_name: BTreeMap::new() };
        if self.has_shared_head(share.ranks) {
            cuts.rows(self.lm_head().name, &[self.vocab]);
        }
        for (i, layer) in self.layers.iter().enumerate() {
            let parent = self.layer_name(i);
            for branch in layer.branches() {
                match branch {
                    Branch::Mixer(Mixer::Attention(attention)) => attention.cut(&parent, &mut cuts),
                    Branch::Ffn(Ffn::Gated(gated)) => gated.cut(&parent, &mut cuts),
                    Branch::Ffn(Ffn::Plain(plain)) => plain.cut(&parent, &mut cuts),
                    Branch::Ffn(Ffn::Moe(moe)) => moe.cut(&parent, &mut cuts),
                    Branch::Mixer(_) | Branch::Ffn(_) => {}
                }
            }
        }
        cuts
    }
}

/// A machine's share of a model, loaded.
pub struct ShareDecoder<B: Backend> {
    spec: ModelSpec,
    share: Share,
    ends: Ends<B>,
    layers: Layers<B>,
    notes: Vec<String>,
}

impl<B: Backend> ShareDecoder<B> {
    /// Takes its share of the model out of `checkpoint`, and gives it to the device. Calls `progress(done,
    /// total)` after each layer.
    ///
    /// # Errors
    /// As [`crate::Decoder::load`] and [`ModelSpec::shared`].
    pub fn load(
        (spec, share): (&ModelSpec, Share),
        checkpoint: &Checkpoint,
        b: &B,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<ShareDecoder<B>, Error> {
        let loader = Loader::of_share(spec, checkpoint, share)?;
        let ends = Ends::load(&loader, b)?;
        let layers = Layers::load(&loader, b, 0..spec.layers.len(), progress)?;
        let spec = loader.spec().clone();
        Ok(ShareDecoder { spec, share, ends, layers, notes: loader.into_notes() })
    }

    /// [`ModelSpec::shared`] of its recipe.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// What loading decided or ignored, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// This machine's share of a pass over `batch`, which is what `staged` holds. The first machine has
    /// the wanted logits then. What is to be read, and how many numbers of it; others have nothing to say,
    /// but reading that takes part in what is put together, and tells what went wrong.
    pub fn forward<'s>(
        &self,
        b: &B,
        (batch, staged): (&Batch, &B::Staged),
        store: &mut Store<B>,
        s: &'s mut Scratch<B>,
    ) -> (&'s B::Buf, usize) {
        self.ends.enter(b, &self.spec, staged, s);
        self.layers.all(b, (&self.spec, staged), store, s);
        let is_first = self.share.rank == 0;
        if !is_first && !self.spec.has_shared_head(self.share.ranks) {
            return (&s.x, 0);
        }
        self.ends.leave(b, &self.spec, s);
        (&s.logits, if is_first { batch.want.len() * self.spec.vocab } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use weights::Matrix;

    use super::*;
    use crate::modules::{ExpertLinear, Linear, Module};
    use crate::{FAMILIES, tiny};

    fn linears(loader: &Loader<'_>) -> Vec<Linear> {
        let linear = |module| match module {
            Module::Linear(linear) => Some(linear),
            _ => None,
        };
        loader.spec().modules().into_iter().filter_map(linear).collect()
    }

    fn experts(loader: &Loader<'_>) -> Vec<ExpertLinear> {
        let experts = |module| match module {
            Module::Experts(experts) => Some(experts),
            _ => None,
        };
        loader.spec().modules().into_iter().filter_map(experts).collect()
    }

    /// All numbers, row by row.
    fn rows(matrices: &[Matrix]) -> Vec<Vec<f32>> {
        let row = |matrix: &Matrix, row| {
            let mut out = vec![0.0; matrix.cols];
            matrix.dequantize_row(row, &mut out);
            out
        };
        matrices.iter().flat_map(|m| (0..m.rows).map(move |r| row(m, r))).collect()
    }

    /// In every layer that is shared, the machines have together what one alone has, each number once, in
    /// rows or in columns.
    #[test]
    fn shares_put_together_are_the_whole() {
        let mut split = Vec::new();
        for (family, names) in FAMILIES {
            let checkpoint = tiny::checkpoint(tiny::config(names[0]).unwrap(), 1).unwrap();
            let spec = crate::recipe(&checkpoint.config).unwrap();
            let Ok(shared) = spec.shared(2) else { continue };
            assert_eq!(shared.kv_bytes_per_block() * 2, spec.kv_bytes_per_block(), "{family}");
            let whole = Loader::new(&spec, &checkpoint).unwrap();
            let shares = [0, 1].map(|rank| {
                Loader::of_share(&spec, &checkpoint, Share { rank, ranks: 2 }).unwrap()
            });
            let mut n_cut = 0;
            for (all, one) in linears(&whole).iter().zip(linears(&shares[0])) {
                let own = shares.each_ref().map(|share| rows(&share.matrices(&one).unwrap()));
                // The model says what comes of the output matrix: a logit for every token.
                let parts = if one.name == spec.lm_head().name { 2 } else { 1 };
                let is_share = |own: &Vec<_>| own.len() * parts == one.rows;
                assert!(own.iter().all(is_share), "{family}: {}", one.name);
                let what = format!("{family}: {}", all.name);
                let expected = rows(&whole.matrices(all).unwrap());
                let [Some(first), Some(second)] =
                    shares.each_ref().map(|share| share.cut(&one.name))
                else {
                    assert!(own.iter().all(|own| *own == expected), "{what}");
                    continue;
                };
                n_cut += 1;
                match (first, second) {
                    (Cut::Columns { .. }, Cut::Columns { .. }) => {
                        let joined = own[0].iter().zip(&own[1]).map(|(a, b)| [&a[..], b].concat());
                        assert_eq!(joined.collect::<Vec<_>>(), expected, "{what}");
                    }
                    (Cut::Rows { ranges: a, .. }, Cut::Rows { ranges: b, .. }) => {
                        let places = [a, b].map(|ranges| ranges.iter().cloned().flatten());
                        let mut seen = vec![0; all.rows];
                        for (own, places) in own.iter().zip(places) {
                            for (row, place) in own.iter().zip(places) {
                                assert_eq!(*row, expected[place], "{what}");
                                seen[place] += 1;
                            }
                        }
                        assert!(seen.iter().all(|n| *n == 1), "{what}: {seen:?}");
                    }
                    _ => panic!("{what} is cut in two ways"),
                }
            }
            for (all, one) in experts(&whole).iter().zip(experts(&shares[0])) {
                let whole = whole.experts(all).unwrap();
                let own = shares.each_ref().map(|share| share.experts(&one).unwrap());
                for (i, whole) in whole.iter().enumerate() {
                    let [a, b] = [0, 1].map(|rank| rows(&own[rank][i..=i]));
                    let joined: Vec<Vec<f32>> = match one.is_down() {
                        true => a.iter().zip(&b).map(|(a, b)| [&a[..], b].concat()).collect(),
                        false => [a, b].concat(),
                    };
                    assert_eq!(joined, rows(std::slice::from_ref(whole)), "{family}: {one:?}");
                    n_cut += 1;
                }
            }
            // Attention and feed-forward layers, an entrance and an exit each.
            assert!(n_cut >= 4 * spec.layers.len(), "{family}: {n_cut}");
            split.push(*family);
        }
        assert!(split.len() > 20, "{split:?}");
    }

    #[test]
    fn what_cannot_be_shared_is_said() {
        let error = |name: &str, ranks| {
            let spec = crate::recipe(&tiny::config(name).unwrap()).unwrap();
            spec.shared(ranks).unwrap_err().to_string()
        };
        let said = error("llama", 3);
        assert!(said.starts_with("3 machines cannot share") && said.contains("4 heads"), "{said}");
        assert!(error("llama", 4).contains("its 2 heads of keys and values"));
        assert!(error("qwen3_next", 2).contains("layers with a state"));
        assert!(error("deepseek_v3", 2).contains("latent attention"));
    }
}
