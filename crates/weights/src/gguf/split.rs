//! Finds all parts of a model: one file, or `NAME-00001-of-00003.gguf` and its siblings.
//!
//! Reading a single file is in [`super::reader`].

use std::path::{Path, PathBuf};

use super::{
    metadata::Metadata,
    reader::{self, File},
};
use crate::{Error, mmap};

/// Parts a model may have: as many as the format's own 16 bits can count.
const MAX_PARTS: u64 = u16::MAX as u64;

/// The model that begins in `path`: the metadata of its first part, the tensors of all of them.
pub(super) fn read(path: &Path) -> Result<File, Error> {
    let mut first = reader::parse(path, mmap::map(path)?)?;
    let count = first.metadata.unsigned("split.count")?.unwrap_or(1);
    if count <= 1 {
        return Ok(first);
    }
    if count > MAX_PARTS {
        let expected = format!("at most {MAX_PARTS} parts");
        return Err(first.metadata.bad("split.count", &expected, count.to_string()));
    }
    let number = first.metadata.unsigned("split.no")?.unwrap_or(0);
    if number >= count {
        let expected = format!("a number below split.count {count}");
        return Err(first.metadata.bad("split.no", &expected, number.to_string()));
    }
    let part = |index: u64| -> Result<PathBuf, Error> {
        sibling(path, number, index, count).ok_or_else(|| {
            let expected = format!("a file named …-{:05}-of-{count:05}.gguf", number + 1);
            first.metadata.bad("split.count", &expected, path.display().to_string())
        })
    };
    if number != 0 {
        let (what, first) = (format!("opening part {} of {count}", number + 1), part(0)?);
        let advice = format!("open {}", first.display());
        return Err(Error::Unsupported { file: path.to_owned(), what, advice });
    }
    // Looking for the files before mapping any names the missing one at once.
    let rest = (1..count).map(part).collect::<Result<Vec<_>, _>>()?;
    if let Some(missing) = rest.iter().find(|file| !file.exists()) {
        let (file, listed_in) = (missing.clone(), path.to_owned());
        return Err(Error::MissingFile { file, listed_in });
    }
    for (index, file) in (1..).zip(&rest) {
        let next = reader::parse(file, mmap::map(file)?)?;
        check_place(&next.metadata, index, count)?;
        first.tensors.extend(next.tensors);
    }
    check_tensors(&first)?;
    Ok(first)
}

/// The path of part `index`, from that of part `number`; both count from 0.
fn sibling(path: &Path, number: u64, index: u64, count: u64) -> Option<PathBuf> {
    let suffix = |n: u64| format!("-{:05}-of-{count:05}.gguf", n + 1);
    let stem = path.file_name()?.to_str()?.strip_suffix(&suffix(number))?;
    Some(path.with_file_name(format!("{stem}{}", suffix(index))))
}

fn check_place(metadata: &Metadata, index: u64, count: u64) -> Result<(), Error> {
    for (key, expected) in [("split.no", index), ("split.count", count)] {
        let found = metadata.unsigned(key)?;
        if found != Some(expected) {
            let found = found.map_or("nothing".into(), |n| n.to_string());
            return Err(metadata.bad(key, &expected.to_string(), found));
        }
    }
    Ok(())
}

fn check_tensors(file: &File) -> Result<(), Error> {
    let mut names = std::collections::HashSet::new();
    for tensor in &file.tensors {
        if !names.insert(tensor.name.as_str()) {
            return Err(Error::BadTensor {
                file: tensor.file.to_path_buf(),
                tensor: tensor.name.clone(),
                expected: "a name used in one part".into(),
                found: "it in two".into(),
            });
        }
    }
    const KEY: &str = "split.tensors.count";
    match file.metadata.unsigned(KEY)? {
        Some(n) if n != file.tensors.len() as u64 => {
            let expected = format!("the {} tensors of all parts", file.tensors.len());
            Err(file.metadata.bad(KEY, &expected, n.to_string()))
        }
        _ => Ok(()),
    }
}
