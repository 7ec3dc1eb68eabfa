//! What a config says about the packing of each module: `quantization` as MLX writes it, its older
//! copy `quantization_config`, and the parts of Hugging Face's `quantization_config` we follow.
//!
//! Nothing here looks at a tensor. What is malformed is kept as such and becomes an error when a
//! module that depends on it is asked for.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::{
    checkpoint::canonical,
    scheme::Scheme,
    spelling::{common, is_one_expert, whole_or_parts},
};

/// The quantisation section of a config.
#[derive(Debug)]
pub(crate) struct Quantization {
    /// For modules that no override names.
    default: Default,
    /// By canonical module name; the key as written comes along for messages.
    overrides: HashMap<String, (String, Rule)>,
    /// The same by what all spellings of a module have in common. One for all experts goes before those
    /// of single ones.
    respelled: HashMap<String, (String, Rule)>,
    /// `weight_block_size` of FP8 checkpoints: rows and columns.
    pub(crate) fp8_block: (u32, u32),
}

/// What holds for a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Packed like this.
    Packed(Scheme),
    /// Stored in plain floats.
    Off,
    /// The config's value makes no sense: what was expected there.
    Malformed(String),
}

#[derive(Debug, PartialEq, Eq)]
enum Default {
    None,
    Rule(Rule),
    /// Packed by a method that only Hugging Face's own code reads.
    Foreign(String),
}

/// Where a section says how large the blocks of 8-bit floats are.
fn fp8_block(map: &Map<String, Value>) -> Option<&Value> {
    map.get("weight_block_size").filter(|size| !size.is_null()).or_else(|| {
        let groups = map.get("config_groups")?.as_object()?;
        groups.values().find_map(|group| group.get("weights")?.get("block_structure"))
    })
}

impl Quantization {
    /// Reads the section of `config`, or of its `text_config`.
    pub(crate) fn of(config: &Value) -> Quantization {
        let section =
            [Some(config), config.get("text_config")].into_iter().flatten().find_map(|c| {
                let section = c.get("quantization").filter(|v| !v.is_null());
                section.or_else(|| c.get("quantization_config").filter(|v| !v.is_null()))
            });
        let mut this = Quantization {
            default: Default::None,
            overrides: HashMap::new(),
            respelled: HashMap::new(),
            fp8_block: (128, 128),
        };
        match section {
            None => {}
            Some(Value::Object(map)) => this.read(map),
            Some(_) => this.default = Default::Rule(Rule::Malformed("an object".into())),
        }
        this
    }

    fn read(&mut self, map: &Map<String, Value>) {
        if let Some([rows, cols]) = fp8_block(map).and_then(Value::as_array).map(Vec::as_slice)
            && let (Some(rows @ 1..), Some(cols @ 1..)) = (rows.as_u64(), cols.as_u64())
        {
            self.fp8_block = (rows.min(1 << 31) as u32, cols.min(1 << 31) as u32);
        }
        match map.get("quant_method").and_then(Value::as_str) {
            None => {}
            Some("mxfp4") => {
                self.default = Default::Rule(Rule::Packed(Scheme::Mxfp4));
                return;
            }
            Some(method) => {
                self.default = Default::Foreign(method.to_owned());
                return;
            }
        }
        self.default = Default::Rule(match Scheme::from_config(map) {
            Ok(scheme) => Rule::Packed(scheme),
            Err(expected) => Rule::Malformed(expected),
        });
        for (key, value) in map {
            let rule = match value {
                Value::Bool(false) => Rule::Off,
                Value::Bool(true) => match &self.default {
                    Default::Rule(rule) => rule.clone(),
                    Default::None | Default::Foreign(_) => continue,
                },
                Value::Object(map) => match Scheme::from_config(map) {
                    Ok(scheme) => Rule::Packed(scheme),
                    Err(expected) => Rule::Malformed(expected),
                },
                _ => continue,
            };
            let entry = self.respelled.entry(common(key));
            let entry = entry.or_insert_with(|| (key.clone(), rule.clone()));
            if is_one_expert(&entry.0) && !is_one_expert(key) {
                *entry = (key.clone(), rule.clone());
            }
            self.overrides.insert(canonical(key).to_owned(), (key.clone(), rule));
        }
    }

    /// The override for a module, whatever prefix either name has, and whoever spelled it.
    pub(crate) fn override_of(&self, module: &str) -> Option<&Rule> {
        if self.overrides.is_empty() {
            return None;
        }
        if let Some((_, rule)) = self.overrides.get(canonical(module)) {
            return Some(rule);
        }
        // What holds for one expert says nothing about another one, but it does about a stack.
        let is_one = is_one_expert(module);
        let rule = |module: &str| {
            let (key, rule) = self.respelled.get(module)?;
            (!is_one || !is_one_expert(key)).then_some(rule)
        };
        let module = common(module);
        let others = || whole_or_parts(&module).into_iter();
        rule(&module).or_else(|| others().find_map(|other| rule(&other)))
    }

    /// What holds for a module whose tensors show that it is packed; `None` where the config says
    /// nothing at all about packings.
    pub(crate) fn rule(&self, module: &str) -> Option<&Rule> {
        self.override_of(module).or(match &self.default {
            Default::Rule(rule) => Some(rule),
            Default::None | Default::Foreign(_) => None,
        })
    }

    /// The method only Hugging Face's own code reads, if the config names one.
    pub(crate) fn foreign(&self) -> Option<&str> {
        match &self.default {
            Default::Foreign(method) => Some(method),
            Default::None | Default::Rule(_) => None,
        }
    }

    /// Whether the config describes MLX packings.
    pub(crate) fn is_mlx(&self) -> bool {
        matches!(self.default, Default::Rule(_))
    }

    /// A warning for each override whose module is none of `modules`, in any spelling.
    pub(crate) fn unmatched<'a>(&self, modules: impl Iterator<Item = &'a str>) -> Vec<String> {
        if self.overrides.is_empty() {
            return Vec::new();
        }
        let modules: HashSet<String> = modules.map(common).collect();
        let is_there = |key: &str| {
            let module = common(key);
            let others = whole_or_parts(&module);
            modules.contains(&module) || others.iter().any(|other| modules.contains(other))
        };
        let unmatched = self.overrides.values().filter(|(key, _)| !is_there(key));
        let warning = |(key, _): &(String, Rule)| {
            format!("the quantization override for {key} matches no module and is ignored")
        };
        let mut warnings: Vec<String> = unmatched.map(warning).collect();
        warnings.sort();
        warnings
    }
}
