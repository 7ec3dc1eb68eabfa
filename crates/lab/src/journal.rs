//! The file of records: written line by line so that it is valid whenever it is looked at, and read again
//! to go on where somebody stopped.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::record::{Lab, Record, SCHEMA};

/// A file of records that is being written.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Opens the file, new or not, and gives what is in it already. Half a line at its end, which a
    /// crash may leave, is cut off.
    ///
    /// # Errors
    /// [`Error`], also when a line is not a record.
    pub fn open(path: &Path) -> Result<(Journal, Vec<Record>), Error> {
        let fail = |source| Error::file(path, source);
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).open(path).map_err(fail)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(fail)?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(fail)?;
        file.seek(SeekFrom::End(0)).map_err(fail)?;
        let records = parse(path, &text[..whole])?;
        Ok((Journal { file, path: path.to_owned() }, records))
    }

    /// Adds a line; it is with the system when this returns.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn write(&mut self, record: &Record) -> Result<(), Error> {
        let mut line =
            serde_json::to_string(record).map_err(|error| Error::malformed(&self.path, error))?;
        line.push('\n');
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|source| Error::file(&self.path, source))
    }
}

/// All records of a file; half a line at its end is left out.
///
/// # Errors
/// [`Error`], also when a line is not a record or the format is newer than this reader.
pub fn read(path: &Path) -> Result<Vec<Record>, Error> {
    let text = std::fs::read(path).map_err(|source| Error::file(path, source))?;
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    parse(path, &text[..whole])
}

fn parse(path: &Path, text: &[u8]) -> Result<Vec<Record>, Error> {
    let lines = text.split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
    let records = lines.map(|(n, line)| {
        // The version is judged before the rest: a newer line may be unreadable in any way.
        if let Ok(Newer { kind, schema }) = serde_json::from_slice(line)
            && kind == "lab"
            && schema > SCHEMA
        {
            let why = format!("written by a newer lab (format {schema}; this one reads {SCHEMA})");
            return Err(Error::malformed(path, why));
        }
        serde_json::from_slice(line)
            .map_err(|error| Error::malformed(path, format!("line {}: {error}", n + 1)))
    });
    records.collect()
}

#[derive(serde::Deserialize)]
struct Newer {
    kind: String,
    schema: u32,
}

/// The first line of a file of records.
///
/// # Errors
/// [`Error::Malformed`] if it is missing.
pub fn head<'a>(path: &Path, records: &'a [Record]) -> Result<&'a Lab, Error> {
    match records.first() {
        Some(Record::Lab(lab)) => Ok(lab),
        _ => Err(Error::malformed(path, "does not begin with a line of kind `lab`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::End;

    #[test]
    fn half_a_line_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.jsonl");
        let end = |complete| Record::End(End { complete });
        let (mut journal, records) = Journal::open(&path).unwrap();
        assert_eq!(records, []);
        journal.write(&end(false)).unwrap();
        drop(journal);
        let mut text = std::fs::read(&path).unwrap();
        let whole = text.len();
        text.extend_from_slice(br#"{"kind":"end","comp"#);
        std::fs::write(&path, &text).unwrap();
        assert_eq!(read(&path).unwrap(), [end(false)]);
        let (mut journal, records) = Journal::open(&path).unwrap();
        assert_eq!(records, [end(false)]);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), whole as u64);
        journal.write(&end(true)).unwrap();
        assert_eq!(read(&path).unwrap(), [end(false), end(true)]);
    }

    #[test]
    fn what_is_no_record_is_an_error_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.jsonl");
        std::fs::write(&path, "{\"kind\":\"end\",\"complete\":true}\n[]\n").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("line 2"));
        std::fs::write(&path, "{\"kind\":\"lab\",\"schema\":99}\n").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("newer"));
    }
}
