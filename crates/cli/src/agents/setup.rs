//! Writes a program's settings into its files and takes them out again. All files are read and edited
//! in memory first, so that one that cannot be edited leaves the others alone too.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::edit::{self, EditError, Setting};
use super::record::{Change, Record, Records, digest};
use super::target::Target;
use super::{Agent, File, Folder, PartOf, file};

/// Why nothing was set up or removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    #[error("{} {source}; nothing was changed", .path.display())]
    Edit { path: PathBuf, source: EditError },
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Where a user's things are, as far as settings of programs need it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    pub(crate) home: PathBuf,
    /// Where one is.
    pub(crate) here: PathBuf,
    /// What variables say of programs' folders.
    pub(crate) folders: Vec<(String, PathBuf)>,
    /// Where programs are found.
    pub(crate) path: Vec<PathBuf>,
    /// Our own folder for what must not be lost.
    pub(crate) data: PathBuf,
}

impl Places {
    /// A program's folder.
    pub(crate) fn folder(&self, folder: &Folder) -> PathBuf {
        let named = self.folders.iter().find(|(var, _)| Some(var) == folder.var.as_ref());
        match (named, folder.default.strip_prefix('~')) {
            (Some((_, named)), _) => named.clone(),
            (None, Some(below)) => self.home.join(below.trim_start_matches('/')),
            (None, None) => self.here.join(&folder.default),
        }
    }

    fn path_of(&self, agent: &Agent, file: &File) -> PathBuf {
        // No `.` in the way, so that a record is found again.
        self.folder(&agent.folder).join(&file.path).components().collect()
    }

    /// Whether it seems to be here: its command, or the folder of its settings.
    pub(crate) fn has(&self, agent: &Agent) -> bool {
        let program = |name: &String| self.program(name).is_some();
        let folder = |file: &File| {
            let path = self.path_of(agent, file);
            let own =
                path.parent().is_some_and(|folder| folder != self.home && folder != self.here);
            own && path.parent().is_some_and(Path::exists)
        };
        agent.programs.iter().any(program) || agent.files.iter().any(folder)
    }

    /// The file of a command.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        let file = |folder: &PathBuf| folder.join(name);
        self.path.iter().map(file).find(|path| is_program(path))
    }
}

#[cfg(unix)]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(path: &Path) -> bool {
    ["", "exe", "cmd"].iter().any(|end| path.with_extension(end).is_file())
}

/// A file as it is to be.
#[derive(Debug)]
pub(crate) struct Planned {
    record: Record,
    text: String,
    /// Whether it is so already.
    pub(crate) done: bool,
}

impl Planned {
    pub(crate) fn path(&self) -> &Path {
        &self.record.path
    }
}

/// The files that setup writes for a program.
fn files(agent: &Agent) -> impl Iterator<Item = &File> {
    agent.files.iter().filter(|file| file.part_of == PartOf::All)
}

/// What setup would write.
pub(crate) fn plan(
    agent: &Agent,
    target: &Target,
    places: &Places,
) -> Result<Vec<Planned>, SetupError> {
    let records = Records::new(&places.data);
    let plan = |file| {
        let path = places.path_of(agent, file);
        let io = |source| SetupError::Io { path: path.clone(), source };
        let now = file::read(&path).map_err(io)?;
        let earlier = records.load(agent.name, &path).map_err(io)?;
        let planned = plan_file(agent, file, target, &path, (now, earlier));
        planned.map_err(|source| SetupError::Edit { path: path.clone(), source })
    };
    files(agent).map(plan).collect()
}

fn plan_file(
    agent: &Agent,
    file: &File,
    target: &Target,
    path: &Path,
    (now, earlier): (Option<String>, Option<Record>),
) -> Result<Planned, EditError> {
    // What an earlier setup wrote is taken out first: what it replaced is what counts as the user's.
    let before = match &earlier {
        Some(record) => record.undone(now.as_deref())?,
        None => now.clone(),
    };
    let base = before.as_deref().unwrap_or_default();
    let tree = edit::open(file.format, base)?;
    let gap = |setting: &Setting| tree.get(&setting.at).is_none();
    let mut settings: Vec<Setting> = file.defaults(target).into_iter().filter(gap).collect();
    settings.extend(file.settings(target));
    let text = edit::apply(file.format, base, &settings)?;
    let record = Record {
        agent: agent.name.to_owned(),
        path: path.to_owned(),
        format: file.format,
        url: target.url.clone(),
        model: target.model.clone(),
        written: digest(&text),
        changes: settings.iter().map(|setting| Change::of(setting, tree.as_ref())).collect(),
        folders: earlier.map(|record| record.folders).unwrap_or_default(),
        before,
    };
    let done = now.as_deref() == Some(&text);
    Ok(Planned { record, text, done })
}

/// Writes what was planned: the record before the file, so that a file is never without its record.
/// The text before is also left beside the file, for people.
pub(crate) fn write(planned: Vec<Planned>, places: &Places) -> Result<(), SetupError> {
    let records = Records::new(&places.data);
    for mut plan in planned {
        let path = plan.record.path.clone();
        let io = |source| SetupError::Io { path: path.clone(), source };
        let made = path.parent().map_or(Ok(Vec::new()), file::make_folders).map_err(io)?;
        plan.record.folders.extend(made);
        if let Some(before) = &plan.record.before {
            file::write(&backup(&path), before).map_err(io)?;
        }
        records.save(&plan.record).map_err(io)?;
        if !plan.done {
            file::write(&path, &plan.text).map_err(io)?;
        }
    }
    Ok(())
}

/// Where the text before setup is left.
pub(crate) fn backup(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".before-hearth");
    name.into()
}

/// Undoes setup; says which files were changed. Nothing is fine where nothing was set up.
pub(crate) fn remove(agent: &Agent, places: &Places) -> Result<Vec<PathBuf>, SetupError> {
    let mut undone = Vec::new();
    for record in recorded(agent, places)? {
        let path = record.path.clone();
        let now =
            file::read(&path).map_err(|source| SetupError::Io { path: path.clone(), source })?;
        let text = record.undone(now.as_deref());
        let text = text.map_err(|source| SetupError::Edit { path: path.clone(), source })?;
        undone.push((record, now, text));
    }
    let records = Records::new(&places.data);
    let mut paths = Vec::new();
    for (record, now, text) in undone {
        let path = record.path.clone();
        put_back(&record, now.as_deref(), text.as_deref())
            .and_then(|()| records.forget(&record))
            .map_err(|source| SetupError::Io { path: path.clone(), source })?;
        paths.push(path);
    }
    Ok(paths)
}

fn put_back(record: &Record, now: Option<&str>, text: Option<&str>) -> io::Result<()> {
    match text {
        Some(text) if now != Some(text) => file::write(&record.path, text)?,
        None if now.is_some() => fs::remove_file(&record.path)?,
        _ => {}
    }
    let backup = backup(&record.path);
    // Somebody's own file of that name is not ours to take away.
    if record.before.is_some() && file::read(&backup)? == record.before {
        fs::remove_file(backup)?;
    }
    for folder in record.folders.iter().rev() {
        // One that holds something else stays.
        if fs::remove_dir(folder).is_err() {
            break;
        }
    }
    Ok(())
}

/// What was done for a program, in the files where it would be done now.
pub(crate) fn recorded(agent: &Agent, places: &Places) -> Result<Vec<Record>, SetupError> {
    let records = Records::new(&places.data);
    let load = |file| {
        let path = places.path_of(agent, file);
        let record = records.load(agent.name, &path);
        record.map_err(|source| SetupError::Io { path, source }).transpose()
    };
    files(agent).filter_map(load).collect()
}

/// How a program stands to us.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum State {
    /// Nothing of ours is in its files.
    Untouched,
    /// It uses this server and model.
    Ready { url: String, model: String },
    /// Somebody has changed what was set up.
    Changed,
}

/// Looks at its files.
pub(crate) fn state(agent: &Agent, places: &Places) -> Result<State, SetupError> {
    let records = recorded(agent, places)?;
    let Some(first) = records.first() else { return Ok(State::Untouched) };
    for record in &records {
        let now = file::read(&record.path)
            .map_err(|source| SetupError::Io { path: record.path.clone(), source })?;
        if !record.holds(now.as_deref()) {
            return Ok(State::Changed);
        }
    }
    Ok(State::Ready { url: first.url.clone(), model: first.model.clone() })
}

/// The settings alone, each with the file where they would go.
pub(crate) fn fragments(
    agent: &Agent,
    target: &Target,
    places: &Places,
) -> Result<Vec<(PathBuf, String)>, SetupError> {
    let fragment = |file: &File| {
        let path = places.path_of(agent, file);
        let settings = [file.defaults(target), file.settings(target)].concat();
        match edit::apply(file.format, "", &settings) {
            Ok(text) => Ok((path, text)),
            Err(source) => Err(SetupError::Edit { path, source }),
        }
    };
    files(agent).map(fragment).collect()
}

#[cfg(test)]
mod tests;
