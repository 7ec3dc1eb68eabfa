//! Reports: the same document as Markdown and as HTML, and the values as CSV.

mod csv;
mod document;
mod html;
mod markdown;

use std::path::{Path, PathBuf};

pub use csv::csv;
pub use document::{Block, Document, comparison_table, report};
pub use html::html;
pub use markdown::markdown;

use crate::chart::{Fonts, Reference, charts, png};
use crate::error::Error;
use crate::lang::Lang;
use crate::results::Results;

/// Writes everything that there is to show into a folder: tables, the report in both forms, charts as SVG
/// and PNG. Gives the paths of the reports, and what could not be done.
///
/// # Errors
/// [`Error::File`] if the folder cannot be written to.
pub fn write_all(
    results: &Results,
    folder: &Path,
    lang: Lang,
    references: &[Reference],
) -> Result<(Vec<PathBuf>, Vec<String>), Error> {
    let mut notes = write_charts(results, folder, lang, references)?;
    let document = report(results, lang, references);
    let suffix = match lang {
        Lang::En => String::new(),
        Lang::ZhTw => format!(".{}", lang.tag()),
    };
    let report = |ending: &str| folder.join(format!("report{suffix}.{ending}"));
    let files = [
        (report("html"), html(&document, lang)),
        (report("md"), markdown(&document)),
        (folder.join("summary.csv"), csv(results)),
    ];
    for (path, text) in &files {
        write(path, text.as_bytes())?;
    }
    if !results.complete {
        notes.push(lang.say("This run was interrupted: some of it is missing.").to_owned());
    }
    Ok((files.into_iter().map(|(path, _)| path).collect(), notes))
}

/// Writes the charts of all models into `FOLDER/charts`; gives what could not be done.
///
/// # Errors
/// [`Error::File`] if the folder cannot be written to.
pub fn write_charts(
    results: &Results,
    folder: &Path,
    lang: Lang,
    references: &[Reference],
) -> Result<Vec<String>, Error> {
    let mut notes = Vec::new();
    let pictures = folder.join("charts");
    std::fs::create_dir_all(&pictures).map_err(|source| Error::file(&pictures, source))?;
    let fonts = Fonts::of_system();
    // Pictures of letters need a font that has them; pages find theirs where they are read.
    let lang_of_png = if lang == Lang::En || fonts.have('測') { lang } else { Lang::En };
    if !fonts.any() {
        notes.push("no PNG: this system has no fonts".to_owned());
    } else if lang_of_png != lang {
        notes.push("PNG in English: no font here has Chinese letters".to_owned());
    }
    for model in &results.models {
        let drawn = charts(results, model, lang, references);
        for chart in &drawn {
            write(&folder.join(chart.file()), chart.alone().as_bytes())?;
        }
        if fonts.any() {
            let for_png = charts(results, model, lang_of_png, references);
            for (chart, picture) in drawn.iter().zip(for_png) {
                let path = folder.join(chart.file()).with_extension("png");
                write(&path, &png(&picture.light(), &fonts)?)?;
            }
        }
    }
    Ok(notes)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    std::fs::write(path, bytes).map_err(|source| Error::file(path, source))
}
