//! The packings MLX can make, as a config names them.

use serde_json::{Map, Value, json};

use crate::{Float, Packing};

/// One of MLX's quantisation modes with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Unsigned integers with a scale and a bias per group.
    Affine {
        /// 2, 3, 4, 5, 6 or 8.
        bits: u8,
        /// 32, 64 or 128.
        group: u16,
    },
    /// E2M1 with a power of two per 32.
    Mxfp4,
    /// E4M3 with a power of two per 32.
    Mxfp8,
    /// E2M1 with an E4M3 scale per 16.
    Nvfp4,
}

impl Scheme {
    /// The scheme that `mode`, `bits` and `group_size` name together; what is `None` takes MLX's
    /// default for the mode. The error says what would be right.
    pub fn new(mode: &str, bits: Option<u64>, group: Option<u64>) -> Result<Scheme, String> {
        let (scheme, fixed) = match mode {
            "affine" => {
                let (bits, group) = (bits.unwrap_or(4), group.unwrap_or(64));
                if !matches!(bits, 2..=6 | 8) {
                    return Err(format!("2, 3, 4, 5, 6 or 8 bits, not {bits}"));
                }
                if !matches!(group, 32 | 64 | 128) {
                    return Err(format!("a group size of 32, 64 or 128, not {group}"));
                }
                return Ok(Scheme::Affine { bits: bits as u8, group: group as u16 });
            }
            "mxfp4" => (Scheme::Mxfp4, (4, 32)),
            "mxfp8" => (Scheme::Mxfp8, (8, 32)),
            "nvfp4" => (Scheme::Nvfp4, (4, 16)),
            _ => return Err(format!("mode affine, mxfp4, mxfp8 or nvfp4, not {mode}")),
        };
        if bits.is_some_and(|b| b != fixed.0) || group.is_some_and(|g| g != fixed.1) {
            let (bits, group) = fixed;
            return Err(format!("{bits} bits and a group size of {group} for mode {mode}"));
        }
        Ok(scheme)
    }

    /// Reads the object MLX writes into a config.
    pub(crate) fn from_config(map: &Map<String, Value>) -> Result<Scheme, String> {
        let number = |key: &str| match map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or(format!("a number as {key}")),
        };
        let mode = match map.get("mode") {
            None | Some(Value::Null) => "affine",
            Some(mode) => mode.as_str().ok_or("a string as mode")?,
        };
        Scheme::new(mode, number("bits")?, number("group_size")?)
    }

    /// The object MLX writes into a config.
    pub(crate) fn to_config(self) -> Value {
        let mode = match self {
            Scheme::Affine { .. } => "affine",
            Scheme::Mxfp4 => "mxfp4",
            Scheme::Mxfp8 => "mxfp8",
            Scheme::Nvfp4 => "nvfp4",
        };
        json!({"group_size": self.group(), "bits": self.bits(), "mode": mode})
    }

    /// Bits of one element.
    pub fn bits(self) -> usize {
        match self {
            Scheme::Affine { bits, .. } => bits as usize,
            Scheme::Mxfp4 | Scheme::Nvfp4 => 4,
            Scheme::Mxfp8 => 8,
        }
    }

    /// Elements that share a scale.
    pub fn group(self) -> usize {
        match self {
            Scheme::Affine { group, .. } => group as usize,
            Scheme::Mxfp4 | Scheme::Mxfp8 => 32,
            Scheme::Nvfp4 => 16,
        }
    }

    /// The packing, with affine scales and biases stored as `scale`.
    pub fn packing(self, scale: Float) -> Packing {
        match self {
            Scheme::Affine { bits, group } => Packing::Affine { bits, group, scale },
            Scheme::Mxfp4 => Packing::Mxfp4,
            Scheme::Mxfp8 => Packing::Mxfp8,
            Scheme::Nvfp4 => Packing::Nvfp4,
        }
    }
}
