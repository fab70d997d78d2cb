//! Rotary tables: the frequencies of a rotary position embedding, scaled as the model was trained.

use rushlight_asset::config::{Rope, RopeFrequencies, RopeScaling};

use crate::error::{IrError, IrErrorKind};

/// A rotary embedding's frequencies: at position `p`, pair `i` of a head turns by
/// `p · inv_freq[i]`, and the result is multiplied by `magnitude`.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    inv_freq: Vec<f32>,
    magnitude: f32,
}

impl RopeTable {
    /// The table of a configuration.
    ///
    /// # Errors
    /// [`IrErrorKind::Config`] for an odd or zero dimension, a base of 1 or less, factors that do not
    /// fit, or values that together make a frequency that is no number.
    pub fn new(rope: &Rope) -> Result<RopeTable, IrError> {
        if rope.dim == 0 || !rope.dim.is_multiple_of(2) {
            return Err(config_error(format!("dimension {} is not even", rope.dim)));
        }
        // At 1 all pairs turn alike, and YaRN divides by its logarithm.
        if !(rope.theta.is_finite() && rope.theta > 1.0) {
            return Err(config_error(format!("theta {} is not above 1", rope.theta)));
        }
        let half = rope.dim / 2;
        let base: Vec<f32> = (0..half)
            .map(|i| 1.0 / rope.theta.powf(2.0 * i as f32 / rope.dim as f32))
            .collect();
        let (inv_freq, magnitude) = match &rope.scaling {
            RopeScaling::None => (base, 1.0),
            RopeScaling::Linear { factor } => {
                positive("linear factor", *factor)?;
                (base.iter().map(|f| f / factor).collect(), 1.0)
            }
            RopeScaling::Factors { factors } => {
                if factors.len() != half {
                    return Err(config_error(format!(
                        "{} frequency factors for {half} frequencies",
                        factors.len()
                    )));
                }
                for &factor in factors {
                    positive("frequency factor", factor)?;
                }
                let scaled = base.iter().zip(factors).map(|(f, factor)| f / factor);
                (scaled.collect(), 1.0)
            }
            &RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_context,
            } => {
                positive("llama3 factor", factor)?;
                positive("low_freq_factor", low_freq_factor)?;
                if high_freq_factor <= low_freq_factor || !high_freq_factor.is_finite() {
                    return Err(config_error(format!(
                        "high_freq_factor {high_freq_factor} is not above low_freq_factor {low_freq_factor}"
                    )));
                }
                let original = original_context as f32;
                let scaled = base.iter().map(|&f| {
                    let wavelength = 2.0 * std::f32::consts::PI / f;
                    if wavelength > original / low_freq_factor {
                        f / factor
                    } else if wavelength < original / high_freq_factor {
                        f
                    } else {
                        let smooth = (original / wavelength - low_freq_factor)
                            / (high_freq_factor - low_freq_factor);
                        (1.0 - smooth) * f / factor + smooth * f
                    }
                });
                (scaled.collect(), 1.0)
            }
            &RopeScaling::Yarn {
                factor,
                original_context,
                beta_fast,
                beta_slow,
                attention_factor,
            } => {
                positive("yarn factor", factor)?;
                positive("beta_fast", beta_fast)?;
                positive("beta_slow", beta_slow)?;
                // The pair whose frequency makes `rotations` turns over the original context.
                let pair_of = |rotations: f32| {
                    let turns = original_context as f32 / (rotations * 2.0 * std::f32::consts::PI);
                    rope.dim as f32 * turns.ln() / (2.0 * rope.theta.ln())
                };
                let low = pair_of(beta_fast).floor().max(0.0);
                let high = pair_of(beta_slow).ceil().min(rope.dim as f32 - 1.0);
                // A ramp of no width would divide by zero.
                let width = if low == high { 0.001 } else { high - low };
                let scaled = base.iter().enumerate().map(|(i, &f)| {
                    let interpolated = ((i as f32 - low) / width).clamp(0.0, 1.0);
                    f / factor * interpolated + f * (1.0 - interpolated)
                });
                let magnitude = attention_factor.unwrap_or_else(|| {
                    if factor <= 1.0 {
                        1.0
                    } else {
                        0.1 * factor.ln() + 1.0
                    }
                });
                positive("attention_factor", magnitude)?;
                (scaled.collect(), magnitude)
            }
        };
        if let Some(pair) = inv_freq.iter().position(|f| !f.is_finite()) {
            return Err(config_error(format!(
                "theta {} and the scaling make the frequency of pair {pair} {}",
                rope.theta, inv_freq[pair]
            )));
        }
        Ok(RopeTable {
            inv_freq,
            magnitude,
        })
    }

    /// The same table with its frequencies held as `precision` says.
    #[must_use]
    pub fn held_as(mut self, precision: RopeFrequencies) -> RopeTable {
        match precision {
            RopeFrequencies::F32 => {}
            RopeFrequencies::Bf16 => {
                for f in &mut self.inv_freq {
                    *f = half::bf16::from_f32(*f).to_f32();
                }
            }
        }
        self
    }

    /// Elements of a head that rotate.
    pub fn dim(&self) -> usize {
        2 * self.inv_freq.len()
    }

    /// Angle in radians a position, of each pair.
    pub fn inv_freq(&self) -> &[f32] {
        &self.inv_freq
    }

    /// Multiplies sine and cosine.
    pub fn magnitude(&self) -> f32 {
        self.magnitude
    }

    /// Writes cosine and sine of one position, `dim / 2` each, magnitude included.
    pub fn fill(&self, position: usize, cos: &mut [f32], sin: &mut [f32]) {
        for ((freq, cos), sin) in self.inv_freq.iter().zip(cos).zip(sin) {
            let (s, c) = (position as f32 * freq).sin_cos();
            *cos = c * self.magnitude;
            *sin = s * self.magnitude;
        }
    }
}

fn positive(field: &str, value: f32) -> Result<(), IrError> {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    Err(config_error(format!("{field} {value} is not positive")))
}

fn config_error(message: String) -> IrError {
    IrError::new(IrErrorKind::Config, "rope", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(dim: usize, scaling: RopeScaling) -> RopeTable {
        RopeTable::new(&Rope {
            theta: 10000.0,
            dim,
            scaling,
        })
        .unwrap()
    }

    #[test]
    fn frequencies_fall_by_powers_of_theta() {
        let t = table(4, RopeScaling::None);
        assert_eq!(t.inv_freq(), [1.0, 0.01]);
        let (mut cos, mut sin) = ([0.0; 2], [0.0; 2]);
        t.fill(3, &mut cos, &mut sin);
        assert_eq!(cos[0], 3f32.cos());
        assert_eq!(sin[1], 0.03f32.sin());
    }

    #[test]
    fn linear_divides_positions() {
        let t = table(4, RopeScaling::Linear { factor: 4.0 });
        assert_eq!(t.inv_freq(), [0.25, 0.0025]);
    }

    #[test]
    fn llama3_keeps_high_and_divides_low_frequencies() {
        let t = table(
            16,
            RopeScaling::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_context: 64,
            },
        );
        let plain = table(16, RopeScaling::None);
        assert_eq!(t.inv_freq()[0], plain.inv_freq()[0]);
        assert_eq!(t.inv_freq()[7], plain.inv_freq()[7] / 8.0);
    }

    #[test]
    fn yarn_scales_the_magnitude_by_its_rule() {
        let t = table(
            16,
            RopeScaling::Yarn {
                factor: 4.0,
                original_context: 64,
                beta_fast: 32.0,
                beta_slow: 1.0,
                attention_factor: None,
            },
        );
        assert!((t.magnitude() - (0.1 * 4f32.ln() + 1.0)).abs() < 1e-6);
    }

    #[test]
    fn a_base_and_factors_without_frequencies_are_refused() {
        let yarn = |factor, beta_fast| RopeScaling::Yarn {
            factor,
            original_context: 64,
            beta_fast,
            beta_slow: 1.0,
            attention_factor: Some(1.0),
        };
        for (theta, scaling, word) in [
            (1.0, RopeScaling::None, "theta 1"),
            (1.0, yarn(4.0, 32.0), "theta 1"),
            (0.5, RopeScaling::None, "theta 0.5"),
            (f32::NAN, RopeScaling::None, "theta NaN"),
            (1e4, RopeScaling::Linear { factor: 1e-40 }, "pair 0 inf"),
            (1e4, yarn(1e-40, 32.0), "pair"),
        ] {
            let error = RopeTable::new(&Rope {
                theta,
                dim: 8,
                scaling,
            })
            .unwrap_err();
            assert_eq!(*error.kind(), IrErrorKind::Config);
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn a_factor_of_zero_is_refused() {
        let rope = Rope {
            theta: 10000.0,
            dim: 4,
            scaling: RopeScaling::Linear { factor: 0.0 },
        };
        assert_eq!(
            *RopeTable::new(&rope).unwrap_err().kind(),
            IrErrorKind::Config
        );
    }
}
