//! Hugging Face directories: `config.json` and safetensors weights, whole or sharded.

mod config;
mod fields;
mod generation;
mod neutral;
mod rope;
mod safetensors;

pub use safetensors::{Header, TensorInfo};

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::checkpoint::{Checkpoint, Container, GenerationDefaults, SourceInfo};
use crate::error::{AssetError, ErrorKind};
use crate::import::check;
use crate::limits;
use crate::names::{self, Dialect};
use crate::tokenizer::TokenizerSource;
use crate::weights::{MappedFile, Stored, Tensor, Weights};

/// Imports a directory that holds `config.json` and weights.
///
/// Weights are the shards that `model.safetensors.index.json` names, else `model.safetensors`,
/// else the one `.safetensors` file there is. Only F32, F16 and BF16 elements are read.
///
/// # Errors
/// [`ErrorKind::Missing`] where a file, field or tensor is absent; [`ErrorKind::Unsupported`] for a
/// field that changes the mathematics and is not honoured; those of [`Header::parse`];
/// [`ErrorKind::Mismatch`] where index, shards, configuration and weights disagree.
pub fn open(directory: &Path) -> Result<Checkpoint, AssetError> {
    let config_path = directory.join("config.json");
    let object = read_json(&config_path)?;
    let imported = config::read(&object).map_err(|e| e.in_file(&config_path))?;
    let mut config = imported.config;
    check::config(&config).map_err(|e| e.in_file(&config_path))?;
    let (mut weights, files) = read_weights(directory, imported.dialect)?;
    if imported.ties_head == Some(true) {
        // transformers ties after loading, whatever the file has.
        weights.leave_out(
            "head.weight",
            "a copy of the embedding, to which it is tied",
        );
    }
    config.tied_head = imported
        .ties_head
        .unwrap_or_else(|| weights.find("head.weight").is_none());
    check::vocabulary(config.vocab_size, &weights, None)?;
    let generation = read_generation(directory, &object, config.vocab_size)?;
    let file_bytes = files
        .iter()
        .map(|file| u64::try_from(file.bytes().len()).unwrap_or(u64::MAX))
        .sum();
    let name = object.get("_name_or_path").and_then(Value::as_str);
    Ok(Checkpoint {
        config,
        weights,
        tokenizer: tokenizer(directory),
        generation,
        source: SourceInfo {
            path: directory.to_path_buf(),
            files: files.iter().map(|file| file.path().to_path_buf()).collect(),
            container: Container::Safetensors,
            file_bytes,
            name: name.filter(|name| !name.is_empty()).map(str::to_owned),
            metadata: object.into_iter().collect(),
        },
    })
}

fn tokenizer(directory: &Path) -> TokenizerSource {
    let there = |name: &str| Some(directory.join(name)).filter(|path| path.is_file());
    match there("tokenizer.json") {
        Some(tokenizer_json) => TokenizerSource::Files {
            tokenizer_json,
            tokenizer_config: there("tokenizer_config.json"),
        },
        None => TokenizerSource::None,
    }
}

/// `generation_config.json`, else what `config.json` says of end tokens and sampling.
fn read_generation(
    directory: &Path,
    config: &Map<String, Value>,
    vocab_size: usize,
) -> Result<GenerationDefaults, AssetError> {
    let path = directory.join("generation_config.json");
    if path.is_file() {
        let object = read_json(&path)?;
        return generation::read(&object, vocab_size).map_err(|e| e.in_file(&path));
    }
    let path = directory.join("config.json");
    generation::read_from_model(config, vocab_size).map_err(|e| e.in_file(&path))
}

fn read_json(path: &Path) -> Result<Map<String, Value>, AssetError> {
    let about = fs::metadata(path).map_err(|e| AssetError::io(path, "open the file", e))?;
    if !about.is_file() {
        return Err(AssetError::new(ErrorKind::Io, "not a regular file").in_file(path));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(limits::JSON_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|e| AssetError::io(path, "read the file", e))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > limits::JSON_BYTES {
        return Err(AssetError::new(
            ErrorKind::Limit,
            format!("longer than the {} bytes accepted", limits::JSON_BYTES),
        )
        .in_file(path));
    }
    serde_json::from_slice(&bytes).map_err(|e| {
        AssetError::malformed(format!("not a JSON object: {e}"))
            .in_file(path)
            .quoting(&e)
    })
}

fn read_weights(
    directory: &Path,
    dialect: Dialect,
) -> Result<(Weights, Vec<Arc<MappedFile>>), AssetError> {
    let index_path = directory.join("model.safetensors.index.json");
    let index = if index_path.is_file() {
        Some(Index::read(&index_path)?)
    } else {
        None
    };
    let paths = match &index {
        Some(index) => index
            .shards
            .iter()
            .map(|name| directory.join(name))
            .collect(),
        None => vec![only_file(directory)?],
    };
    let mut weights = Weights::spelled_as(dialect);
    let mut files = Vec::new();
    for path in &paths {
        let file = MappedFile::open(path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => {
                AssetError::new(ErrorKind::Missing, "this shard is not there").in_file(path)
            }
            _ => e,
        })?;
        let header = Header::parse(file.bytes()).map_err(|e| e.in_file(path))?;
        file.intact()?;
        let file = Arc::new(file);
        if let Some(index) = &index {
            index.check(path, &header)?;
        }
        weights.add_file(Arc::clone(&file));
        for info in &header.tensors {
            add(&mut weights, info, &file, dialect).map_err(|e| e.in_file(path))?;
        }
        files.push(file);
    }
    if let Some(index) = &index {
        index.check_complete(&index_path, &weights)?;
    }
    if weights.is_empty() {
        return Err(AssetError::new(ErrorKind::Missing, "there are no weights").in_file(directory));
    }
    Ok((weights, files))
}

fn add(
    weights: &mut Weights,
    info: &TensorInfo,
    file: &Arc<MappedFile>,
    dialect: Dialect,
) -> Result<(), AssetError> {
    if let Some(reason) = names::skipped(dialect, &info.name) {
        weights.skip(info.name.clone(), reason);
        return Ok(());
    }
    let canonical = names::canonical(dialect, &info.name);
    let recognised = canonical.is_some();
    let stored = Stored {
        name: info.name.clone(),
        format: info.format()?,
        shape: info.shape.clone(),
        range: info.offset..info.offset.saturating_add(info.len),
    };
    let name = canonical.unwrap_or_else(|| info.name.clone());
    weights.insert(Tensor::new(name, stored, file)?, recognised)
}

/// The weights of a directory without an index.
fn only_file(directory: &Path) -> Result<PathBuf, AssetError> {
    let usual = directory.join("model.safetensors");
    if usual.is_file() {
        return Ok(usual);
    }
    let mut found = Vec::new();
    let io = |e| AssetError::io(directory, "list the directory", e);
    for entry in fs::read_dir(directory).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|e| e == "safetensors") {
            found.push(path);
        }
    }
    let message = match found.len() {
        1 => return found.pop().ok_or_else(|| AssetError::malformed("no file")),
        0 => "config.json is here, but no .safetensors weights are".to_owned(),
        count => format!("{count} .safetensors files and no model.safetensors.index.json"),
    };
    Err(AssetError::new(ErrorKind::Missing, message).in_file(directory))
}

/// `model.safetensors.index.json`: which shard holds which tensor.
struct Index {
    /// Tensor name to shard.
    places: HashMap<String, String>,
    /// Shards in order of name, each once.
    shards: Vec<String>,
}

impl Index {
    fn read(path: &Path) -> Result<Index, AssetError> {
        let object = read_json(path)?;
        let fault = |message: &str| {
            AssetError::malformed(message)
                .key("weight_map")
                .in_file(path)
        };
        let map = object
            .get("weight_map")
            .and_then(Value::as_object)
            .ok_or_else(|| fault("the index has no such object"))?;
        let mut places = HashMap::with_capacity(map.len());
        let mut shards = BTreeMap::new();
        for (tensor, shard) in map {
            let shard = shard
                .as_str()
                .ok_or_else(|| fault("a shard's name should be a string").tensor(tensor))?;
            if !is_plain_name(shard) {
                return Err(AssetError::malformed(format!(
                    "shard `{}` is not the plain name of a file beside the index",
                    shard
                ))
                .tensor(tensor)
                .in_file(path));
            }
            places.insert(tensor.clone(), shard.to_owned());
            shards.insert(shard.to_owned(), ());
        }
        let count = u64::try_from(shards.len()).unwrap_or(u64::MAX);
        if count > limits::PARTS {
            return Err(AssetError::new(
                ErrorKind::Limit,
                format!("{count} shards; at most {} are accepted", limits::PARTS),
            )
            .in_file(path));
        }
        Ok(Index {
            places,
            shards: shards.into_keys().collect(),
        })
    }

    /// Whether the index places every tensor of a shard in that shard.
    fn check(&self, shard: &Path, header: &Header) -> Result<(), AssetError> {
        let name = shard.file_name().and_then(|name| name.to_str());
        for tensor in &header.tensors {
            let place = self.places.get(&tensor.name).map(String::as_str);
            if place != name {
                return Err(AssetError::new(
                    ErrorKind::Mismatch,
                    match place {
                        Some(place) => format!("is here, but the index says it is in {place}"),
                        None => "is here, but the index does not have it".to_owned(),
                    },
                )
                .tensor(&tensor.name)
                .in_file(shard));
            }
        }
        Ok(())
    }

    /// Whether every tensor of the index was in its shard.
    fn check_complete(&self, path: &Path, weights: &Weights) -> Result<(), AssetError> {
        let mut found: std::collections::HashSet<&str> =
            weights.iter().map(Tensor::stored_name).collect();
        found.extend(
            weights
                .skipped()
                .iter()
                .map(|skipped| skipped.name.as_str()),
        );
        let mut absent: Vec<&str> = self
            .places
            .keys()
            .map(String::as_str)
            .filter(|name| !found.contains(name))
            .collect();
        absent.sort_unstable();
        match absent.first() {
            Some(name) => Err(AssetError::new(
                ErrorKind::Missing,
                "the index has this tensor, but its shard does not",
            )
            .tensor(name)
            .in_file(path)),
            None => Ok(()),
        }
    }
}

/// Whether a name stays in its directory whatever the platform makes of it.
fn is_plain_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!(
        (components.next(), components.next()),
        (Some(Component::Normal(_)), None)
    ) && !name.contains(['/', '\\', ':', '\0'])
}
