//! What a request leaves unset, filled from the model's own defaults.

use rushlight_asset::GenerationDefaults;
use rushlight_engine::sample::{SampleVocab, SamplingOptions};

use crate::error::{SessionError, SessionErrorKind};
use crate::options::{Filters, GenerationOptions, SamplingMode};

/// Fails where the model's own defaults are outside their ranges: every request that leaves them
/// unset would fail otherwise, and not by its own fault.
pub(super) fn check(
    defaults: &GenerationDefaults,
    vocab: &SampleVocab,
) -> Result<(), SessionError> {
    let filters = Some(SamplingMode::Random(default_filters(defaults)));
    let options = GenerationOptions {
        sampling: filters,
        temperature: defaults.temperature,
        ..GenerationOptions::default()
    };
    resolve(&options, defaults).check(vocab).map_err(|error| {
        let message = format!("the model's own generation defaults cannot be used: {error}");
        SessionError::new(SessionErrorKind::GenerationDefaults, message).with_source(error)
    })
}

/// How the model's makers would have it sampled.
pub(super) fn default_mode(defaults: &GenerationDefaults) -> SamplingMode {
    if defaults.do_sample == Some(false) || defaults.temperature == Some(0.0) {
        SamplingMode::Greedy
    } else {
        SamplingMode::Random(default_filters(defaults))
    }
}

/// The engine's options for a request.
pub(super) fn resolve(
    options: &GenerationOptions,
    defaults: &GenerationDefaults,
) -> SamplingOptions {
    let silent = SamplingOptions::default();
    let mode = options.sampling.unwrap_or(match default_mode(defaults) {
        // Asking for a temperature is asking for a draw, also where the model is greedy by default.
        SamplingMode::Greedy if options.temperature.is_some() => {
            SamplingMode::Random(default_filters(defaults))
        }
        mode => mode,
    });
    // A default of 0 says "greedy", which a request for a draw has overruled.
    let default_temperature = defaults
        .temperature
        .filter(|&temperature| temperature != 0.0);
    let temperature = options.temperature.or(default_temperature);
    let (temperature, filters) = match mode {
        // A temperature that is none at all is refused later, not lost here.
        SamplingMode::Greedy => match options.temperature {
            Some(wrong) if !(wrong.is_finite() && wrong >= 0.0) => (wrong, Filters::default()),
            _ => (0.0, Filters::default()),
        },
        SamplingMode::Random(filters) => (temperature.unwrap_or(silent.temperature), filters),
    };
    SamplingOptions {
        temperature,
        top_k: filters.top_k,
        top_p: filters.top_p,
        min_p: filters.min_p,
        repetition_penalty: options
            .repetition_penalty
            .or(defaults.repetition_penalty)
            .unwrap_or(silent.repetition_penalty),
        presence_penalty: options.presence_penalty.unwrap_or(silent.presence_penalty),
        frequency_penalty: options
            .frequency_penalty
            .unwrap_or(silent.frequency_penalty),
        penalty_context: options.penalty_context,
        logit_bias: options.logit_bias.clone(),
        seed: options.seed,
        order: options.order.unwrap_or(silent.order),
        logprobs: None,
    }
}

fn default_filters(defaults: &GenerationDefaults) -> Filters {
    Filters {
        // In generation_config.json, 0 keeps all.
        top_k: defaults.top_k.filter(|&k| k > 0),
        top_p: defaults.top_p,
        min_p: defaults.min_p,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gemma() -> GenerationDefaults {
        GenerationDefaults {
            do_sample: Some(true),
            top_k: Some(64),
            top_p: Some(0.95),
            temperature: Some(0.7),
            repetition_penalty: Some(1.1),
            ..GenerationDefaults::default()
        }
    }

    #[test]
    fn what_is_unset_is_the_models_own() {
        let sampling = resolve(&GenerationOptions::default(), &gemma());
        assert_eq!(sampling.temperature, 0.7);
        assert_eq!((sampling.top_k, sampling.top_p), (Some(64), Some(0.95)));
        assert_eq!(sampling.repetition_penalty, 1.1);
        let sampling = resolve(
            &GenerationOptions::default(),
            &GenerationDefaults::default(),
        );
        assert_eq!(sampling, SamplingOptions::default());
    }

    #[test]
    fn a_mode_replaces_the_default_filters_as_a_whole() {
        let options = GenerationOptions {
            sampling: Some(SamplingMode::top_p(0.5)),
            ..GenerationOptions::default()
        };
        let sampling = resolve(&options, &gemma());
        assert_eq!((sampling.top_k, sampling.top_p), (None, Some(0.5)));
        assert_eq!(sampling.temperature, 0.7);
    }

    #[test]
    fn greedy_is_greedy_at_every_temperature() {
        let options = GenerationOptions {
            temperature: Some(0.8),
            ..GenerationOptions::greedy()
        };
        assert_eq!(resolve(&options, &gemma()).temperature, 0.0);
        let options = GenerationOptions {
            sampling: Some(SamplingMode::top_k(40)),
            temperature: Some(0.0),
            ..GenerationOptions::default()
        };
        assert_eq!(resolve(&options, &gemma()).temperature, 0.0);
    }

    #[test]
    fn a_wrong_temperature_is_refused_also_where_sampling_is_greedy() {
        let vocab = SampleVocab::new(10, 10, &[]).unwrap();
        for wrong in [-1.0, f32::NAN, f32::INFINITY] {
            let options = GenerationOptions {
                temperature: Some(wrong),
                ..GenerationOptions::greedy()
            };
            let error = resolve(&options, &gemma()).check(&vocab).unwrap_err();
            assert!(error.to_string().starts_with("temperature is "), "{error}");
        }
    }

    #[test]
    fn a_model_that_is_greedy_by_default_draws_when_asked() {
        for greedy in [
            GenerationDefaults {
                do_sample: Some(false),
                ..gemma()
            },
            GenerationDefaults {
                temperature: Some(0.0),
                ..gemma()
            },
        ] {
            let unset = GenerationOptions::default();
            assert_eq!(resolve(&unset, &greedy).temperature, 0.0);
            let warm = GenerationOptions {
                temperature: Some(0.4),
                ..GenerationOptions::default()
            };
            assert_eq!(resolve(&warm, &greedy).temperature, 0.4);
            assert_eq!(resolve(&warm, &greedy).top_k, Some(64));
            let random = GenerationOptions {
                sampling: Some(SamplingMode::top_k(2)),
                ..GenerationOptions::default()
            };
            assert!(resolve(&random, &greedy).temperature > 0.0);
        }
    }

    #[test]
    fn defaults_out_of_range_are_the_files_fault() {
        let vocab = SampleVocab::new(10, 10, &[]).unwrap();
        check(&gemma(), &vocab).unwrap();
        let wrong = GenerationDefaults {
            top_p: Some(1.5),
            ..gemma()
        };
        let error = check(&wrong, &vocab).unwrap_err();
        assert_eq!(error.kind(), &SessionErrorKind::GenerationDefaults);
        assert_eq!(error.fault(), rushlight_engine::Fault::File);
        assert!(error.to_string().contains("top_p is 1.5"), "{error}");
    }
}
