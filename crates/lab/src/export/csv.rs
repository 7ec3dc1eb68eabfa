//! One row for every model, cell, measure and arm: the summary, and every single value.

use std::fmt::Write;

use crate::results::{Results, summary};

/// The values as CSV (RFC 4180).
pub fn csv(results: &Results) -> String {
    let mut text = String::from(
        "model,workload,axis,at,measure,unit,arm,n,median,mean,sd,ci_low,ci_high,min,max,outliers,values\r\n",
    );
    for (place, arms) in results.table() {
        for (arm, series) in arms {
            let Some(summary) = summary(&series) else { continue };
            let values: Vec<String> =
                summary.values.iter().map(|value| format!("{value:.4}")).collect();
            let outliers = summary.outliers.iter().filter(|outlier| **outlier).count();
            let cell = &place.cell;
            let words = [&place.model, &cell.workload, &cell.axis].map(|word| quoted(word));
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "{},{},{},{},{},{},{},{},",
                words[0],
                words[1],
                words[2],
                cell.at,
                place.measure.name(),
                place.measure.unit(),
                quoted(&arm),
                values.len()
            );
            let numbers = [
                summary.median,
                summary.mean,
                summary.sd,
                summary.ci[0],
                summary.ci[1],
                summary.min(),
                summary.max(),
            ];
            for number in numbers {
                let _ = write!(text, "{number:.4},");
            }
            let _ = write!(text, "{outliers},{}\r\n", values.join(" "));
        }
    }
    text
}

fn quoted(word: &str) -> String {
    if word.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", word.replace('"', "\"\""))
    } else {
        word.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_with_commas_are_quoted() {
        assert_eq!(quoted("a"), "a");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
