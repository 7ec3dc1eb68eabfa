//! The CPU device does what the reference does, and gives a row the same bits whatever is around
//! it.

use backend::conformance::{Tolerance, check, check_equal, check_invariance};
use hearth_cpu::{Activations, Cpu, Isa, Options};

fn cpu(threads: usize, activations: Activations, isa: Option<Isa>) -> Cpu {
    Cpu::new(&Options { threads, activations, isa })
}

#[test]
fn exact_activations_agree_with_the_reference() {
    for isa in [Some(Isa::Scalar), None] {
        check(&cpu(2, Activations::Exact, isa), Tolerance::EXACT);
    }
}

#[test]
fn quantised_activations_agree_roughly() {
    for isa in [Some(Isa::Scalar), None] {
        check(&cpu(2, Activations::Int8, isa), Tolerance::INT8);
    }
}

#[test]
fn a_row_does_not_depend_on_its_neighbours() {
    for activations in [Activations::Int8, Activations::Exact] {
        check_invariance(&cpu(2, activations, None));
    }
    check_invariance(&cpu(1, Activations::Int8, Some(Isa::Scalar)));
}

#[test]
fn threads_and_instruction_sets_change_nothing() {
    for activations in [Activations::Int8, Activations::Exact] {
        let scalar = cpu(1, activations, Some(Isa::Scalar));
        for threads in 1..=4 {
            check_equal(&scalar, &cpu(threads, activations, None));
        }
        for isa in [Isa::Avx2, Isa::Neon, Isa::NeonDotprod] {
            let cpu = cpu(2, activations, Some(isa));
            if cpu.isa() == isa.name() {
                check_equal(&scalar, &cpu);
            }
        }
    }
}

/// For runs under emulation, which say in `HEARTH_TEST_ISA` what they are meant to try.
#[test]
fn the_best_instruction_set_is_the_expected_one() {
    if let Ok(expected) = std::env::var("HEARTH_TEST_ISA") {
        assert_eq!(cpu(1, Activations::Int8, None).isa(), expected);
    }
}
