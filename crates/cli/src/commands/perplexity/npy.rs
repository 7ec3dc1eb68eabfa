//! A matrix of f32 in NumPy's file format, version 1.0, written row by row.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Writes beside the target and moves it there when it is complete.
pub(super) struct Writer {
    out: BufWriter<File>,
    temporary: PathBuf,
    target: PathBuf,
}

impl Writer {
    /// Begins a matrix of `shape` rows and columns.
    pub(super) fn create(path: &Path, shape: [usize; 2]) -> Result<Writer> {
        let temporary = path.with_extension("writing");
        let file = File::create(&temporary)
            .with_context(|| format!("cannot write {}", temporary.display()))?;
        let mut out = BufWriter::new(file);
        out.write_all(&header(shape))?;
        Ok(Writer { out, temporary, target: path.to_path_buf() })
    }

    /// Adds numbers, row after row.
    pub(super) fn append(&mut self, values: &[f32]) -> Result<()> {
        for value in values {
            self.out.write_all(&value.to_le_bytes())?;
        }
        Ok(())
    }

    /// The file is complete.
    pub(super) fn finish(self) -> Result<()> {
        self.out.into_inner()?.sync_all()?;
        fs::rename(self.temporary, self.target)?;
        Ok(())
    }
}

/// Magic, version, length of the rest, and a Python dictionary padded to a multiple of 64.
fn header([rows, cols]: [usize; 2]) -> Vec<u8> {
    let dict = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}");
    let length = (10 + dict.len() + 1).next_multiple_of(64) - 10;
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((length as u16).to_le_bytes());
    header.extend(format!("{dict:<width$}\n", width = length - 1).into_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_numpys() {
        let header = header([2, 3]);
        assert_eq!(header.len() % 64, 0);
        assert_eq!(&header[..10], b"\x93NUMPY\x01\x00\x76\x00");
        let dict = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        assert_eq!(&header[10..10 + dict.len()], dict);
        assert_eq!(header.last(), Some(&b'\n'));
    }
}
