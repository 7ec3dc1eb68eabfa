//! docs/models.md says of every family what this build says.

use std::path::Path;

use hearth_models::{FAMILIES, support, support_table};

#[test]
fn the_documented_table_is_true() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/models.md");
    let documented = std::fs::read_to_string(path).expect("docs/models.md is there");
    let table = support_table().expect("a table");
    assert!(
        documented.contains(table.trim_end()),
        "docs/models.md has another table than `hearth models --supported` prints:\n{table}"
    );
}

#[test]
fn every_family_says_what_its_layers_are() {
    let all = support().expect("a table");
    assert_eq!(all.len(), FAMILIES.len());
    for family in &all {
        assert!(!family.layers.is_empty() && !family.caches.is_empty(), "{family:?}");
    }
    let of = |name: &str| all.iter().find(|family| family.family == name).expect("it is there");
    let has = |name: &str, layer: &str| of(name).layers.contains(layer);
    assert!(has("qwen3_next", "gated delta") && has("qwen3_next", "experts"));
    assert!(has("gemma4", "sliding attention") && has("gemma4", "layer input"));
    assert!(of("gemma4").caches.contains("another's pages"));
    assert!(of("qwen3_5").caches.contains("a state"));
    assert_eq!(of("qwen2_moe").gguf, ["qwen2moe"]);
}
