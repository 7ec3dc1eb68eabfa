//! Sizes and times as people write them: `8GiB`, `512MiB`, `80%`; `90`, `10m`, `1h`.

use std::str::FromStr;
use std::time::Duration;

/// An amount of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Size {
    /// So many.
    Bytes(u64),
    /// A share of something, above 0, at most 1.
    Share(f64),
}

/// Units by their names in lower case.
const UNITS: &[(&str, u64)] = &[
    ("", 1 << 20),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("kb", 1000),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("mb", 1_000_000),
    ("g", 1 << 30),
    ("gib", 1 << 30),
    ("gb", 1_000_000_000),
    ("t", 1 << 40),
    ("tib", 1 << 40),
    ("tb", 1_000_000_000_000),
];

impl Size {
    /// Bytes, where a share is one of `whole`.
    pub(crate) fn of(self, whole: u64) -> u64 {
        match self {
            Size::Bytes(bytes) => bytes,
            Size::Share(share) => (whole as f64 * share) as u64,
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let wrong = || "should be like 8GiB, 512MiB or 80%; a plain number is in MiB".to_owned();
        let (number, unit) = split(text).ok_or_else(wrong)?;
        if unit == "%" {
            let in_range = number > 0.0 && number <= 100.0;
            return in_range.then_some(Size::Share(number / 100.0)).ok_or_else(wrong);
        }
        let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let bytes = number * *bytes as f64;
        // Beyond this a float no longer counts every byte, and no machine has that much.
        let in_range = (1.0..=9e15).contains(&bytes);
        in_range.then_some(Size::Bytes(bytes as u64)).ok_or_else(wrong)
    }
}

/// A time: seconds, or with one of the units `s`, `m`, `h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "should be like 90, 90s, 10m or 1h".to_owned();
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let seconds = match unit.as_str() {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let time = number * seconds;
    (1.0..=1e9).contains(&time).then(|| Duration::from_secs_f64(time)).ok_or_else(wrong)
}

/// A number without sign and what follows it, in lower case.
fn split(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    Some((number, text[end..].trim_start().to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("512", 512 << 20),
            ("512MiB", 512 << 20),
            ("8GiB", 8 << 30),
            ("8 gib", 8 << 30),
            ("1.5G", 3 << 29),
            ("2GB", 2_000_000_000),
            ("64k", 64 << 10),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Size::Bytes(bytes)), "{text}");
        }
        assert_eq!("80%".parse(), Ok(Size::Share(0.8)));
        assert_eq!("80%".parse::<Size>().unwrap().of(1000), 800);
        for text in [
            "",
            "GiB",
            "-1",
            "0",
            "0%",
            "101%",
            "8 parsecs",
            "1e3",
            "nan",
            "..",
            "9999999TiB",
            "8GiB8",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "0", "-5", "1d", "m", "1e99", "0.5"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
