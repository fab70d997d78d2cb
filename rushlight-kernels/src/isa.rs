//! Which instruction set the kernels run on: detected once, chosen by value, dispatched in one place.

use std::fmt;

use crate::simd::{Scalar, Simd};

/// An instruction set that this machine has.
///
/// A value is a proof: [`Isa::detect`] and [`Isa::available`] give only what the processor
/// supports, so no kernel can be asked to run instructions that do not exist here.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Isa(Kind);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Isa {
    /// Portable code: the same arithmetic in the same order, one lane after another.
    pub const SCALAR: Isa = Isa(Kind::Scalar);

    /// The fastest instruction set of this machine.
    pub fn detect() -> Isa {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("fma")
            && std::arch::is_x86_feature_detected!("f16c")
        {
            return Isa(Kind::Avx2);
        }
        Isa::SCALAR
    }

    /// Every instruction set of this machine, slowest first.
    pub fn available() -> Vec<Isa> {
        let mut all = vec![Isa::SCALAR];
        let best = Isa::detect();
        if best != Isa::SCALAR {
            all.push(best);
        }
        all
    }

    /// The name that logs and benchmarks use.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
        }
    }

    /// Runs `kernel` compiled for this instruction set.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Kind::Scalar => kernel.run(Scalar),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Kind::Avx2` is made only by `detect`, after it saw avx2, fma and f16c.
            Kind::Avx2 => unsafe { crate::simd::run_avx2(kernel) },
        }
    }
}

impl fmt::Debug for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An algorithm written once over [`Simd`]: `run` must be `#[inline(always)]`, so that it is
/// compiled with the features of the function that dispatches to it.
pub(crate) trait Kernel {
    /// What the kernel returns.
    type Output;
    /// The algorithm.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}
