//! A report as one page that needs nothing else: no script, no font, no picture from elsewhere.

use super::document::{Block, Document};
use crate::chart::{escape, style};
use crate::lang::Lang;

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font-family:system-ui,'Noto Sans','DejaVu Sans','Noto Sans CJK TC','PingFang TC','Microsoft JhengHei',\
'WenQuanYi Zen Hei',sans-serif;max-width:1080px;margin:2rem auto;padding:0 1rem;line-height:1.5;\
color:#1d2129;background:#ffffff}\
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2.2rem;border-bottom:1px solid #d9dde3;padding-bottom:.3rem}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.84rem;font-variant-numeric:tabular-nums}\
th,td{border-bottom:1px solid #d9dde3;padding:.28rem .6rem;text-align:left;vertical-align:top}\
td{overflow-wrap:anywhere}td:nth-child(n+3){min-width:7rem}\
figure{margin:1.2rem 0}figure svg{max-width:100%;height:auto;border:1px solid #d9dde3;border-radius:6px}\
@media screen and (prefers-color-scheme:dark){body{color:#e8eaed;background:#0f1115}\
h2,th,td,figure svg{border-color:#333a44}}\
@media print{body{max-width:none;margin:0}figure,tr{break-inside:avoid}h2{break-after:avoid}}";

/// The page of a document, whose charts go into it.
pub fn html(document: &Document, lang: Lang) -> String {
    let mut body = String::new();
    for block in &document.blocks {
        match block {
            Block::Heading(heading) => body.push_str(&format!("<h2>{}</h2>\n", escape(heading))),
            Block::Paragraph(text) => body.push_str(&format!("<p>{}</p>\n", escape(text))),
            Block::Table { head, rows } => {
                body.push_str("<div class=\"wide\"><table>\n");
                if head.iter().any(|cell| !cell.is_empty()) {
                    body.push_str(&format!("<thead>{}</thead>\n", row(head, "th")));
                }
                rows.iter().for_each(|cells| body.push_str(&row(cells, "td")));
                body.push_str("</table></div>\n");
            }
            Block::Chart(chart) => body.push_str(&format!("<figure>{}</figure>\n", chart.inline())),
        }
    }
    let (title, charts) = (escape(&document.title), style());
    format!(
        "<!DOCTYPE html>\n<html lang=\"{}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>{STYLE}{charts}</style>\n</head>\n\
         <body>\n<h1>{title}</h1>\n{body}</body>\n</html>\n",
        lang.tag()
    )
}

fn row(cells: &[String], tag: &str) -> String {
    let cells: Vec<String> =
        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
    format!("<tr>{}</tr>\n", cells.concat())
}
