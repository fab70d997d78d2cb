//! The model store: a folder of models that can be called by name.
//!
//! `$RUSHLIGHT_HOME/models`, else `$XDG_DATA_HOME/rushlight/models`, else
//! `~/.local/share/rushlight/models`. A model is `NAME.gguf` or a directory `NAME`.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{AssetError, ErrorKind};

/// A folder of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    models: PathBuf,
}

impl Store {
    /// The user's store. Touches no file: the folder need not exist until something is added.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where neither `RUSHLIGHT_HOME`, `XDG_DATA_HOME` nor a home directory
    /// says where it would be.
    pub fn open_default() -> Result<Store, AssetError> {
        Self::from_environment(|name| env::var_os(name).filter(|value| !value.is_empty()))
    }

    /// A store whose models lie in `home`'s folder `models`.
    pub fn at(home: &Path) -> Store {
        Store {
            models: home.join("models"),
        }
    }

    fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Result<Store, AssetError> {
        if let Some(home) = variable("RUSHLIGHT_HOME") {
            return Ok(Store::at(Path::new(&home)));
        }
        // The XDG specification has relative paths ignored.
        let data = variable("XDG_DATA_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| {
                let home = variable("HOME").or_else(|| variable("USERPROFILE"))?;
                Some(PathBuf::from(home).join(".local").join("share"))
            })
            .ok_or_else(|| {
                AssetError::new(
                    ErrorKind::NotFound,
                    "no home directory to keep models in: set RUSHLIGHT_HOME",
                )
            })?;
        Ok(Store::at(&data.join("rushlight")))
    }

    /// The folder that holds the models.
    pub fn models(&self) -> &Path {
        &self.models
    }

    /// The path of a model: `name_or_path` itself where it exists, else the store's model of that
    /// name (a directory `NAME`, or `NAME` with or without `.gguf`).
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] listing what the store has; [`ErrorKind::Usage`] for a path that does
    /// not exist and cannot be a name.
    pub fn resolve(&self, name_or_path: &str) -> Result<PathBuf, AssetError> {
        let path = Path::new(name_or_path);
        // An asset's path is refused by its name when opened, whether it exists or not.
        if path.exists() || crate::import::refuse_assets(path).is_err() {
            return Ok(path.to_path_buf());
        }
        if name_or_path.contains(['/', '\\']) {
            return Err(
                AssetError::new(ErrorKind::NotFound, "no such file or directory").in_file(path),
            );
        }
        check_name(name_or_path)?;
        for candidate in [name_or_path.to_owned(), format!("{name_or_path}.gguf")] {
            let model = self.models.join(candidate);
            if model.exists() {
                return Ok(model);
            }
        }
        let there: Vec<String> = self.list()?.into_iter().map(|model| model.name).collect();
        let there = match there.as_slice() {
            [] => "the store is empty".to_owned(),
            names => format!("the store has {}", names.join(", ")),
        };
        Err(AssetError::new(
            ErrorKind::NotFound,
            format!(
                "no file and no model of the store ({}) is called `{}`: {there}",
                self.models.display(),
                name_or_path.escape_debug()
            ),
        ))
    }

    /// Every model, by name. Empty where the folder does not exist.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] where the folder cannot be read.
    pub fn list(&self) -> Result<Vec<StoredModel>, AssetError> {
        let io = |e| AssetError::io(&self.models, "list the model store", e);
        let entries = match fs::read_dir(&self.models) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(io(e)),
        };
        let mut models = Vec::new();
        for entry in entries {
            let path = entry.map_err(io)?.path();
            let Some(file_name) = path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            // Unfinished copies and other people's files.
            if file_name.starts_with('.') {
                continue;
            }
            let name = match file_name.strip_suffix(".gguf") {
                Some(name) => name.to_owned(),
                None if path.is_dir() => file_name.to_owned(),
                None => continue,
            };
            models.push(StoredModel { name, path });
        }
        models.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(models)
    }

    /// Copies a GGUF file into the store under `name` (`.gguf` is added where it lacks) and returns
    /// its new path. The copy appears whole or not at all; a model of that name is replaced.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for an ill-formed name; [`ErrorKind::Io`] or [`ErrorKind::NotFound`] where the
    /// file cannot be read or the store cannot be written.
    pub fn add(&self, file: &Path, name: &str) -> Result<PathBuf, AssetError> {
        let name = name.strip_suffix(".gguf").unwrap_or(name);
        check_name(name)?;
        let mut from = File::open(file).map_err(|e| AssetError::io(file, "open the file", e))?;
        fs::create_dir_all(&self.models)
            .map_err(|e| AssetError::io(&self.models, "make the model store", e))?;
        let target = self.models.join(format!("{name}.gguf"));
        // A sibling, so that the rename stays on one file system. The process id keeps two
        // programs apart that add the same model at once.
        let unfinished = self
            .models
            .join(format!(".{name}.{}.part", std::process::id()));
        let copied = File::create(&unfinished)
            .and_then(|mut to| {
                io::copy(&mut from, &mut to)?;
                to.sync_all()
            })
            .and_then(|()| fs::rename(&unfinished, &target));
        if let Err(e) = copied {
            // The first error is the one to tell; what is left begins with a dot and is not listed.
            let _ = fs::remove_file(&unfinished);
            return Err(AssetError::io(&target, "write into the model store", e));
        }
        Ok(target)
    }
}

/// A model of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredModel {
    /// What [`Store::resolve`] calls it.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
}

fn check_name(name: &str) -> Result<(), AssetError> {
    let sound = !name.is_empty()
        && !name.starts_with('.')
        && !name.contains(['/', '\\', ':'])
        && !name.contains("..")
        && !name.chars().any(char::is_control);
    if sound {
        Ok(())
    } else {
        Err(AssetError::new(
            ErrorKind::Usage,
            format!(
                "`{}` cannot name a model: a name is not empty, begins with no dot and has no \
                 separators and no `..`",
                name.escape_debug()
            ),
        ))
    }
}
