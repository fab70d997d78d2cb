//! GGUF files, versions 2 and 3, little-endian, whole or split.

mod config;
mod cursor;
mod header;
mod metadata;
mod tokenizer;

pub use header::{Header, TensorInfo};
pub use metadata::{Array, Metadata, Value};

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Format;
use crate::checkpoint::{Checkpoint, Container, SourceInfo};
use crate::error::{AssetError, ErrorKind};
use crate::import::check;
use crate::limits;
use crate::names::{self, Dialect};
use crate::tokenizer::TokenizerSource;
use crate::weights::{MappedFile, Stored, Tensor, Weights};

/// Imports a GGUF model from its file, or from any part of a split one.
///
/// # Errors
/// Those of [`Header::parse`]; [`ErrorKind::Missing`] where a part, key or tensor is absent;
/// [`ErrorKind::Mismatch`] where parts, vocabulary and weights disagree; [`ErrorKind::Unsupported`]
/// for metadata that changes the mathematics and is not honoured.
pub fn open(path: &Path) -> Result<Checkpoint, AssetError> {
    let parts = open_parts(path)?;
    let first = parts
        .first()
        .ok_or_else(|| AssetError::new(ErrorKind::Missing, "a model of no parts").in_file(path))?;
    import(path, first, &parts).map_err(|e| e.in_file(first.file.path()))
}

/// The one-based number in a split file's name (`NAME-00002-of-00005.gguf` is part 2).
pub(crate) fn part_number(path: &Path) -> Option<u64> {
    split_name(path).map(|name| name.part)
}

struct Part {
    file: Arc<MappedFile>,
    header: Header,
}

impl Part {
    fn open(path: &Path) -> Result<Part, AssetError> {
        let file = MappedFile::open(path)?;
        let header = Header::parse(file.bytes()).map_err(|e| e.in_file(path))?;
        // Zeros read past a shortened end may parse; the file's word is gone all the same.
        file.intact()?;
        Ok(Part {
            file: Arc::new(file),
            header,
        })
    }

    /// `(split.no, split.count)`, where the file is a part of several.
    fn split(&self) -> Result<Option<(u64, u64)>, AssetError> {
        let metadata = &self.header.metadata;
        let count = metadata.uint(SPLIT_COUNT)?.unwrap_or(0);
        if count <= 1 {
            return Ok(None);
        }
        if count > limits::PARTS {
            return Err(metadata.fault(
                SPLIT_COUNT,
                ErrorKind::Limit,
                format!("{count} parts; at most {} are accepted", limits::PARTS),
            ));
        }
        let number = metadata.uint(SPLIT_NO)?.ok_or_else(|| {
            metadata.fault(SPLIT_NO, ErrorKind::Missing, "a part that has no number")
        })?;
        Ok(Some((number, count)))
    }
}

const SPLIT_NO: &str = "split.no";
const SPLIT_COUNT: &str = "split.count";
const SPLIT_TENSORS: &str = "split.tensors.count";

/// Opens every part of a model, in order.
fn open_parts(path: &Path) -> Result<Vec<Part>, AssetError> {
    let opened = Part::open(path)?;
    let Some((number, count)) = opened.split().map_err(|e| e.in_file(path))? else {
        return Ok(vec![opened]);
    };
    let name = split_name(path).ok_or_else(|| {
        opened
            .header
            .metadata
            .fault(
                SPLIT_COUNT,
                ErrorKind::Missing,
                format!(
                    "this is part {} of {count}, but the file's name does not say so: \
                     name the parts NAME-00001-of-{count:05}.gguf and so on",
                    number.saturating_add(1)
                ),
            )
            .in_file(path)
    })?;
    if (name.part, name.count) != (number.saturating_add(1), count) {
        return Err(contradiction(name.part, name.count, Some((number, count))).in_file(path));
    }
    let mut opened = Some(opened);
    let mut parts = Vec::new();
    for index in 0..count {
        let file = path.with_file_name(name.sibling(index + 1, count));
        let part = match opened.take_if(|_| index == number && file == path) {
            Some(part) => part,
            None => Part::open(&file).map_err(|e| match e.kind() {
                ErrorKind::NotFound => AssetError::new(
                    ErrorKind::Missing,
                    format!("part {} of {count} is not there", index + 1),
                )
                .in_file(&file),
                _ => e,
            })?,
        };
        let stated = part.split().map_err(|e| e.in_file(&file))?;
        if stated != Some((index, count)) {
            return Err(contradiction(index + 1, count, stated).in_file(&file));
        }
        parts.push(part);
    }
    check_tensor_count(&parts)?;
    Ok(parts)
}

/// A file whose name and metadata (`split.no`, `split.count`) disagree.
fn contradiction(part: u64, count: u64, stated: Option<(u64, u64)>) -> AssetError {
    let metadata = match stated {
        Some((number, of)) => format!("by its metadata part {} of {of}", number.saturating_add(1)),
        None => "by its metadata it is whole".to_owned(),
    };
    AssetError::new(
        ErrorKind::Mismatch,
        format!("by its name part {part} of {count}, {metadata}"),
    )
    .key(SPLIT_NO)
}

fn check_tensor_count(parts: &[Part]) -> Result<(), AssetError> {
    let found: usize = parts.iter().map(|part| part.header.tensors.len()).sum();
    for part in parts {
        let stated = part.header.metadata.uint(SPLIT_TENSORS);
        let stated = stated.map_err(|e| e.in_file(part.file.path()))?;
        if let Some(stated) = stated
            && usize::try_from(stated) != Ok(found)
        {
            return Err(part
                .header
                .metadata
                .fault(
                    SPLIT_TENSORS,
                    ErrorKind::Mismatch,
                    format!("{stated} tensors in all parts together, but they hold {found}"),
                )
                .in_file(part.file.path()));
        }
    }
    Ok(())
}

struct SplitName {
    stem: String,
    /// From 1 on.
    part: u64,
    count: u64,
}

impl SplitName {
    fn sibling(&self, part: u64, count: u64) -> PathBuf {
        PathBuf::from(format!("{}-{part:05}-of-{count:05}.gguf", self.stem))
    }
}

fn split_name(path: &Path) -> Option<SplitName> {
    let name = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
    let (rest, count) = name.rsplit_once("-of-")?;
    let (stem, part) = rest.rsplit_once('-')?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(count) || !digits(part) {
        return None;
    }
    Some(SplitName {
        stem: stem.to_owned(),
        part: part.parse().ok()?,
        count: count.parse().ok()?,
    })
}

fn import(path: &Path, first: &Part, parts: &[Part]) -> Result<Checkpoint, AssetError> {
    let metadata = &first.header.metadata;
    let mut config = config::read(metadata, rope_divisors(parts)?)?;
    check::config(&config)?;
    let mut weights = Weights::spelled_as(Dialect::Gguf);
    for part in parts {
        weights.add_file(Arc::clone(&part.file));
        for info in &part.header.tensors {
            add(&mut weights, info, part, &config)?;
        }
    }
    if weights.is_empty() {
        return Err(AssetError::new(
            ErrorKind::Missing,
            "the file has no weights: it may be a vocabulary or an adapter",
        ));
    }
    config.tied_head = weights.find("head.weight").is_none();
    let tokenizer = tokenizer::read(metadata)?;
    let tokens = tokenizer.as_ref().map(|tokenizer| tokenizer.tokens.len());
    check::vocabulary(config.vocab_size, &weights, tokens)?;
    let generation = tokenizer::generation(metadata, tokenizer.as_ref())?;
    let bytes = |part: &Part| u64::try_from(part.file.bytes().len()).unwrap_or(u64::MAX);
    Ok(Checkpoint {
        config,
        weights,
        tokenizer: match tokenizer {
            Some(tokenizer) => TokenizerSource::Gguf(Box::new(tokenizer)),
            None => TokenizerSource::None,
        },
        generation,
        source: SourceInfo {
            path: path.to_path_buf(),
            files: parts
                .iter()
                .map(|part| part.file.path().to_path_buf())
                .collect(),
            container: Container::Gguf {
                version: first.header.version,
            },
            file_bytes: parts.iter().map(bytes).sum(),
            name: metadata.text("general.name")?.map(str::to_owned),
            metadata: metadata.to_json(),
        },
    })
}

fn add(
    weights: &mut Weights,
    info: &TensorInfo,
    part: &Part,
    config: &crate::config::Config,
) -> Result<(), AssetError> {
    if let Some(reason) = names::skipped(Dialect::Gguf, &info.name) {
        weights.skip(info.name.clone(), reason);
        return Ok(());
    }
    let canonical = names::canonical(Dialect::Gguf, &info.name);
    let recognised = canonical.is_some();
    let name = canonical.unwrap_or_else(|| info.name.clone());
    let heads = if recognised && config::interleaves(&config.architecture) {
        match name.rsplit('.').nth(1) {
            Some("q") => Some(config.heads),
            Some("k") => Some(config.kv_heads),
            _ => None,
        }
    } else {
        None
    };
    let stored = Stored {
        name: info.name.clone(),
        format: info.format,
        shape: info.shape.clone(),
        range: info.offset..info.offset.saturating_add(info.len),
    };
    let mut tensor = Tensor::new(name, stored, &part.file)?;
    if let Some(heads) = heads {
        tensor = tensor.interleaved(heads)?;
    }
    weights.insert(tensor, recognised)
}

/// The contents of `rope_freqs.weight`, where a part has it.
fn rope_divisors(parts: &[Part]) -> Result<Option<Vec<f32>>, AssetError> {
    for part in parts {
        let tensors = &part.header.tensors;
        let Some(info) = tensors.iter().find(|t| t.name == names::ROPE_FREQS) else {
            continue;
        };
        let fault = |kind, message: String| {
            AssetError::new(kind, message)
                .tensor(&info.name)
                .at(u64::try_from(info.offset).unwrap_or(u64::MAX))
                .in_file(part.file.path())
        };
        if info.format != Format::F32 || info.shape.len() != 1 {
            return Err(fault(
                ErrorKind::Unsupported,
                format!("rotary divisors are one row of F32, not {}", info.format),
            ));
        }
        let end = info.offset.saturating_add(info.len);
        let bytes = part.file.bytes().get(info.offset..end).unwrap_or_default();
        let (values, _) = bytes.as_chunks::<4>();
        return Ok(Some(
            values.iter().map(|b| f32::from_le_bytes(*b)).collect(),
        ));
    }
    Ok(None)
}
