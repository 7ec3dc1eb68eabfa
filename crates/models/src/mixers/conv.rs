//! Depthwise causal convolutions as checkpoints have them: the taps of each column together, whatever
//! the order of the axes of length one.
//!
//! No mixer of its own: what mixers that have one share.

use crate::Error;
use crate::loader::Loader;
use crate::modules::Module;
use crate::recipe::Bias;
use crate::share::{Cuts, Run};

/// A convolution by name.
pub(crate) struct Conv {
    /// Name without `.weight`.
    pub(crate) name: String,
    /// Columns that are convolved.
    pub(super) cols: usize,
    /// Rows that are read.
    pub(super) taps: usize,
    /// Whether there is a `.bias` of `cols` numbers.
    pub(super) bias: Bias,
}

impl Conv {
    /// The full name of the taps.
    pub(crate) fn weight_name(&self) -> String {
        format!("{}.weight", self.name)
    }

    fn bias_name(&self) -> String {
        format!("{}.bias", self.name)
    }

    pub(super) fn modules(&self) -> Vec<Module> {
        let shape = vec![self.cols, 1, self.taps];
        let taps = Module::Vector { name: self.weight_name(), shape };
        let bias = Module::Vector { name: self.bias_name(), shape: vec![self.cols] };
        [taps].into_iter().chain((self.bias == Bias::Stored).then_some(bias)).collect()
    }

    /// Takes a machine's share of each part of the columns, with all of their taps.
    pub(super) fn cut(&self, parts: &[Run], cuts: &mut Cuts) {
        let taps = |part: &Run| Run { n: part.n, each: part.each * self.taps };
        cuts.rows(self.weight_name(), &parts.iter().map(taps).collect::<Vec<_>>());
        cuts.rows(self.bias_name(), parts);
    }
}

/// The taps row by row, the oldest row first, and the biases.
pub(super) fn load(loader: &Loader, conv: &Conv) -> Result<(Vec<f32>, Option<Vec<f32>>), Error> {
    let (cols, taps) = (conv.cols, conv.taps);
    let stored = loader.numbers(&conv.weight_name(), cols * taps)?;
    let bias = match conv.bias {
        Bias::Absent => None,
        Bias::Stored => Some(loader.numbers(&conv.bias_name(), cols)?),
    };
    Ok(((0..taps).flat_map(|t| stored.iter().skip(t).step_by(taps).copied()).collect(), bias))
}
