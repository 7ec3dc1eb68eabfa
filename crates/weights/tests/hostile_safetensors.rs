//! No bytes make the safetensors reader panic, reach outside the file, or believe a length.

use std::path::Path;

use hearth_weights::{
    Checkpoint, Dtype, Error, Float, Tensor,
    safetensors::{Slot, header, parse},
};
use proptest::prelude::*;
use serde_json::json;

fn read(bytes: Vec<u8>) -> Result<Vec<Tensor>, Error> {
    parse(Path::new("model.safetensors"), bytes.into())
}

/// A file with this header, whatever it says, and `n` bytes of data.
fn file(header: &str, n: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + n, 7);
    bytes
}

/// A sound file of three arrays.
fn sound() -> Vec<u8> {
    let slot = |name: &str, dtype, shape: &[usize]| Slot {
        name: name.into(),
        dtype,
        shape: shape.to_vec(),
    };
    let slots = [
        slot("m.weight", Dtype::U32, &[2, 8]),
        slot("m.scales", Dtype::Float(Float::F16), &[2, 1]),
        slot("m.biases", Dtype::Float(Float::F16), &[2, 1]),
    ];
    let mut bytes = header(&slots);
    bytes.resize(bytes.len() + slots.iter().map(Slot::n_bytes).sum::<usize>(), 0x33);
    bytes
}

/// Reads what a module's tensors hold, if they are sound.
fn use_tensors(tensors: Vec<Tensor>) {
    let config = json!({"quantization": {"group_size": 64, "bits": 4}});
    let checkpoint = Checkpoint::from_tensors(config, tensors);
    if let Ok(matrix) = checkpoint.matrix("m", 2, 64) {
        matrix.dequantize_row(1, &mut [0.0; 64]);
    }
    for name in checkpoint.names() {
        let _ = checkpoint.vector(name, 2);
    }
    checkpoint.fingerprint();
}

#[test]
fn a_sound_file_is_read_at_any_alignment() {
    let bytes = sound();
    for shift in 0..8 {
        let mut moved = vec![0; shift];
        moved.extend(&bytes);
        let moved = bytes::Bytes::from(moved).slice(shift..);
        let tensors = parse(Path::new("f"), moved).unwrap();
        assert_eq!(tensors.len(), 3);
        use_tensors(tensors);
    }
}

#[test]
fn lies_are_named() {
    let check = |bytes: Vec<u8>, parts: &[&str]| {
        let message = read(bytes).unwrap_err().to_string();
        for part in parts.iter().chain(&["model.safetensors"]) {
            assert!(message.contains(part), "no {part:?} in {message:?}");
        }
    };
    let entry = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    check(vec![], &["0 bytes"]);
    check(vec![1, 2, 3], &["3 bytes"]);
    check(u64::MAX.to_le_bytes().to_vec(), &["claims 18446744073709551615 bytes"]);
    check(file("{}", 0)[..9].to_vec(), &["claims 2 bytes where the file has 1"]);
    check(file("[]", 0), &["cannot be understood"]);
    check(file(&"[".repeat(10_000), 0), &["cannot be understood"]);
    check(file("{\"a\":1}", 0), &["cannot be understood"]);
    check(file("\u{fffd}", 0), &["cannot be understood"]);
    check(file(&entry("F32", "[1]", "[0,4]"), 3), &["tensor a", "within", "3 bytes", "0..4"]);
    check(file(&entry("F32", "[1]", "[4,0]"), 8), &["tensor a", "4..0"]);
    check(file(&entry("F32", "[1]", "[-1,3]"), 8), &["cannot be understood"]);
    check(file(&entry("F32", "[1]", "[0,18446744073709551615]"), 8), &["tensor a"]);
    check(file(&entry("F32", "[2]", "[0,4]"), 8), &["tensor a", "8 bytes", "found 4 bytes"]);
    check(file(&entry("F99", "[1]", "[0,4]"), 8), &["tensor a", "element type", "F99"]);
    let huge = "[4294967296,4294967296,4294967296]";
    check(file(&entry("F32", huge, "[0,4]"), 8), &["tensor a", "shape"]);
    check(file(&entry("F4", "[3]", "[0,1]"), 8), &["tensor a", "whole bytes"]);
    let pair = |b: &str| {
        format!(
            r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},
                "{b}":{{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}}}"#
        )
    };
    check(file(&pair("b"), 8), &["tensor b", "behind those of a", "2..6"]);
    check(file(&pair("a"), 8), &["tensor a", "once", "twice"]);
}

proptest! {
    #[test]
    fn damaged_files_are_read_or_refused(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = sound();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(tensors) = read(bytes) {
            use_tensors(tensors);
        }
    }

    #[test]
    fn headers_of_any_numbers_are_read_or_refused(
        entries in prop::collection::vec(
            ("[mn]\\.(weight|scales|biases)", "F32|F16|U32|U8|F8_E4M3|F4|I64|BOOL|X",
             prop::collection::vec(prop_oneof![0u64..9, any::<u64>()], 0..4),
             prop_oneof![0u64..70, any::<u64>()], prop_oneof![0u64..70, any::<u64>()]),
            0..5,
        ),
        n in 0usize..80,
    ) {
        let entries: Vec<String> = entries
            .into_iter()
            .map(|(name, dtype, shape, begin, end)| format!(
                r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{end}]}}"#
            ))
            .collect();
        if let Ok(tensors) = read(file(&format!("{{{}}}", entries.join(",")), n)) {
            use_tensors(tensors);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(tensors) = read(bytes) {
            use_tensors(tensors);
        }
    }
}
