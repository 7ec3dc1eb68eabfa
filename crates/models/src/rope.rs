//! From the many spellings of rotary position embedding in configs to a table of frequencies.
//!
//! Reads both the old form (`rope_theta`, `rope_scaling`) and the new one (`rope_parameters`, flat or
//! one per layer type). The sine and cosine of a position are the device's business.

use std::f64::consts::PI;

use backend::{QueryGrowth, Rope, RopeLayout};
use serde_json::{Map, Value};

use crate::Error;
use crate::config::{Config, finite, whole, wrong};

/// The base when nothing is said.
const DEFAULT_THETA: f64 = 10_000.0;

/// The sizes a rotation depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RopeShape {
    /// Columns of one head.
    pub(crate) head_dim: usize,
    /// Positions the model can tell apart.
    pub(crate) max_positions: usize,
    /// Positions that will be served: a scaling that has a short and a long form chooses by it.
    pub(crate) context: usize,
}

/// One rotation as the config describes it, old and new spellings merged.
#[derive(Clone, Debug)]
pub(crate) struct RopeParams {
    /// The key the values were found under, for messages.
    path: &'static str,
    values: Map<String, Value>,
}

impl RopeParams {
    /// The parameters for layers of type `layer_type` (which matters only where the config has one
    /// set per type).
    pub(crate) fn read(c: &Config, layer_type: &str) -> Result<RopeParams, Error> {
        let mut params = RopeParams::nested(c, layer_type)?;
        params.overlay(c, "rope_scaling")?;
        for key in ["rope_theta", "partial_rotary_factor"] {
            params.or(key, c.get(key));
        }
        if let Some(original) = c.get("original_max_position_embeddings") {
            params.values.insert("original_max_position_embeddings".into(), original.clone());
        }
        if c.is_on("rope_interleaved")? || c.is_on("rope_traditional")? {
            params.values.insert("interleaved".into(), true.into());
        }
        Ok(params)
    }

    /// The parameters for layers of type `layer_type`, to which `rope_scaling` does not apply.
    pub(crate) fn unscaled(c: &Config, layer_type: &str) -> Result<RopeParams, Error> {
        let mut params = RopeParams::nested(c, layer_type)?;
        params.or("rope_theta", c.get("rope_theta"));
        Ok(params)
    }

    /// What `rope_parameters` says about `layer_type`; empty where it says nothing.
    pub(crate) fn nested(c: &Config, layer_type: &str) -> Result<RopeParams, Error> {
        let path = "rope_parameters";
        let mut params = RopeParams { path, values: Map::new() };
        let Some(value) = c.get(path) else { return Ok(params) };
        let map = value.as_object().ok_or_else(|| wrong(path, "an object", value))?;
        let is_nested = map.values().any(Value::is_object);
        let chosen = if is_nested { map.get(layer_type) } else { Some(value) };
        match chosen {
            Some(Value::Object(map)) => params.values = map.clone(),
            Some(Value::Null) => {}
            Some(other) => return Err(wrong(path, "objects", other)),
            None => {
                return Err(Error::config(path, format!("has no entry for {layer_type} layers")));
            }
        }
        Ok(params)
    }

    /// Lets the object under `key`, if there is one, override what is known so far.
    pub(crate) fn overlay(&mut self, c: &Config, key: &'static str) -> Result<(), Error> {
        match c.get(key) {
            None => Ok(()),
            Some(Value::Object(map)) => {
                self.path = key;
                self.values.extend(map.clone());
                Ok(())
            }
            Some(other) => Err(wrong(key, "an object or null", other)),
        }
    }

    /// Sets `key` unless it is known already.
    pub(crate) fn or(&mut self, key: &str, value: Option<&Value>) {
        if let Some(value) = value
            && self.get(key).is_none()
        {
            self.values.insert(key.into(), value.clone());
        }
    }

    /// The frequencies and what goes with them.
    pub(crate) fn rope(&self, shape: RopeShape) -> Result<Rope, Error> {
        let kind = self.rope_type()?;
        let dim = match kind {
            "proportional" => shape.head_dim,
            _ => self.dim(shape.head_dim)?,
        };
        let plain = self.plain(dim)?;
        let (inv_freq, attention_factor) = match kind {
            "default" => (plain, 1.0),
            "dynamic" => (self.dynamic(plain, shape)?, 1.0),
            "linear" => (self.linear(plain)?, 1.0),
            "proportional" => (self.proportional(plain)?, 1.0),
            "llama3" => (self.llama3(plain, shape)?, 1.0),
            "yarn" => self.yarn(plain, dim, shape)?,
            "longrope" => self.longrope(plain, shape)?,
            "explicit" => (self.divided(plain, "factors")?, 1.0),
            other => {
                let problem = format!(
                    "is \"{other}\"; supported: default, linear, dynamic, llama3, yarn, longrope, \
                     proportional"
                );
                return Err(Error::config(self.key("rope_type"), problem));
            }
        };
        let interleaved = self.get("interleaved").is_some();
        Ok(Rope {
            inv_freq: inv_freq.into_iter().map(|f| f as f32).collect(),
            attention_factor: attention_factor as f32,
            layout: if interleaved { RopeLayout::Interleaved } else { RopeLayout::Halves },
        })
    }

    /// Columns of a head that rotate. An odd count is rounded up to whole pairs.
    fn dim(&self, head_dim: usize) -> Result<usize, Error> {
        let part = self.number("partial_rotary_factor")?.unwrap_or(1.0);
        if part > 0.0 && part <= 1.0 {
            let dim = (head_dim as f64 * part) as usize;
            if dim > 0 && dim.next_multiple_of(2) <= head_dim {
                return Ok(dim);
            }
        }
        let problem = format!("is {part}: it does not rotate pairs of the {head_dim} columns");
        Err(Error::config(self.key("partial_rotary_factor"), problem))
    }

    fn rope_type(&self) -> Result<&str, Error> {
        let key = if self.get("rope_type").is_some() { "rope_type" } else { "type" };
        let found = match self.get(key) {
            None => "default",
            Some(value) => {
                value.as_str().ok_or_else(|| wrong(&self.key(key), "a string", value))?
            }
        };
        // Early Phi-3 files called their long and short factors by other names.
        match found {
            "su" => Ok("longrope"),
            "yarn" if self.get("short_factor").is_some() => Ok("longrope"),
            other => Ok(other),
        }
    }

    /// Radians per position without any scaling.
    fn plain(&self, dim: usize) -> Result<Vec<f64>, Error> {
        let theta = self.theta()?;
        let pairs = dim.div_ceil(2);
        Ok((0..pairs).map(|i| theta.powf(-((2 * i) as f64) / dim as f64)).collect())
    }

    fn theta(&self) -> Result<f64, Error> {
        let theta = self.number("rope_theta")?.unwrap_or(DEFAULT_THETA);
        if theta > 1.0 {
            return Ok(theta);
        }
        Err(Error::config(self.key("rope_theta"), format!("is {theta}, but must be above 1")))
    }

    /// Pairs and waves are those of the whole head, but only the first pairs turn: as many as the
    /// factor says. So pairs lie half a head apart, unlike those of a partial rotation.
    fn proportional(&self, mut freq: Vec<f64>) -> Result<Vec<f64>, Error> {
        let part = self.number("partial_rotary_factor")?.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&part) {
            let problem = format!("is {part}, but must be from 0 to 1");
            return Err(Error::config(self.key("partial_rotary_factor"), problem));
        }
        let factor = self.positive("factor")?.unwrap_or(1.0);
        let turning = (part * freq.len() as f64).floor() as usize;
        for (i, f) in freq.iter_mut().enumerate() {
            *f = if i < turning { *f / factor } else { 0.0 };
        }
        Ok(freq)
    }

    fn linear(&self, mut freq: Vec<f64>) -> Result<Vec<f64>, Error> {
        let factor = self.factor()?;
        freq.iter_mut().for_each(|f| *f /= factor);
        Ok(freq)
    }

    /// Hunyuan says with `alpha` by how much the base grows, once and for all. Otherwise dynamic scaling
    /// does nothing up to the trained length. Beyond it, it would rotate keys that are already cached
    /// anew with every token, which no cache survives.
    fn dynamic(&self, freq: Vec<f64>, shape: RopeShape) -> Result<Vec<f64>, Error> {
        if let Some(alpha) = self.positive("alpha")? {
            let pairs = freq.len().max(2) as f64 - 1.0;
            let shrunk = |(i, f): (usize, f64)| f * alpha.powf(-(i as f64) / pairs);
            return Ok(freq.into_iter().enumerate().map(shrunk).collect());
        }
        if shape.context <= shape.max_positions {
            return Ok(freq);
        }
        let problem = format!(
            "\"dynamic\" works up to max_position_embeddings {}; choose a context that is not larger",
            shape.max_positions
        );
        Err(Error::config(self.key("rope_type"), problem))
    }

    /// Long waves are stretched by `factor`, short ones are kept, those between are blended.
    fn llama3(&self, mut freq: Vec<f64>, shape: RopeShape) -> Result<Vec<f64>, Error> {
        let factor = self.factor()?;
        let low = self.number("low_freq_factor")?.unwrap_or(1.0);
        let high = self.number("high_freq_factor")?.unwrap_or(4.0);
        if low >= high {
            let problem = format!("is {low}, but must be below high_freq_factor {high}");
            return Err(Error::config(self.key("low_freq_factor"), problem));
        }
        let original = self.original(shape)?;
        for f in &mut freq {
            let waves = original * *f / (2.0 * PI);
            let keep = ((waves - low) / (high - low)).clamp(0.0, 1.0);
            *f = (1.0 - keep) * *f / factor + keep * *f;
        }
        Ok(freq)
    }

    /// Pairs that turn often within the trained length are kept, those that turn seldom are
    /// stretched by `factor`, with a ramp over the pairs between.
    fn yarn(
        &self,
        mut freq: Vec<f64>,
        dim: usize,
        shape: RopeShape,
    ) -> Result<(Vec<f64>, f64), Error> {
        let original = self.original(shape)?;
        let factor = match self.get("factor") {
            Some(_) => self.factor()?,
            None => shape.max_positions as f64 / original,
        };
        let theta = self.theta()?;
        let pair_turning =
            |turns: f64| dim as f64 * (original / (turns * 2.0 * PI)).ln() / (2.0 * theta.ln());
        let mut low = pair_turning(self.positive("beta_fast")?.unwrap_or(32.0));
        let mut high = pair_turning(self.positive("beta_slow")?.unwrap_or(1.0));
        if self.get("truncate").is_none_or(|v| v.as_bool() != Some(false)) {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(dim as f64 - 1.0));
        if low == high {
            high += 0.001;
        }
        for (i, f) in freq.iter_mut().enumerate() {
            let stretch = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
            *f = *f / factor * stretch + *f * (1.0 - stretch);
        }
        Ok((freq, self.yarn_attention(factor)?))
    }

    /// How queries grow, if they do.
    pub(crate) fn query_growth(&self) -> Result<Option<QueryGrowth>, Error> {
        let Some(beta) = self.number("llama_4_scaling_beta")? else { return Ok(None) };
        let key = "original_max_position_embeddings";
        let original = self.get(key).ok_or_else(|| crate::config::missing(&self.key(key)))?;
        let original = whole(&self.key(key), original, 1, 1 << 40)?;
        Ok(Some(QueryGrowth { beta: beta as f32, original }))
    }

    /// What families with latent attention multiply scores with besides: where a rotation is
    /// stretched, the square of what `mscale_all_dim` makes of the factor.
    pub(crate) fn latent_scale(&self) -> Result<f64, Error> {
        let weight = self.number("mscale_all_dim")?.unwrap_or(0.0);
        if weight == 0.0 || self.rope_type()? == "default" {
            return Ok(1.0);
        }
        Ok(mscale(self.factor()?, weight).powi(2))
    }

    fn yarn_attention(&self, factor: f64) -> Result<f64, Error> {
        let mscale = |weight: f64| mscale(factor, weight);
        if let Some(given) = self.positive("attention_factor")? {
            return Ok(given);
        }
        let non_zero = |key| Ok::<_, Error>(self.number(key)?.filter(|v| *v != 0.0));
        Ok(match (non_zero("mscale")?, non_zero("mscale_all_dim")?) {
            (Some(own), Some(all)) => mscale(own) / mscale(all),
            _ => mscale(1.0),
        })
    }

    /// One list of divisors for contexts up to the trained length, another for longer ones.
    fn longrope(&self, freq: Vec<f64>, shape: RopeShape) -> Result<(Vec<f64>, f64), Error> {
        let original = self.original(shape)?;
        let list = if shape.context as f64 > original { "long_factor" } else { "short_factor" };
        let freq = self.divided(freq, list)?;
        if let Some(given) = self.positive("attention_factor")? {
            return Ok((freq, given));
        }
        let factor = self.positive("factor")?.unwrap_or(shape.max_positions as f64 / original);
        let attention =
            if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / original.ln()).sqrt() };
        Ok((freq, attention))
    }

    /// Frequencies divided by the list under `key`, one divisor per pair.
    fn divided(&self, mut freq: Vec<f64>, key: &str) -> Result<Vec<f64>, Error> {
        let path = self.key(key);
        let list = match self.get(key) {
            None => return Err(crate::config::missing(&path)),
            Some(Value::Array(list)) => list,
            Some(other) => return Err(wrong(&path, "a list of numbers", other)),
        };
        if list.len() != freq.len() {
            let problem = format!("has {} entries, expected {}", list.len(), freq.len());
            return Err(Error::config(path, problem));
        }
        for (f, divisor) in freq.iter_mut().zip(list) {
            let divisor = finite(&path, divisor)?;
            if divisor <= 0.0 {
                return Err(Error::config(path, "has an entry that is not above 0"));
            }
            *f /= divisor;
        }
        Ok(freq)
    }

    fn factor(&self) -> Result<f64, Error> {
        self.positive("factor")?.ok_or_else(|| crate::config::missing(&self.key("factor")))
    }

    /// The length the model was first trained with.
    fn original(&self, shape: RopeShape) -> Result<f64, Error> {
        let key = "original_max_position_embeddings";
        let given = self.get(key).map(|v| whole(&self.key(key), v, 2, 1 << 40)).transpose()?;
        Ok(given.unwrap_or(shape.max_positions) as f64)
    }

    fn positive(&self, key: &str) -> Result<Option<f64>, Error> {
        match self.number(key)? {
            Some(value) if value <= 0.0 => {
                Err(Error::config(self.key(key), format!("is {value}, but must be above 0")))
            }
            other => Ok(other),
        }
    }

    fn number(&self, key: &str) -> Result<Option<f64>, Error> {
        self.get(key).map(|value| finite(&self.key(key), value)).transpose()
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }
}

/// How much longer queries and keys become where a rotation is stretched by `factor`.
fn mscale(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
}

/// Adds `rope` to the distinct rotations of a model and returns its index.
pub(crate) fn intern(ropes: &mut Vec<Rope>, rope: Rope) -> usize {
    if let Some(index) = ropes.iter().position(|known| *known == rope) {
        return index;
    }
    ropes.push(rope);
    ropes.len() - 1
}
