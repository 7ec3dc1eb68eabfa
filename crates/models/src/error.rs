//! Why a model cannot be run. Everything here is about the files, never about a request.

/// What is wrong with a config or the weights that go with it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key of `config.json` is absent, of the wrong type, or has a value nobody can run.
    #[error("config.json: `{key}` {problem}")]
    Config {
        /// The key, with the path of its parents.
        key: String,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// No family answers to this `model_type`.
    #[error(
        "config.json: `model_type` is \"{found}\", which is not supported; nearest supported: {nearest}; a family is one file in crates/models/src/families, see CONTRIBUTING.md"
    )]
    UnknownFamily {
        /// The model type asked for.
        found: String,
        /// The most similar names this build knows.
        nearest: String,
    },
    /// The output head is not there although the config says that it is separate.
    #[error(
        "no tensor `{tensor}`, but config.json says `tie_word_embeddings: false`; the model is incomplete, or the key should be true"
    )]
    MissingHead {
        /// The name looked for.
        tensor: String,
    },
    /// The weights hold a term that the recipe leaves out, so the result would be wrong.
    #[error(
        "tensor `{tensor}` is there, but a {family} model with this config.json does not use it; the result would be wrong"
    )]
    UnusedTerm {
        /// The tensor nobody asked for.
        tensor: String,
        /// The family of the recipe.
        family: &'static str,
    },
    /// A model that cannot be split over so many machines.
    #[error("this {family} model can be split over {most} machines at most, and there are {ranks}")]
    TooManyParts {
        /// The family of the recipe.
        family: &'static str,
        /// Machines that there are.
        ranks: usize,
        /// Those that it can be split over.
        most: usize,
    },
    /// A model whose matrices cannot be split over so many machines.
    #[error(
        "{ranks} machines cannot share the matrices of this {family} model: {what} cannot be split over them; give each machine whole layers instead (--split pipeline), or use another number of machines"
    )]
    NotShared {
        /// The family of the recipe.
        family: &'static str,
        /// Machines that there are.
        ranks: usize,
        /// What cannot be split.
        what: String,
    },
    /// A tensor is missing, of the wrong shape, or unreadable.
    #[error(transparent)]
    Weights(#[from] weights::Error),
}

impl Error {
    /// An [`Error::Config`].
    pub(crate) fn config(key: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Config { key: key.into(), problem: problem.into() }
    }
}
