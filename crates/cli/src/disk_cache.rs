//! Where a server keeps its prefix cache on disk, how much of it, and what tells models apart there.
//!
//! Not the cache: that is the engine's.

use std::path::PathBuf;

use engine::DiskOptions;
use models::ModelSpec;
use sha2::{Digest, Sha256};
use weights::Checkpoint;

use crate::env::Environment;
use crate::machine::{self, human_bytes};
use crate::size::Size;

/// What a cache takes at most when nobody says how much.
const DEFAULT_MAX: u64 = 10 << 30;
/// What of the free space it takes at most then: one part in so many.
const DEFAULT_SHARE: u64 = 10;
/// What is always left free.
const MIN_FREE: u64 = 2 << 30;

/// The choices.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DiskArgs {
    /// Disk space for the prefix cache of all models together, such as 20GiB, or a share of what is
    /// free, such as 5%; 2 GiB are always left free [default: 10%, at most 10GiB]
    #[arg(long, value_name = "SIZE")]
    cache_disk_max: Option<Size>,
    /// Folder of that cache. It holds what users wrote, in a form that only the model reads
    /// [default: kv in Hearth's own cache]
    #[arg(long, value_name = "DIR")]
    cache_disk_dir: Option<PathBuf>,
    /// Keep the prefix cache in memory only
    #[arg(long, conflicts_with_all = ["cache_disk_max", "cache_disk_dir"])]
    no_disk_cache: bool,
}

/// A folder and a budget, for whatever models are served.
#[derive(Clone, Debug)]
pub(crate) struct DiskCache {
    pub(crate) dir: PathBuf,
    pub(crate) max_bytes: u64,
}

impl DiskArgs {
    /// What was asked for. `None`: no cache on disk.
    pub(crate) fn cache(&self, env: &Environment) -> Option<DiskCache> {
        if self.no_disk_cache {
            return None;
        }
        let dir = self.cache_disk_dir.clone().unwrap_or_else(|| env.cache.join("kv"));
        let free = machine::free_disk(&dir).unwrap_or(0);
        let max_bytes = match self.cache_disk_max {
            Some(size) => size.of(free),
            None => DEFAULT_MAX.min(free / DEFAULT_SHARE),
        };
        Some(DiskCache { dir, max_bytes })
    }
}

impl DiskCache {
    /// The cache of one model.
    pub(crate) fn of(&self, model: &Identity<'_>) -> DiskOptions {
        DiskOptions {
            dir: self.dir.clone(),
            max_bytes: self.max_bytes,
            min_free_bytes: MIN_FREE,
            fingerprint: model.fingerprint(),
        }
    }

    /// For the line that says what is served.
    pub(crate) fn describe(&self) -> String {
        format!("up to {} in {}", human_bytes(self.max_bytes), self.dir.display())
    }
}

/// All that decides which keys and values follow from given tokens.
pub(crate) struct Identity<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    /// The recipe for the context that is served: rotations may depend on it.
    pub(crate) spec: &'a ModelSpec,
    /// What of the device decides a bit.
    pub(crate) arithmetic: &'a str,
}

impl Identity<'_> {
    /// Two models, settings or builds that could differ in a bit of a key or value have different
    /// fingerprints. Of the weights only samples are read, see [`Checkpoint::fingerprint`].
    fn fingerprint(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        // The sources of everything that computes, so that a build whose arithmetic may differ
        // finds nothing of the others'.
        hash.update(env!("HEARTH_ARITHMETIC"));
        hash.update(self.checkpoint.fingerprint());
        // Numbers are printed so that they can be read back exactly.
        hash.update(format!("\0{:?}\0{}", self.spec, self.arithmetic));
        hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::tiny;

    /// Phi-3 with rotations that depend on the context.
    fn checkpoint() -> Checkpoint {
        let mut config = tiny::config("phi3").unwrap();
        let factors = |factor: f64| vec![factor; 6];
        config["original_max_position_embeddings"] = 1024.into();
        config["rope_scaling"] = serde_json::json!({
            "type": "longrope", "short_factor": factors(1.0), "long_factor": factors(2.0),
        });
        tiny::checkpoint(config, 3).unwrap()
    }

    fn print(checkpoint: &Checkpoint, context: usize, arithmetic: &str) -> [u8; 32] {
        let spec = &models::recipe_for_context(&checkpoint.config, context).unwrap();
        Identity { checkpoint, spec, arithmetic }.fingerprint()
    }

    #[test]
    fn whatever_changes_a_key_changes_the_fingerprint() {
        const INT8: &str = "Int8\0cpu";
        let base = print(&checkpoint(), 512, INT8);
        assert_eq!(base, print(&checkpoint(), 512, INT8));
        assert_eq!(base, print(&checkpoint(), 1024, INT8), "the same rotations");
        assert_ne!(base, print(&checkpoint(), 2048, INT8), "other rotations");
        assert_ne!(base, print(&checkpoint(), 512, "Exact\0cpu"));
        assert_ne!(base, print(&checkpoint(), 512, "Bf16\0mlx 0.32.2 Gpu"), "another device");
        let checkpoint = checkpoint();
        let spec = models::recipe_for_context(&checkpoint.config, 512).unwrap();
        let spec = &spec.with_kv_format(backend::KvFormat::Int8);
        let identity = Identity { checkpoint: &checkpoint, spec, arithmetic: INT8 };
        assert_ne!(base, identity.fingerprint(), "another way to store keys and values");
        let config = tiny::config("phi3").unwrap();
        let other = |seed| print(&tiny::checkpoint(config.clone(), seed).unwrap(), 512, INT8);
        assert_ne!(other(3), other(4));
    }

    #[test]
    fn a_budget_is_found_without_being_asked_for() {
        let vars = tempfile::tempdir().unwrap();
        let mut env = Environment::read();
        env.cache = vars.path().join("not/there/yet");
        let cache = DiskArgs::default().cache(&env).unwrap();
        assert_eq!(cache.dir, env.cache.join("kv"));
        assert!(cache.max_bytes > 0 && cache.max_bytes <= DEFAULT_MAX);
        let none = DiskArgs { no_disk_cache: true, ..DiskArgs::default() };
        assert!(none.cache(&env).is_none());
    }
}
