//! The model store: a folder of models that can be called by name.
//!
//! `$RUSHLIGHT_HOME/models`, else `$XDG_DATA_HOME/rushlight/models`, else
//! `~/.local/share/rushlight/models`. A model is `NAME.gguf` or a directory `NAME`.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{AssetError, ErrorKind};

/// A folder of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    models: PathBuf,
}

impl Store {
    /// The path of a model: `name_or_path` itself where it exists, which needs no store; else what the
    /// default store has by that name.
    ///
    /// # Errors
    /// Those of [`Store::open_default`] and [`Store::resolve`].
    pub fn locate(name_or_path: &str) -> Result<PathBuf, AssetError> {
        let path = Path::new(name_or_path);
        if path.exists() {
            return Ok(path.to_owned());
        }
        Store::open_default()?.resolve(name_or_path)
    }

    /// The user's store. Touches no file, and the folder need not exist.
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
                name_or_path
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
                name
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushlight_testkit::scratch::Scratch;

    fn store(scratch: &Scratch) -> Store {
        Store::at(&scratch.path().join("home"))
    }

    #[test]
    fn where_the_store_is() {
        let with = |variables: &[(&str, &str)]| {
            let variables: Vec<(String, OsString)> = variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), OsString::from(value)))
                .collect();
            Store::from_environment(|wanted| {
                variables
                    .iter()
                    .find(|(name, _)| name == wanted)
                    .map(|(_, value)| value.clone())
            })
        };
        let all = [
            ("RUSHLIGHT_HOME", "/r"),
            ("XDG_DATA_HOME", "/x"),
            ("HOME", "/h"),
        ];
        let path = |from: usize| with(&all[from..]).unwrap().models().to_path_buf();
        assert_eq!(path(0), Path::new("/r/models"));
        assert_eq!(path(1), Path::new("/x/rushlight/models"));
        assert_eq!(path(2), Path::new("/h/.local/share/rushlight/models"));
        let relative = with(&[("XDG_DATA_HOME", "x"), ("HOME", "/h")]).unwrap();
        assert_eq!(relative.models(), path(2));
        assert_eq!(with(&[]).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_missing_store_is_empty() {
        let store = store(&Scratch::new());
        assert_eq!(store.list().unwrap(), []);
        let error = store.resolve("smollm2").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("the store is empty"), "{error}");
        assert!(!store.models().exists(), "looking makes nothing");
    }

    #[test]
    fn list_and_resolve() {
        let scratch = Scratch::new();
        let store = store(&scratch);
        fs::create_dir_all(store.models().join("folder")).unwrap();
        let tiny = store.models().join("tiny.gguf");
        fs::write(&tiny, "one").unwrap();
        fs::write(store.models().join("notes.txt"), "").unwrap();
        fs::write(store.models().join(".tiny.1.part"), "").unwrap();
        let names: Vec<String> = store.list().unwrap().into_iter().map(|m| m.name).collect();
        assert_eq!(names, ["folder", "tiny"]);
        assert_eq!(store.resolve("tiny").unwrap(), tiny);
        assert_eq!(store.resolve("tiny.gguf").unwrap(), tiny);
        assert_eq!(
            store.resolve("folder").unwrap(),
            store.models().join("folder")
        );
        let error = store.resolve("tinny").unwrap_err();
        assert!(
            error.to_string().contains("the store has folder, tiny"),
            "{error}"
        );
    }

    #[test]
    fn an_existing_path_outranks_the_store() {
        let scratch = Scratch::new();
        let file = scratch.write("tiny", "path");
        let text = file.to_str().unwrap();
        assert_eq!(store(&scratch).resolve(text).unwrap(), file);
        let absent = format!("{text}/absent.gguf");
        let error = store(&scratch).resolve(&absent).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("no such file"), "{error}");
    }

    #[test]
    fn names_stay_in_the_store() {
        let store = store(&Scratch::new());
        for name in ["", "..x", ".hidden", "a..b", "C:x", "a\nb"] {
            let error = store.resolve(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{name:?}: {error}");
        }
        for path in ["../up", "a/b", "a\\b"] {
            let error = store.resolve(path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{path:?}: {error}");
        }
    }

    #[test]
    fn a_store_that_is_no_folder() {
        let scratch = Scratch::new();
        scratch.write("home", "in the way");
        assert_eq!(store(&scratch).list().unwrap_err().kind(), ErrorKind::Io);
    }
}
