//! What this build runs, as a table: families, their names in every format, what their layers are made
//! of and what these remember. All of it follows from the list of families and their tiny models.
//!
//! No prose about models, and nothing that a family would have to say twice.

use std::collections::BTreeSet;
use std::fmt::Debug;

use backend::KvFormat;

use crate::plan::Cache;
use crate::recipe::{Branch, Ffn, Mixer, ModelSpec};
use crate::{Error, FAMILIES, recipe, tiny};

/// A family as a reader of tables sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Support {
    /// Its name, which is that of its file.
    pub family: &'static str,
    /// Every `model_type` it answers to.
    pub model_types: &'static [&'static str],
    /// What files of llama.cpp call it; empty where they are not read.
    pub gguf: Vec<&'static str>,
    /// Kinds of steps of its layers, as a small one has them.
    pub layers: BTreeSet<String>,
    /// What they remember of a sequence.
    pub caches: BTreeSet<&'static str>,
}

/// All families, by name.
///
/// # Errors
/// None but a mistake of ours in a family's tiny config.
pub fn support() -> Result<Vec<Support>, Error> {
    FAMILIES.iter().map(|(family, model_types)| of(family, model_types)).collect()
}

/// [`support`] in Markdown, one row per family. It is a part of docs/models.md.
///
/// # Errors
/// As [`support`].
pub fn support_table() -> Result<String, Error> {
    let mut table = String::from(
        "| family | `model_type` | GGUF | layers | remembers |\n|---|---|---|---|---|\n",
    );
    let code = |names: &[&str]| {
        names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    for Support { family, model_types, gguf, layers, caches } in support()? {
        let layers: Vec<String> = layers.into_iter().collect();
        let caches: Vec<&str> = caches.into_iter().collect();
        let (types, gguf) = (code(model_types), code(&gguf));
        let (layers, caches) = (layers.join(", "), caches.join(", "));
        table += &format!("| {family} | {types} | {gguf} | {layers} | {caches} |\n");
    }
    Ok(table)
}

fn of(family: &'static str, model_types: &'static [&'static str]) -> Result<Support, Error> {
    let architectures = weights::gguf::architectures();
    let gguf = architectures.filter(|(_, model_type)| model_types.contains(model_type));
    let mut support = Support {
        family,
        model_types,
        gguf: gguf.map(|(name, _)| name).collect(),
        layers: BTreeSet::new(),
        caches: BTreeSet::new(),
    };
    if let Some(config) = model_types.iter().find_map(|model_type| tiny::config(model_type)) {
        support.look_at(&recipe(&config)?);
    }
    Ok(support)
}

impl Support {
    fn look_at(&mut self, spec: &ModelSpec) {
        for branch in spec.layers.iter().flat_map(|layer| layer.branches()) {
            match branch {
                Branch::Mixer(mixer) => self.look_at_mixer(mixer),
                Branch::Ffn(ffn) => self.look_at_ffn(ffn),
            }
        }
    }

    fn look_at_mixer(&mut self, mixer: &Mixer) {
        let kind = variant(mixer);
        // Any format will do: only the kind of cache is looked at.
        let (layer, cache) = match mixer.cache(KvFormat::F16) {
            Cache::Pages { window: Some(_), .. } => (format!("sliding {kind}"), "pages"),
            Cache::Pages { window: None, .. } => (kind, "pages"),
            Cache::Borrowed { window: Some(_), .. } => {
                (format!("sliding {kind}"), "another's pages")
            }
            Cache::Borrowed { window: None, .. } => (kind, "another's pages"),
            Cache::State { .. } => (kind, "a state"),
        };
        self.layers.insert(layer);
        self.caches.insert(cache);
    }

    fn look_at_ffn(&mut self, ffn: &Ffn) {
        self.layers.insert(match ffn {
            Ffn::Moe(_) => "experts".to_owned(),
            Ffn::Twin(_) => "experts beside a gated feed-forward".to_owned(),
            Ffn::Gated(_) | Ffn::Plain(_) => format!("{} feed-forward", variant(ffn)),
            other => variant(other),
        });
    }
}

/// The name of an enum's variant in words: `GatedDelta(…)` is "gated delta".
fn variant(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    let mut words = String::new();
    for c in text[..end].chars() {
        if c.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
    }
    words
}
