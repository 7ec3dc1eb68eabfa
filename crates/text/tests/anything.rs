//! Bytes of any kind as answers and as chat templates. The fuzz targets `answers` and `templates` do the same
//! for as long as one likes; here it is a bounded number of bytes at random.

#[path = "anything/mod.rs"]
mod anything;

use proptest::prelude::*;

/// Mostly short, since what goes wrong is short.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => proptest::collection::vec(any::<u8>(), 0..400),
    ]
}

/// What was once read in two ways.
#[test]
fn bytes_that_were_found_to_be_wrong() {
    // In thoughts a call that is none, then what is certainly one, then their end.
    anything::answer(&[206, 196, 0, 0, 1, 177, 14, 128, 187]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn any_bytes_are_an_answer(data in bytes()) {
        anything::answer(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn any_bytes_are_a_template(data in bytes()) {
        anything::template(&data);
    }
}
