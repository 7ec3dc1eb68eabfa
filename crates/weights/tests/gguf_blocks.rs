//! Block dequantisation against gguf-py, bit for bit (goldens: `tools/goldens/gguf_blocks.py`).

use std::fs;

use hearth_weights::{GgufType, gguf::blocks::dequantize};

const N_ELEMENTS: usize = 1024;

fn check(name: &str, ty: GgufType) {
    let path = format!("{}/tests/fixtures/gguf/blocks/{name}.bin", env!("CARGO_MANIFEST_DIR"));
    let golden = fs::read(path).unwrap();
    let (packed, values) = golden.split_at(golden.len() - 4 * N_ELEMENTS);
    let mut out = vec![f32::NAN; N_ELEMENTS];
    dequantize(ty, packed, &mut out);
    for (i, (found, expected)) in out.iter().zip(values.as_chunks::<4>().0).enumerate() {
        let expected = f32::from_le_bytes(*expected);
        assert_eq!(found.to_bits(), expected.to_bits(), "{name}[{i}]: {found} for {expected}");
    }
}

#[test]
fn every_type_means_what_gguf_py_says() {
    check("Q4_0", GgufType::Q4_0);
    check("Q4_1", GgufType::Q4_1);
    check("Q5_0", GgufType::Q5_0);
    check("Q5_1", GgufType::Q5_1);
    check("Q8_0", GgufType::Q8_0);
    check("Q2_K", GgufType::Q2K);
    check("Q3_K", GgufType::Q3K);
    check("Q4_K", GgufType::Q4K);
    check("Q5_K", GgufType::Q5K);
    check("Q6_K", GgufType::Q6K);
    check("IQ4_NL", GgufType::Iq4Nl);
    check("MXFP4", GgufType::Mxfp4);
}
