//! What Ctrl-C does: stops the answer under way; without one, ends the program.

use std::sync::{Arc, Mutex};

use rushlight::CancelToken;

use crate::failure::{Exit, Failure};

/// The answer that Ctrl-C stops, if there is one.
#[derive(Clone)]
pub(crate) struct Stop(Arc<Mutex<Option<CancelToken>>>);

impl Stop {
    /// Takes Ctrl-C over, once in a program.
    pub(crate) fn install() -> Result<Stop, Failure> {
        let stop = Stop(Arc::default());
        let slot = Arc::clone(&stop.0);
        let handler = move || match slot.lock().as_deref() {
            Ok(Some(token)) => token.cancel(),
            _ => std::process::exit(Exit::Interrupted as i32),
        };
        ctrlc::set_handler(handler)
            .map_err(|error| Failure::request(format!("Ctrl-C cannot be handled: {error}")))?;
        Ok(stop)
    }

    /// Points Ctrl-C at an answer for as long as what is returned lives.
    pub(crate) fn arm(&self, token: CancelToken) -> Armed {
        self.set(Some(token));
        Armed(self.clone())
    }

    fn set(&self, token: Option<CancelToken>) {
        if let Ok(mut slot) = self.0.lock() {
            *slot = token;
        }
    }
}

/// While it lives, Ctrl-C stops one answer.
pub(crate) struct Armed(Stop);

impl Drop for Armed {
    fn drop(&mut self) {
        self.0.set(None);
    }
}
