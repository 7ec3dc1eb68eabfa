//! Feeds any bytes to the safetensors reader and uses what it accepts. Only `Ok` and `Err` are
//! allowed. CONTRIBUTING.md has the command; the fixtures of the `weights` crate make a good corpus.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use serde_json::json;
use weights::{Checkpoint, safetensors};

fuzz_target!(|data: &[u8]| {
    let bytes = data.to_vec().into();
    let Ok(tensors) = safetensors::parse(Path::new("fuzz.safetensors"), bytes) else { return };
    let checkpoint = Checkpoint::from_tensors(
        json!({"quantization": {"group_size": 32, "bits": 4, "b": {"mode": "mxfp4"}, "c": false}}),
        tensors,
    );
    checkpoint.fingerprint();
    let names: Vec<String> = checkpoint.names().map(str::to_owned).collect();
    for name in names {
        let module = name.strip_suffix(".weight").unwrap_or(&name);
        for (rows, cols) in [(1, 32), (2, 64), (2, 1)] {
            if let Ok(matrix) = checkpoint.matrix(module, rows, cols) {
                matrix.dequantize_row(rows - 1, &mut vec![0.0; cols]);
            }
            let _ = checkpoint.experts(module, rows, rows, cols);
            let _ = checkpoint.vector(&name, cols);
        }
    }
});
