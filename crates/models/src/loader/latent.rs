//! The projection from latents to keys and values, from whichever way a checkpoint stores it.
//!
//! Its bytes stay where they are; whoever multiplies is told how they lie.

use backend::{Latent, LatentOrder};
use weights::Matrix;

use super::Loader;
use crate::Error;
use crate::modules::LatentUp;
use crate::share::Run;

/// What makes keys and values of a latent, each the rows of one head after those of another.
pub(crate) struct LatentMatrices {
    pub(crate) keys: Vec<Matrix>,
    /// How those of the keys lie.
    pub(crate) order: LatentOrder,
    pub(crate) values: Vec<Matrix>,
}

impl LatentMatrices {
    /// Bytes of all of them as stored.
    pub(super) fn n_bytes(&self) -> u64 {
        self.keys.iter().chain(&self.values).map(|matrix| matrix.n_bytes() as u64).sum()
    }
}

impl Loader<'_> {
    /// The names under which the projection is stored.
    pub(super) fn stored_latent_up(&self, up: &LatentUp) -> Vec<String> {
        if self.is_split(up) { vec![up.keys(), up.values()] } else { vec![up.joined()] }
    }

    fn is_split(&self, up: &LatentUp) -> bool {
        self.checkpoint.contains(&format!("{}.weight", up.keys()))
    }

    /// The parts of the projection from a latent, as many heads of it as this machine has. Shares the
    /// bytes of what is stored.
    pub(crate) fn latent_up(&self, up: &LatentUp) -> Result<LatentMatrices, Error> {
        let Latent { heads, rank, plain, v_dim, .. } = up.shape;
        let share = self.share();
        let all = heads * share.ranks;
        if self.is_split(up) {
            let own = |name: &str, rows, cols| -> Result<Vec<Matrix>, Error> {
                let stack = self.checkpoint.experts(name, all, rows, cols)?;
                Ok(vec![stack.rows_range(share.of_run(Run { n: all, each: rows }))])
            };
            let keys = own(&up.keys(), rank, plain)?;
            let values = own(&up.values(), v_dim, rank)?;
            return Ok(LatentMatrices { keys, order: LatentOrder::ByOutput, values });
        }
        let joined = self.checkpoint.matrix(&up.joined(), all * up.rows_per_head(), rank)?;
        let cut = |first: usize, n: usize| {
            let start = |head: usize| head * up.rows_per_head() + first;
            share.of(all).map(|head| joined.rows_range(start(head)..start(head) + n)).collect()
        };
        let (keys, values) = (cut(0, plain), cut(plain, v_dim));
        Ok(LatentMatrices { keys, order: LatentOrder::ByInput, values })
    }
}
