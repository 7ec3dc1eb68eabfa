//! What can go wrong with model files, said so that the reader knows which file, which tensor, what
//! was expected and what to do. No error of this crate means a bug in it: those panic.

use std::path::PathBuf;

/// Why a model could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The path holds no model in any format we know.
    #[error("{path} is not a model: {reason}", path = .path.display())]
    NotAModel {
        /// What was asked for.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// A file contradicts itself or is cut short.
    #[error("{file} is damaged: {reason}; fetch the model again", file = .file.display())]
    BadFile {
        /// The file.
        file: PathBuf,
        /// The contradiction.
        reason: String,
    },
    /// A tensor is not what the config, or its own header, says.
    #[error("{file}: tensor {tensor}: expected {expected}, found {found}", file = .file.display())]
    BadTensor {
        /// The file that holds it.
        file: PathBuf,
        /// Its name there.
        tensor: String,
        /// What would have been right.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A tensor that the model needs is nowhere.
    #[error("{path}: no tensor {tensor}; the model is incomplete or of another architecture than its config says", path = .path.display())]
    MissingTensor {
        /// The checkpoint.
        path: PathBuf,
        /// The name looked for.
        tensor: String,
    },
    /// A file that another one lists is not there.
    #[error("{file} is missing, though {listed_in} lists it; fetch the model again", file = .file.display(), listed_in = .listed_in.display())]
    MissingFile {
        /// The absent file.
        file: PathBuf,
        /// Who lists it.
        listed_in: PathBuf,
    },
    /// A config file holds something else than it should.
    #[error("{file}: {key}: expected {expected}, found {found}", file = .file.display())]
    BadConfig {
        /// The config file.
        file: PathBuf,
        /// The key, or the position of a syntax error.
        key: String,
        /// What would have been right.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A file is sound, but uses something this program does not read.
    #[error("{file}: {what} is not supported; {advice}", file = .file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The feature.
        what: String,
        /// What to use instead.
        advice: String,
    },
    /// The folder to write into holds something already.
    #[error("{path} exists and is not empty; choose another folder or remove it first", path = .path.display())]
    TargetNotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// The options of a conversion do not go together.
    #[error("cannot convert: {0}")]
    BadOptions(String),
}

impl Error {
    /// An [`Error::Io`] about `path`, for `map_err`.
    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { path, source }
    }
}
