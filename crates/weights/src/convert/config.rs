//! The config.json of a converted model: the source's, with what the conversion changed.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::{Checkpoint, Float, Scheme};

use super::plan::{Becomes, Plan};

/// The config that describes what `plan` writes.
pub(super) fn config(src: &Checkpoint, plan: &Plan, float: Float) -> Value {
    let mut config = src.config.as_object().cloned().unwrap_or_default();
    strip(&mut config);
    if let Some(Value::Object(nested)) = config.get_mut("text_config") {
        strip(nested);
    }
    let dtype = match float {
        Float::F32 => "float32",
        Float::F16 => "float16",
        Float::Bf16 => "bfloat16",
    };
    let key = if config.contains_key("dtype") { "dtype" } else { "torch_dtype" };
    config.insert(key.into(), dtype.into());
    if let Some(section) = section(plan) {
        // Older readers look for the copy.
        config.insert("quantization".into(), section.clone());
        config.insert("quantization_config".into(), section);
    }
    Value::Object(config)
}

/// Removes what no longer holds: the order of rotary rows, and how the source was packed.
fn strip(config: &mut Map<String, Value>) {
    for key in ["rope_interleaved", "quantization", "quantization_config"] {
        config.shift_remove(key);
    }
}

/// The most common scheme, and an entry for each module that has another.
fn section(plan: &Plan) -> Option<Value> {
    let packed = || {
        plan.items.iter().filter_map(|item| match item.becomes {
            Becomes::Packed(scheme, _) => Some((&item.name, scheme)),
            Becomes::Floats(_) => None,
        })
    };
    let mut counts: HashMap<Scheme, usize> = HashMap::new();
    packed().for_each(|(_, scheme)| *counts.entry(scheme).or_default() += 1);
    let (&default, _) =
        counts.iter().max_by_key(|(scheme, count)| (**count, scheme.bits(), scheme.group()))?;
    let mut section = default.to_config();
    if let Value::Object(map) = &mut section {
        for (name, scheme) in packed().filter(|(_, scheme)| *scheme != default) {
            map.insert(name.clone(), scheme.to_config());
        }
    }
    Some(section)
}
