//! Numbers from files, narrowed with a check.

/// A 64-bit float as 32 bits, if both are finite.
pub(crate) fn narrow(value: f64) -> Option<f32> {
    // Rounding to nearest is what is wanted and `From` does not exist for it.
    #[allow(clippy::cast_possible_truncation)]
    let narrow = value as f32;
    (value.is_finite() && narrow.is_finite()).then_some(narrow)
}
