//! `rushlight models`: what the store has.

use rushlight::asset::Store;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Out, note};

pub(crate) fn run(out: &Out) -> Result<(), Failure> {
    let store = Store::open_default()?;
    let models = store.list()?;
    if out.is_json() {
        let models = models
            .iter()
            .map(|model| json!({"name": model.name, "path": model.path}));
        return out.json(&json!({
            "store": store.models(),
            "models": models.collect::<Vec<Value>>(),
        }));
    }
    if models.is_empty() {
        note(format_args!("no models in {}", store.models().display()));
    }
    models.iter().try_for_each(|model| out.line(&model.name))
}
