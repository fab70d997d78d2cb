//! Importers: one for each container, all of which leave the same [`Checkpoint`].

pub mod gguf;
pub mod huggingface;

mod check;
mod number;

use std::fs;
use std::path::{Path, PathBuf};

use crate::checkpoint::Checkpoint;
use crate::error::{AssetError, ErrorKind};

/// Finds out what a path holds and imports it; see [`Checkpoint::open`].
pub(crate) fn open(path: &Path) -> Result<Checkpoint, AssetError> {
    refuse_assets(path)?;
    let about = fs::metadata(path).map_err(|e| AssetError::io(path, "find the model", e))?;
    if about.is_dir() {
        return open_directory(path);
    }
    if extension(path) == "safetensors" {
        return Err(AssetError::new(
            ErrorKind::NotACheckpoint,
            "a safetensors file holds weights only: give the directory that has config.json too",
        )
        .in_file(path));
    }
    gguf::open(path)
}

/// Refuses the assets of bundles by name alone, before the disk is touched.
pub(crate) fn refuse_assets(path: &Path) -> Result<(), AssetError> {
    let message = match extension(path).as_str() {
        "aimodel" | "aimodelc" => {
            "this is one of Apple's model assets, which only Apple's runtime can run: \
             give a GGUF file or a Hugging Face directory of the same model"
        }
        "rlmodel" | "rlmodelc" => {
            "this is one asset inside a bundle: give the bundle, the directory that holds it"
        }
        _ => return Ok(()),
    };
    Err(AssetError::new(ErrorKind::PointedAtAsset, message).in_file(path))
}

fn open_directory(path: &Path) -> Result<Checkpoint, AssetError> {
    if path.join("config.json").is_file() {
        return huggingface::open(path);
    }
    let mut models: Vec<PathBuf> = Vec::new();
    let entries = fs::read_dir(path).map_err(|e| AssetError::io(path, "list the directory", e))?;
    for entry in entries {
        let file = entry
            .map_err(|e| AssetError::io(path, "list the directory", e))?
            .path();
        // Later parts of a split model come with their first.
        if extension(&file) == "gguf" && gguf::part_number(&file).is_none_or(|part| part == 1) {
            models.push(file);
        }
    }
    models.sort();
    match models.as_slice() {
        [model] => gguf::open(model),
        [] => Err(AssetError::new(
            ErrorKind::NotACheckpoint,
            "neither config.json nor a .gguf file is in this directory",
        )
        .in_file(path)),
        several => Err(AssetError::new(
            ErrorKind::NotACheckpoint,
            format!(
                "this directory holds {} GGUF models; name one of {}",
                several.len(),
                several
                    .iter()
                    .filter_map(|model| model.file_name())
                    .map(|name| name.to_string_lossy())
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        )
        .in_file(path)),
    }
}

fn extension(path: &Path) -> String {
    path.extension()
        .map(|extension| extension.to_string_lossy().to_ascii_lowercase())
        .unwrap_or_default()
}
