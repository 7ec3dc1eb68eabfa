//! A folder is opened whole or refused with the name of what is wrong.

use std::{fs, path::Path};

use hearth_weights::{
    Checkpoint, Dtype, Error, Float, Format,
    safetensors::{Slot, header},
};
use serde_json::json;
use tempfile::TempDir;

/// A shard of vectors of one number each.
fn shard(names: &[&str]) -> Vec<u8> {
    let dtype = Dtype::Float(Float::F32);
    let slots: Vec<Slot> =
        names.iter().map(|&name| Slot { name: name.to_owned(), dtype, shape: vec![1] }).collect();
    let mut file = header(&slots);
    slots.iter().for_each(|_| file.extend(1f32.to_le_bytes()));
    file
}

/// A folder with a config and these files.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("config.json"), r#"{"model_type": "llama"}"#).unwrap();
    for (name, bytes) in files {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    dir
}

fn names(path: &Path) -> Vec<String> {
    Checkpoint::open(path).unwrap().names().map(str::to_owned).collect()
}

fn error(path: &Path) -> Error {
    Checkpoint::open(path).unwrap_err()
}

#[test]
fn shards_are_found_with_and_without_an_index() {
    let (one, two) = (shard(&["a", "b"]), shard(&["c"]));
    let single = folder(&[("model.safetensors", &one), ("consolidated.safetensors", &two)]);
    assert_eq!(names(single.path()), ["a", "b"]);
    let index = json!({"weight_map": {
        "a": "model-00001-of-00002.safetensors", "b": "model-00001-of-00002.safetensors",
        "c": "model-00002-of-00002.safetensors"}});
    let first = ("model-00001-of-00002.safetensors", &one[..]);
    let second = ("model-00002-of-00002.safetensors", &two[..]);
    let sharded = folder(&[first, second]);
    assert_eq!(names(sharded.path()), ["a", "b", "c"]);
    let index = index.to_string();
    let stray = shard(&["d"]);
    let indexed = folder(&[
        first,
        second,
        ("model.safetensors.index.json", index.as_bytes()),
        ("model-old.safetensors", &stray),
    ]);
    let checkpoint = Checkpoint::open(indexed.path()).unwrap();
    assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(checkpoint.format(), Format::HuggingFace);
    assert!(checkpoint.warnings()[0].contains("model-old.safetensors"));
}

#[test]
fn draft_heads_beside_a_model_are_found_wherever_they_lie() {
    let (trunk, head, bare) = (shard(&["a"]), shard(&["mtp.fc"]), shard(&["fc", "model.norm"]));
    let model = ("model.safetensors", &trunk[..]);
    let index = json!({"weight_map": {"a": "model.safetensors", "mtp.fc": "mtp.safetensors"}});
    let index = index.to_string();
    let indexed = folder(&[
        model,
        ("model.safetensors.index.json", index.as_bytes()),
        ("mtp.safetensors", &head),
    ]);
    assert_eq!(names(indexed.path()), ["a", "mtp.fc"]);
    for name in ["mtp.safetensors", "model-mtp.safetensors", "mtp_4bit.safetensors"] {
        assert_eq!(names(folder(&[model, (name, &head)]).path()), ["a", "mtp.fc"], "{name}");
        let beside = folder(&[model, (name, &bare)]);
        assert_eq!(names(beside.path()), ["a", "mtp.fc", "mtp.norm"], "{name}");
    }
    let behind = shard(&["model.layers.61.eh_proj.weight"]);
    let beside = folder(&[model, ("mtp.safetensors", &behind)]);
    assert_eq!(names(beside.path()), ["a", "model.layers.61.eh_proj.weight"]);
    let inside = folder(&[model]);
    fs::create_dir(inside.path().join("mtp")).unwrap();
    fs::write(inside.path().join("mtp/weights.safetensors"), &bare).unwrap();
    assert_eq!(names(inside.path()), ["a", "mtp.fc", "mtp.norm"]);
    let named = |file: &str| {
        let dir = folder(&[model]);
        fs::create_dir(dir.path().join("more")).unwrap();
        fs::write(dir.path().join("more/head.safetensors"), &bare).unwrap();
        let config = json!({"model_type": "llama", "mlx_lm_extra_tensors": {"mtp_file": file}});
        fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
        dir
    };
    assert_eq!(names(named("more/head.safetensors").path()), ["a", "mtp.fc", "mtp.norm"]);
    assert_eq!(names(named("../more/head.safetensors").path()), ["a"]);
}

#[test]
fn a_broken_draft_head_is_no_reason_not_to_run() {
    let trunk = shard(&["a"]);
    let dir = folder(&[("model.safetensors", &trunk), ("mtp.safetensors", b"junk")]);
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["a"]);
    let [warning] = checkpoint.warnings() else { panic!("{:?}", checkpoint.warnings()) };
    assert!(warning.contains("mtp.safetensors"), "{warning}");
}

/// Case L03 of public reports, (g).
#[test]
fn a_missing_shard_is_named_before_anything_is_read() {
    // Were the first shard looked at, it would be found to be no safetensors at all.
    let first = ("model-00001-of-00002.safetensors", &b"junk"[..]);
    let index = json!({"weight_map": {
        "a": "model-00001-of-00002.safetensors", "c": "model-00002-of-00002.safetensors"}});
    let index = index.to_string();
    let cases: [&[(&str, &[u8])]; 2] =
        [&[first, ("model.safetensors.index.json", index.as_bytes())], &[first]];
    for files in cases {
        let dir = folder(files);
        let Error::MissingFile { file, .. } = error(dir.path()) else {
            panic!("{}", error(dir.path()))
        };
        assert_eq!(file, dir.path().join("model-00002-of-00002.safetensors"));
    }
}

#[test]
fn a_name_in_two_shards_is_refused() {
    let one = shard(&["a"]);
    let dir = folder(&[
        ("model-00001-of-00002.safetensors", &one),
        ("model-00002-of-00002.safetensors", &one),
    ]);
    let message = error(dir.path()).to_string();
    assert!(message.contains("tensor a") && message.contains("model-00001-of-00002"), "{message}");
}

#[test]
fn what_is_no_model_says_why() {
    let check = |files: &[(&str, &[u8])], part: &str| {
        let dir = folder(files);
        let message = error(dir.path()).to_string();
        assert!(message.contains(part), "{message}");
    };
    check(&[], "neither config.json with model*.safetensors nor a .gguf file");
    check(&[("a.gguf", b""), ("b.gguf", b"")], "2 GGUF models");
    let good = shard(&["a"]);
    check(&[("model.safetensors", &good), ("config.json", b"{")], "config.json: line 1");
    check(&[("model.safetensors", &good), ("config.json", b"[]")], "expected an object");
    for index in ["{}", r#"{"weight_map": []}"#, r#"{"weight_map": {"a": 1}}"#] {
        let file = ("model.safetensors.index.json", index.as_bytes());
        check(&[("model.safetensors", &good), file], "weight_map");
    }
    let outside = br#"{"weight_map": {"a": "../model.safetensors"}}"#;
    let file = ("model.safetensors.index.json", &outside[..]);
    check(&[("model.safetensors", &good), file], "beside the index");
    check(&[("model.safetensors", b"")], "0 bytes are too few");
    assert!(matches!(error(Path::new("/no/such/model")), Error::Io { .. }));
}

#[test]
fn the_chat_template_is_the_most_particular_one() {
    let good = shard(&["a"]);
    let named = br#"{"chat_template": [{"name": "default", "template": "D"},
        {"name": "tool_use", "template": "T"}, {"name": "rag", "template": "R"}]}"#;
    let check = |files: &[(&str, &[u8])], chat: Option<&str>, tool: Option<&str>| {
        let dir = folder(&[&[("model.safetensors", &good[..])], files].concat());
        let text = Checkpoint::open(dir.path()).unwrap().text;
        assert_eq!((text.chat_template.as_deref(), text.tool_template.as_deref()), (chat, tool));
    };
    let config = ("tokenizer_config.json", &br#"{"chat_template": "C"}"#[..]);
    let json = ("chat_template.json", &br#"{"chat_template": "J"}"#[..]);
    let jinja = ("chat_template.jinja", &b"X"[..]);
    check(&[], None, None);
    check(&[config], Some("C"), None);
    check(&[config, json], Some("J"), None);
    check(&[config, json, jinja], Some("X"), None);
    check(&[("tokenizer_config.json", named)], Some("D"), Some("T"));
}
