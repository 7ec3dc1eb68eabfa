//! Which of some known names a mistyped or unknown one was most likely meant to be.

/// The two or three most similar of `known`, nearest first, as a list for a message.
pub(crate) fn names(wanted: &str, known: &[&str]) -> String {
    let mut ranked: Vec<(usize, &str)> =
        known.iter().map(|name| (distance(wanted, name), *name)).collect();
    ranked.sort();
    let names: Vec<&str> = ranked.iter().take(3).map(|(_, name)| *name).collect();
    names.join(", ")
}

/// Letters to insert, delete or change, with a shared beginning counted in favour: `qwen3_next` is
/// nearer to `qwen3` than to anything of its own length.
fn distance(a: &str, b: &str) -> usize {
    const LONGEST: usize = 64;
    let a: Vec<char> = a.chars().take(LONGEST).collect();
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    let shared = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    (LONGEST + row[b.len()]).saturating_sub(2 * shared)
}
