//! The CPU backend passes the suite on every instruction set of this machine.

use rushlight_conformance::suite;
use rushlight_cpu::CpuBackend;
use rushlight_kernels::Isa;

fn backends() -> impl Iterator<Item = CpuBackend> {
    Isa::available().into_iter().map(CpuBackend::with_isa)
}

#[test]
fn operations() {
    backends().for_each(|backend| suite::operations(&backend));
}

#[test]
fn goldens() {
    backends().for_each(|backend| suite::goldens(&backend));
}

#[test]
fn invariance() {
    backends().for_each(|backend| suite::invariance(&backend));
}

#[test]
fn memory() {
    backends().for_each(|backend| suite::memory(&backend));
}

#[test]
fn refusals() {
    backends().for_each(|backend| suite::refusals(&backend));
}
