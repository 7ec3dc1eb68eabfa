//! The reference keeps the promises that it defines. That its numbers are right is for the model
//! families' goldens to say.

use hearth_backend::conformance::{Tolerance, check, check_invariance};
use hearth_backend::reference::Reference;

#[test]
fn agrees_with_itself() {
    check(&Reference, Tolerance { linear: 0.0, other: 0.0 });
}

#[test]
fn a_row_does_not_depend_on_its_neighbours() {
    check_invariance(&Reference);
}
