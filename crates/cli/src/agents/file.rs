//! Files that are replaced as a whole or not at all. What is in them is not known here.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The text of a file; `None` where there is none.
pub(crate) fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Puts the text there: whoever reads meanwhile, and whatever happens, sees the old file or the new
/// one. Links are followed and permissions kept; a new file is the user's alone, since it may hold a key.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    let path = target_of(path)?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("it has no name"));
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let temp = folder.join(format!(".{}.{}.new", name.to_string_lossy(), std::process::id()));
    let done = write_new(&temp, text)
        .and_then(|()| match fs::metadata(&path) {
            Ok(old) => fs::set_permissions(&temp, old.permissions()),
            Err(_) => Ok(()),
        })
        .and_then(|()| fs::rename(&temp, &path));
    if done.is_err() {
        // Nothing is lost if that fails too.
        let _ = fs::remove_file(&temp);
    }
    done?;
    sync_folder(folder)
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Where a link leads; a link to nothing is an error, and not to be replaced.
fn target_of(path: &Path) -> io::Result<PathBuf> {
    match fs::symlink_metadata(path) {
        Ok(_) => fs::canonicalize(path),
        Err(_) => Ok(path.to_owned()),
    }
}

/// A rename is only safe once its folder is.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Makes a folder and those above it that are missing; says which, the outermost first.
pub(crate) fn make_folders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let missing =
        folder.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
    missing.reverse();
    fs::create_dir_all(folder)?;
    Ok(missing)
}
