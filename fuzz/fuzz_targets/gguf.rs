//! Feeds any bytes to the GGUF reader and uses what it accepts. Only `Ok` and `Err` are allowed.
//! CONTRIBUTING.md has the command; the fixtures of the `weights` crate make a good corpus.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use weights::gguf;

fuzz_target!(|data: &[u8]| {
    let Ok(model) = gguf::from_bytes(Path::new("fuzz.gguf"), data.to_vec().into()) else { return };
    model.fingerprint();
    if let Some(tokenizer) = &model.text.tokenizer {
        let _ = tokenizer.to_json();
    }
    for tensor in model.tensors() {
        assert_eq!(tensor.dtype.n_bytes(&tensor.shape), Some(tensor.data.len()));
        let module = tensor.name.strip_suffix(".weight").unwrap_or(&tensor.name);
        if let [rows, cols] = tensor.shape[..]
            && let Ok(matrix) = model.matrix(module, rows, cols)
        {
            matrix.dequantize_row(rows - 1, &mut vec![0.0; cols]);
        }
    }
});
