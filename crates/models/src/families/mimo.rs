//! MiMo-7B: Qwen2 with a draft head, which is ignored.

pub(super) use super::qwen2::tiny;
use super::*;

pub(super) fn recipe(c: &Config, context: Option<usize>) -> Result<ModelSpec, Error> {
    let mut spec = super::qwen2::recipe(c, context)?;
    spec.family = "mimo";
    Ok(spec)
}
