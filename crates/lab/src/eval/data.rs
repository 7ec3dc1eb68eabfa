//! Questions from files that others published, given by path: one JSON object a line.

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::rng::Rng;

/// Reads a file of JSON lines.
///
/// # Errors
/// [`Error`] that names the line that is not what it should be.
pub fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::file(path, source))?;
    let full = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = full.map(|(n, line)| {
        serde_json::from_str(line)
            .map_err(|error| Error::malformed(path, format!("line {}: {error}", n + 1)))
    });
    let all = parsed.collect::<Result<Vec<T>, Error>>()?;
    match all.is_empty() {
        true => Err(Error::malformed(path, "has no questions")),
        false => Ok(all),
    }
}

/// So many of them, drawn by a seed, in the order of the file.
pub fn sample<T>(all: Vec<T>, n: usize, rng: &mut Rng) -> Vec<T> {
    let mut places: Vec<usize> = (0..all.len()).collect();
    rng.shuffle(&mut places);
    places.truncate(n);
    let drawn = all.into_iter().enumerate().filter(|(place, _)| places.contains(place));
    drawn.map(|(_, one)| one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file.json");
        std::fs::write(&path, "1\n\n2\n").unwrap();
        assert_eq!(lines::<u32>(&path).unwrap(), [1, 2]);
        std::fs::write(&path, "1\n\nx\n").unwrap();
        assert!(lines::<u32>(&path).unwrap_err().to_string().contains("line 3"));
        std::fs::write(&path, "\n").unwrap();
        assert!(lines::<u32>(&path).unwrap_err().to_string().contains("no questions"));
        assert!(lines::<u32>(&folder.path().join("none")).is_err());
    }

    #[test]
    fn a_sample_has_no_question_twice() {
        let drawn = sample((0..100).collect(), 10, &mut Rng::new(1));
        assert_eq!(drawn.len(), 10);
        assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]));
        assert_ne!(drawn, sample((0..100).collect(), 10, &mut Rng::new(2)));
        assert_eq!(sample(vec![1, 2], 10, &mut Rng::new(1)), [1, 2]);
    }
}
