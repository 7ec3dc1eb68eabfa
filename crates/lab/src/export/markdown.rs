//! A report in Markdown. Charts are links to their files.

use super::document::{Block, Document};

/// The text of a document.
pub fn markdown(document: &Document) -> String {
    let mut text = format!("# {}\n", document.title);
    for block in &document.blocks {
        text.push('\n');
        match block {
            Block::Heading(heading) => text.push_str(&format!("## {heading}\n")),
            Block::Paragraph(paragraph) => text.push_str(&format!("{paragraph}\n")),
            Block::Table { head, rows } => {
                text.push_str(&row(head));
                text.push_str(&format!("{}|\n", "| --- ".repeat(head.len())));
                rows.iter().for_each(|cells| text.push_str(&row(cells)));
            }
            Block::Chart(chart) => {
                text.push_str(&format!("![{}]({})\n", chart.title, chart.file()))
            }
        }
    }
    text
}

fn row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}
