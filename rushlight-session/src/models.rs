//! Loaded models by path, each loaded once.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rushlight_engine::EngineError;
use rushlight_engine::load::{LoadState, Loader};
use rushlight_ir::backend::Backend;

use crate::error::SessionError;
use crate::local::{LoadOptions, LocalModel, Summary};
use crate::model::Availability;

/// Loaded models by path, shared by everyone who asks.
///
/// However many callers ask for a model at once, it is loaded once. A load that fails is told to
/// everyone who waited for it and then forgotten, so the next caller tries again. An evicted model
/// lives until its last session ends; who asks for it before that gets the same one, so that it is
/// never in memory twice.
pub struct Models {
    backend: Arc<dyn Backend>,
    options: LoadOptions,
    loader: Loader<PathBuf, LocalModel>,
}

impl Models {
    /// No models yet; all will be loaded onto `backend` with these options.
    pub fn new(backend: Arc<dyn Backend>, options: LoadOptions) -> Models {
        Models {
            backend,
            options,
            loader: Loader::new(),
        }
    }

    /// The model at `path`, loaded unless it is there or on its way. `progress` is told bytes done
    /// and bytes in all where this caller is the one that loads.
    ///
    /// # Errors
    /// As [`LocalModel::load`], the same for all who waited.
    pub fn load(
        &self,
        path: &Path,
        progress: Option<&dyn Fn(u64, u64)>,
    ) -> Result<Arc<LocalModel>, SessionError> {
        let load = || {
            LocalModel::open(path, &*self.backend, &self.options, progress)
                .map_err(|error| EngineError::load(path.display(), error.fault(), error))
        };
        Ok(self.loader.load(&key(path), load)?)
    }

    /// Whether the model at `path` is loaded, or could be as far as its headers tell.
    pub fn availability(&self, path: &Path) -> Availability {
        match self.loader.state(&key(path)) {
            LoadState::Loaded | LoadState::Retiring => Availability::Available,
            LoadState::Loading | LoadState::Absent => match Summary::read(path) {
                Ok(_) => Availability::Available,
                Err(error) => Availability::Unavailable(error.to_string()),
            },
        }
    }

    /// Lets go of the model at `path`: now, or when its last session ends. A load under way serves
    /// those who wait for it and is not kept.
    pub fn evict(&self, path: &Path) {
        self.loader.unload(&key(path));
    }

    /// Lets go of every model, as [`evict`](Models::evict) does of one.
    pub fn evict_all(&self) {
        self.loader.unload_all();
    }
}

impl std::fmt::Debug for Models {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Models")
            .field("backend", &self.backend.name())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// One key for every spelling of a path. A path that leads nowhere is its own: loading says why.
fn key(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}
