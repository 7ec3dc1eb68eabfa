//! Everything that can keep the lab from working. What goes wrong with a single request is no such error:
//! it is written down ([`crate::record::Trouble`]).

use std::path::{Path, PathBuf};

/// Why the lab cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file of ours that does not say what it should.
    #[error("{}: {why}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        why: String,
    },
    /// What was asked for makes no sense.
    #[error("{0}")]
    Plan(String),
    /// The system lacks something.
    #[error("{0}")]
    Unavailable(String),
}

impl Error {
    /// Of a file.
    pub fn file(path: &Path, source: std::io::Error) -> Error {
        Error::File { path: path.to_owned(), source }
    }

    /// Of what is in a file.
    pub fn malformed(path: &Path, why: impl ToString) -> Error {
        Error::Malformed { path: path.to_owned(), why: why.to_string() }
    }
}
