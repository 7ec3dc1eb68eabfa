//! Puts a hash of everything that computes into the program: keys and values that are kept on disk
//! are used by builds with the same arithmetic alone.
//!
//! It cannot be told from a difference in the sources whether it changes a bit, so every difference
//! counts.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Folders and files that decide what is computed.
const SOURCES: &[&str] = &[
    "../backend/src",
    "../cpu/src",
    "../mlx/src",
    "../models/src",
    "../weights/src",
    "../../Cargo.lock",
];

fn main() {
    // On a Mac, and elsewhere where it was asked for.
    println!("cargo::rustc-check-cfg=cfg(with_mlx)");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_OS", "macos") || is("CARGO_FEATURE_MLX", "1") {
        println!("cargo::rustc-cfg=with_mlx");
    }
    let mut files = BTreeMap::new();
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
        collect(Path::new(source), &mut files);
    }
    let mut hash = DefaultHasher::new();
    for (path, bytes) in files {
        (path.to_string_lossy().as_bytes(), bytes).hash(&mut hash);
    }
    // Another compiler may order other functions, but floats are what the sources say.
    println!("cargo::rustc-env=HEARTH_ARITHMETIC={:016x}", hash.finish());
}

fn collect(path: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    if let Ok(entries) = fs::read_dir(path) {
        entries.flatten().for_each(|entry| collect(&entry.path(), files));
    } else if let Ok(bytes) = fs::read(path) {
        files.insert(path.to_owned(), bytes);
    }
}
