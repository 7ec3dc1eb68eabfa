//! `hearth lab report`, `plot` and `compare`: what was measured, shown.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lab::chart::Reference;
use lab::export::{self, Block, Document};
use lab::lang::Lang;
use lab::results::{Results, between, within};

/// Write tables, charts and reports of results
///
/// Into the folder of the results: report.html and report.md (report.zh-TW.… in Chinese), summary.csv,
/// and charts as SVG and PNG.
#[derive(clap::Args)]
pub(crate) struct ReportArgs {
    /// Folder of results
    folder: PathBuf,
    /// Language of the report
    #[arg(long, default_value = "en", value_parser = languages())]
    lang: Lang,
    /// File of values that others published, drawn dashed beside the measured ones
    #[arg(long, value_name = "FILE")]
    reference: Vec<PathBuf>,
}

/// Draw charts of results
///
/// Into FOLDER/charts, as SVG and PNG.
#[derive(clap::Args)]
pub(crate) struct PlotArgs {
    #[command(flatten)]
    report: ReportArgs,
}

/// Compare engines, or two times of measuring
///
/// With one folder: every engine against the first, in pairs of the same block. With two: what the second
/// measured against what the first did. A verdict needs an interval that is wholly beyond what the same
/// engine differs from itself by.
#[derive(clap::Args)]
pub(crate) struct CompareArgs {
    /// Folder of results
    first: PathBuf,
    /// Folder of later results of the same engines
    second: Option<PathBuf>,
    /// Engine that the others are compared with
    #[arg(long, value_name = "ENGINE", conflicts_with = "second")]
    base: Option<String>,
    /// Language of the table
    #[arg(long, default_value = "en", value_parser = languages())]
    lang: Lang,
}

fn languages() -> impl TypedValueParser<Value = Lang> {
    PossibleValuesParser::new([Lang::En.tag(), Lang::ZhTw.tag()])
        .map(|tag| Lang::of_tag(&tag).unwrap_or_default())
}

fn read(path: &Path) -> Result<Results> {
    Results::read(path).context("no results to show")
}

fn references(args: &ReportArgs) -> Result<Vec<Reference>> {
    Ok(args.reference.iter().map(|path| Reference::read(path)).collect::<Result<_, _>>()?)
}

pub(super) fn report(args: &ReportArgs, out: &mut dyn Write) -> Result<()> {
    let results = read(&args.folder)?;
    let (paths, notes) = export::write_all(&results, &folder(args), args.lang, &references(args)?)?;
    tell(&notes);
    for path in paths {
        writeln!(out, "{}", path.display())?;
    }
    Ok(())
}

pub(super) fn plot(args: &PlotArgs, out: &mut dyn Write) -> Result<()> {
    let args = &args.report;
    let results = read(&args.folder)?;
    let notes = export::write_charts(&results, &folder(args), args.lang, &references(args)?)?;
    tell(&notes);
    writeln!(out, "{}", folder(args).join("charts").display())?;
    Ok(())
}

pub(super) fn compare(args: &CompareArgs, out: &mut dyn Write) -> Result<()> {
    let first = read(&args.first)?;
    let all = match &args.second {
        Some(second) => between(&first, &read(second)?),
        None => {
            let base = match &args.base {
                Some(base) if first.arms.contains(base) => base,
                Some(base) => bail!("no engine `{base}` there: {}", first.arms.join(", ")),
                None => first.arms.first().context("no engines to compare")?,
            };
            within(&first, base)
        }
    };
    let block: Block = export::comparison_table(&all, args.lang);
    let title = args.lang.say("Verdicts").to_owned();
    let document = Document { title, blocks: vec![block] };
    write!(out, "{}", export::markdown(&document))?;
    Ok(())
}

/// Where to write: beside the records.
fn folder(args: &ReportArgs) -> PathBuf {
    if args.folder.is_dir() {
        args.folder.clone()
    } else {
        args.folder.parent().map(PathBuf::from).unwrap_or_default()
    }
}

fn tell(notes: &[String]) {
    for note in notes {
        eprintln!("note: {note}");
    }
}
