//! Files as shared bytes, mapped rather than read. The only `unsafe` of this crate.
//!
//! It is not a cache and knows no format.

#![allow(unsafe_code)]

use std::{fs::File, path::Path};

use bytes::Bytes;

use crate::Error;

/// Maps a file for reading. The bytes stay valid as long as any clone or slice of them lives, even
/// when the file is removed meanwhile.
pub(crate) fn map(path: &Path) -> Result<Bytes, Error> {
    let file = File::open(path).map_err(Error::io(path))?;
    let meta = file.metadata().map_err(Error::io(path))?;
    if !meta.is_file() {
        return Err(Error::NotAModel { path: path.to_owned(), reason: "not a file".into() });
    }
    if meta.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the mapping is read-only and private to us. The one thing it relies on is that nobody
    // truncates or rewrites the file in place while it is open; model files are written once and
    // replaced by rename, and every program that maps weights makes this assumption.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(Error::io(path))?;
    // Walking through a model costs a good part of its time in looking up small pages. What the
    // system reads from now on it may keep in large ones, where its files can have them; what it
    // holds already stays as it is. That it cannot is no fault.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    Ok(Bytes::from_owner(map))
}
