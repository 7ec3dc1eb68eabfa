//! A model that is split over several machines, matrix by matrix: each has some heads of every attention
//! and some of the columns between the projections of every feed-forward layer. What layers add to the
//! residual stream is summed over all of them, so that each has all of the stream, and the embedding. Each
//! has the logits of some tokens, if as many of them for each can be found, and these are put together.
//!
//! Splitting by layers, of which each machine has some whole ones, is `part.rs`. Not here either: how
//! machines find each other, nor who tells them what to do.

mod cuts;

use backend::{Backend, Batch};
use weights::Checkpoint;

use crate::decoder::{Scratch, Store};
use crate::ends::Ends;
use crate::layers::Layers;
use crate::loader::Loader;
use crate::recipe::{Branch, Ffn, Mixer};
use crate::{Error, ModelSpec};

pub(crate) use cuts::{Cut, Cuts, Run, Shares, Unshared, evenly, evenly_or_one, joined};

/// What one of several machines has of everything that is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which machine, from 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
}

impl ModelSpec {
    /// The model of which each of `ranks` machines has its share: as many heads and inner columns. What
    /// heads share, such as keys, there may be less of than machines; then several have the same.
    ///
    /// # Errors
    /// Something cannot be shared evenly, or not at all.
    pub fn shared(&self, ranks: usize) -> Result<ModelSpec, Error> {
        let mut spec = self.clone();
        for branch in
            spec.layers.iter_mut().flat_map(|l| &mut l.steps).flat_map(|s| &mut s.branches)
        {
            let family = self.family;
            let shared = branch.shares_mut().share(ranks);
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
        let mut cuts = Cuts::new(share);
        if self.has_shared_head(share.ranks) {
            cuts.rows(self.lm_head().name, &[Run::of(self.vocab)]);
        }
        for (i, layer) in self.layers.iter().enumerate() {
            let name = self.layer_name(i);
            layer.branches().for_each(|branch| branch.shares().cut(&name, &mut cuts));
        }
        cuts
    }
}

impl Branch {
    /// How it is shared, which every kind has to say.
    fn shares(&self) -> &dyn Shares {
        match self {
            Branch::Mixer(Mixer::Attention(attention)) => attention,
            Branch::Mixer(Mixer::Latent(latent)) => latent,
            Branch::Mixer(Mixer::GatedDelta(delta)) => delta,
            Branch::Mixer(Mixer::Mamba2(mamba)) => mamba,
            Branch::Mixer(Mixer::ShortConv(conv)) => conv,
            Branch::Ffn(Ffn::Gated(gated)) => gated,
            Branch::Ffn(Ffn::Plain(plain)) => plain,
            Branch::Ffn(Ffn::Moe(moe)) => moe,
            Branch::Ffn(Ffn::Twin(twin)) => &**twin,
            Branch::Ffn(Ffn::LayerInput(input)) => input,
        }
    }

    /// The same, to change.
    fn shares_mut(&mut self) -> &mut dyn Shares {
        match self {
            Branch::Mixer(Mixer::Attention(attention)) => attention,
            Branch::Mixer(Mixer::Latent(latent)) => latent,
            Branch::Mixer(Mixer::GatedDelta(delta)) => delta,
            Branch::Mixer(Mixer::Mamba2(mamba)) => mamba,
            Branch::Mixer(Mixer::ShortConv(conv)) => conv,
            Branch::Ffn(Ffn::Gated(gated)) => gated,
            Branch::Ffn(Ffn::Plain(plain)) => plain,
            Branch::Ffn(Ffn::Moe(moe)) => moe,
            Branch::Ffn(Ffn::Twin(twin)) => &mut **twin,
            Branch::Ffn(Ffn::LayerInput(input)) => input,
        }
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
    use std::path::Path;

    use serde_json::json;
    use weights::Matrix;

    use super::*;
    use crate::modules::{ExpertLinear, Module};
    use crate::{FAMILIES, tiny};

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

    /// Something stored: whole, and what each of two machines has of it, row by row. A vector has rows of
    /// one number.
    struct Pieces {
        name: String,
        whole: Vec<Vec<f32>>,
        own: [Vec<Vec<f32>>; 2],
    }

    /// Everything but experts and projections from latents.
    fn pieces(whole: &Loader<'_>, shares: &[Loader<'_>; 2]) -> Vec<Pieces> {
        let column = |numbers: Vec<f32>| numbers.into_iter().map(|x| vec![x]).collect::<Vec<_>>();
        let rows_of = |loader: &Loader<'_>, module: &Module| match module {
            Module::Linear(linear) => Some(rows(&loader.matrices(linear).unwrap())),
            Module::Gain { name, len, .. } => Some(column(loader.gain(name, *len).unwrap())),
            Module::Vector { name, shape } => {
                Some(column(loader.numbers(name, shape.iter().product()).unwrap()))
            }
            Module::Embedding(_) | Module::Experts(_) | Module::LatentUp(_) => None,
        };
        let name = |module: &Module| match module {
            Module::Linear(linear) | Module::Embedding(linear) => linear.name.clone(),
            Module::Gain { name, .. } | Module::Vector { name, .. } => name.clone(),
            Module::Experts(experts) => experts.parent.clone(),
            Module::LatentUp(up) => up.parent.clone(),
        };
        let (all, one) = (whole.spec().modules(), shares[0].spec().modules());
        let piece = |(all, one): (&Module, &Module)| {
            let [Some(first), Some(second)] = shares.each_ref().map(|share| rows_of(share, one))
            else {
                return None;
            };
            Some(Pieces { name: name(one), whole: rows_of(whole, all)?, own: [first, second] })
        };
        all.iter().zip(&one).filter_map(piece).collect()
    }

    /// The machines have together what one alone has, in rows or in columns: each number once, or twice
    /// where `is_common`. Whether it is cut at all.
    fn check(what: &str, pieces: Pieces, cuts: [Option<&Cut>; 2], is_common: bool) -> bool {
        let Pieces { whole, own, .. } = pieces;
        let [Some(first), Some(second)] = cuts else {
            assert!(own.iter().all(|own| *own == whole), "{what}");
            return false;
        };
        match (first, second) {
            (Cut::Columns { ranges: a, .. }, Cut::Columns { ranges: b, .. }) => {
                for (row, whole) in whole.iter().enumerate() {
                    let mut joined = vec![None; whole.len()];
                    for (ranges, own) in [a, b].into_iter().zip(&own) {
                        for (col, number) in ranges.iter().cloned().flatten().zip(&own[row]) {
                            assert_eq!(joined[col].replace(*number), None, "{what}");
                        }
                    }
                    let whole = whole.iter().copied().map(Some);
                    assert!(joined.into_iter().eq(whole), "{what}");
                }
            }
            (Cut::Rows { ranges: a, .. }, Cut::Rows { ranges: b, .. }) => {
                let places = [a, b].map(|ranges| ranges.iter().cloned().flatten());
                let mut seen = vec![0; whole.len()];
                for (own, places) in own.iter().zip(places) {
                    assert_eq!(own.len(), places.clone().count(), "{what}");
                    for (row, place) in own.iter().zip(places) {
                        assert_eq!(*row, whole[place], "{what}");
                        seen[place] += 1;
                    }
                }
                let most = if is_common { 2 } else { 1 };
                assert!(seen.iter().all(|n| (1..=most).contains(n)), "{what}: {seen:?}");
            }
            _ => panic!("{what} is cut in two ways"),
        }
        true
    }

    /// In every layer of every family that can be shared, the machines have together what one alone has.
    #[test]
    fn shares_put_together_are_the_whole() {
        let mut left = Vec::new();
        for (family, names) in FAMILIES {
            let checkpoint = tiny::checkpoint(tiny::config(names[0]).unwrap(), 1).unwrap();
            let spec = crate::recipe(&checkpoint.config).unwrap();
            let Ok(shared) = spec.shared(2) else {
                left.push(*family);
                continue;
            };
            // Latents are on both, and so is what groups of heads of state spaces have in common.
            let has_latents = spec.mixers().any(|mixer| matches!(mixer, Mixer::Latent(_)));
            let is_common = spec
                .mixers()
                .any(|mixer| matches!(mixer, Mixer::Mamba2(mamba) if mamba.shape.groups == 1));
            let kept = [shared.kv_bytes_per_block(), spec.kv_bytes_per_block()];
            assert!(has_latents || kept[0] * 2 == kept[1], "{family}: {kept:?}");
            let kept = [shared.state_bytes(), spec.state_bytes()];
            assert!(is_common || kept[0] * 2 == kept[1], "{family}: {kept:?}");
            let whole = Loader::new(&spec, &checkpoint).unwrap();
            let shares = [0, 1].map(|rank| {
                Loader::of_share(&spec, &checkpoint, Share { rank, ranks: 2 }).unwrap()
            });
            let mut n_cut = 0;
            for pieces in pieces(&whole, &shares) {
                let what = format!("{family}: {}", pieces.name);
                let cuts = shares.each_ref().map(|share| share.cut(&pieces.name));
                n_cut += usize::from(check(&what, pieces, cuts, is_common));
            }
            n_cut += check_latents(family, &whole, &shares);
            n_cut += check_experts(family, &whole, &shares);
            // Mixers and feed-forward layers, an entrance and an exit each.
            let n_branches: usize = spec.layers.iter().map(|layer| layer.branches().count()).sum();
            assert!(n_cut >= 2 * n_branches, "{family}: {n_cut} of {n_branches}");
        }
        // By the gate that looks at all of its columns.
        assert_eq!(left, ["gemma3n"]);
    }

    /// The heads of one machine after those of the other. How many projections there are.
    fn check_latents(family: &str, whole: &Loader<'_>, shares: &[Loader<'_>; 2]) -> usize {
        let ups = |loader: &Loader<'_>| -> Vec<_> {
            let up = |module| match module {
                Module::LatentUp(up) => Some(loader.latent_up(&up).unwrap()),
                _ => None,
            };
            loader.spec().modules().into_iter().filter_map(up).collect()
        };
        let (whole, [first, second]) = (ups(whole), shares.each_ref().map(ups));
        for ((whole, first), second) in whole.iter().zip(&first).zip(&second) {
            let joined = [rows(&first.keys), rows(&second.keys)].concat();
            assert_eq!(joined, rows(&whole.keys), "{family}");
            let joined = [rows(&first.values), rows(&second.values)].concat();
            assert_eq!(joined, rows(&whole.values), "{family}");
        }
        2 * whole.len()
    }

    /// A part of every row of experts, or of their rows. How many projections there are.
    fn check_experts(family: &str, whole: &Loader<'_>, shares: &[Loader<'_>; 2]) -> usize {
        let (all, ones) = (experts(whole), experts(&shares[0]));
        for (all, one) in all.iter().zip(&ones) {
            let whole = whole.experts(all).unwrap();
            let own = shares.each_ref().map(|share| share.experts(one).unwrap());
            for (i, whole) in whole.iter().enumerate() {
                let [a, b] = [0, 1].map(|rank| rows(&own[rank][i..=i]));
                let joined: Vec<Vec<f32>> = match one.is_down() {
                    true => a.iter().zip(&b).map(|(a, b)| [&a[..], b].concat()).collect(),
                    false => [a, b].concat(),
                };
                assert_eq!(joined, rows(std::slice::from_ref(whole)), "{family}: {one:?}");
            }
        }
        all.len()
    }

    /// As gpt-oss is published: a machine has some pairs of every expert, and their biases.
    #[test]
    fn rows_that_take_turns_are_shared_in_pairs() {
        for fixture in ["gpt_oss", "gpt_oss_mxfp4"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(fixture);
            let checkpoint = Checkpoint::open(&folder).unwrap();
            let spec = crate::recipe(&checkpoint.config).unwrap();
            let entrance = |loader: &Loader<'_>| {
                let all = experts(loader);
                let find = |name| all.iter().find(|experts| experts.projection == name).unwrap();
                let found = loader.entrance(Some(find("gate_proj")), find("up_proj")).unwrap();
                assert_eq!(found.rows, backend::GateUpRows::Interleaved);
                (rows(&found.weight), found.bias.unwrap(), all[0].n)
            };
            let (whole, bias, n) = entrance(&Loader::new(&spec, &checkpoint).unwrap());
            let each = whole.len() / n;
            for rank in [0, 1] {
                let share = Share { rank, ranks: 2 };
                let loader = Loader::of_share(&spec, &checkpoint, share).unwrap();
                let (own, own_bias, _) = entrance(&loader);
                let half = each / 2;
                for expert in 0..n {
                    let (here, there) = (expert * half, expert * each + rank * half);
                    let what = format!("{fixture}, expert {expert} of {share:?}");
                    assert_eq!(own[here..][..half], whole[there..][..half], "{what}");
                    assert_eq!(own_bias[here..][..half], bias[there..][..half], "{what}");
                }
                assert_eq!((own.len(), own_bias.len()), (n * half, n * half));
                // Blocks of 32 columns are not cut through.
                let down = experts(&loader).into_iter().find(ExpertLinear::is_down).unwrap();
                assert_eq!(loader.experts(&down).is_ok(), fixture == "gpt_oss");
            }
        }
    }

    /// Norms go over as many machines as have columns of what they norm.
    #[test]
    fn norms_over_what_is_shared_go_over_machines() {
        let over = |family: &str, more: serde_json::Value, ranks, name: &str| {
            let mut config = tiny::config(family).unwrap();
            config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let spec = crate::recipe(&config).unwrap();
            spec.shared(ranks).unwrap();
            spec.cuts(Share { rank: 0, ranks }).norm_over(&format!("model.layers.0.{name}"))
        };
        let none = || json!({});
        assert_eq!(over("olmo2", none(), 4, "self_attn.q_norm"), 4);
        assert_eq!(over("olmo2", none(), 4, "self_attn.k_norm"), 4);
        assert_eq!(over("minimax_m2", none(), 2, "self_attn.k_norm"), 2);
        assert_eq!(over("qwen3", none(), 2, "self_attn.q_norm"), 1);
        let groups = |n: usize| json!({"n_groups": n});
        assert_eq!(over("mamba2", groups(2), 2, "mixer.norm"), 1);
        assert_eq!(over("mamba2", groups(1), 2, "mixer.norm"), 2);
        assert_eq!(over("mamba2", groups(2), 4, "mixer.norm"), 2);
    }

    #[test]
    fn what_cannot_be_shared_is_said() {
        let error = |name: &str, more: serde_json::Value, ranks| {
            let mut config = tiny::config(name).unwrap();
            config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let spec = crate::recipe(&config).unwrap();
            spec.shared(ranks).unwrap_err().to_string()
        };
        let none = || json!({});
        let said = error("llama", none(), 3);
        assert!(said.starts_with("3 machines cannot share") && said.contains("4 heads"), "{said}");
        for (name, more, ranks, what) in [
            (
                "llama",
                json!({"num_attention_heads": 6, "num_key_value_heads": 3}),
                2,
                "its 3 heads of keys and values",
            ),
            ("llama", json!({"intermediate_size": 97}), 2, "its 97 columns of feed-forward layers"),
            ("qwen3_next", none(), 8, "its 4 heads of values with a state"),
            (
                "qwen3_next",
                json!({"linear_num_key_heads": 3, "linear_num_value_heads": 6}),
                2,
                "its 3 heads of keys with a state",
            ),
            ("mamba2", json!({"n_groups": 1, "num_heads": 3}), 2, "its 3 heads of state spaces"),
            ("mamba2", json!({"n_groups": 3, "num_heads": 6}), 2, "its 3 groups of heads"),
            ("lfm2", none(), 3, "its 64 columns of convolutions"),
            ("deepseek_v3", none(), 3, "its 4 heads of latent attention"),
            ("qwen3_moe", json!({"moe_intermediate_size": 33}), 2, "its 33 columns of experts"),
            ("gemma3n", none(), 2, "a gate that looks at all of its 96 columns"),
        ] {
            let said = error(name, more, ranks);
            assert!(said.contains(&format!("{what} cannot be split over them")), "{said}");
        }
    }
}
