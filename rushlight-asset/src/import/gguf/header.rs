//! The header of one GGUF file: metadata, and where each tensor lies.
//!
//! The layout is that of the
//! [GGUF specification](https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): magic, version,
//! counts, metadata, tensor table, padding, tensor data. Everything is checked here, so that what
//! is built on a [`Header`] may trust its ranges.

use std::collections::HashSet;

use super::cursor::Cursor;
use super::metadata::Metadata;
use crate::Format;
use crate::error::{AssetError, ErrorKind};
use crate::limits;

/// What stands before the tensor data of one GGUF file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// 2 or 3.
    pub version: u32,
    /// Metadata in file order.
    pub metadata: Metadata,
    /// Tensors in the order of their data.
    pub tensors: Vec<TensorInfo>,
}

/// One tensor's name, shape and place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The file's name for it.
    pub name: String,
    /// How elements are stored.
    pub format: Format,
    /// Outermost dimension first (the file has them the other way round); none is zero.
    pub shape: Vec<usize>,
    /// First byte, from the file's start.
    pub offset: usize,
    /// Bytes of data.
    pub len: usize,
}

impl Header {
    /// Parses the header of a whole file and checks that its tensors tile the rest of it.
    ///
    /// Never panics, and allocates no more than a small multiple of `file`'s length.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`], [`ErrorKind::Limit`] or [`ErrorKind::Unsupported`], with the key
    /// or tensor and the byte offset.
    pub fn parse(file: &[u8]) -> Result<Header, AssetError> {
        let mut cursor = Cursor::new(file);
        magic(&mut cursor)?;
        let version = version(&mut cursor)?;
        let tensor_count_at = cursor.offset();
        let tensor_count = cursor.u64()?;
        let entry_count_at = cursor.offset();
        let entry_count = cursor.u64()?;
        let metadata =
            Metadata::parse(&mut cursor, entry_count).map_err(|e| e.at(entry_count_at))?;
        let tensor_count = cursor
            .check_count(tensor_count, "tensors", limits::TENSORS, Declared::BYTES)
            .map_err(|e| e.at(tensor_count_at))?;
        let alignment = alignment(&metadata)?;
        let mut declared = Vec::with_capacity(tensor_count);
        let mut names = HashSet::with_capacity(tensor_count);
        for _ in 0..tensor_count {
            let tensor = Declared::parse(&mut cursor, alignment)?;
            if !names.insert(tensor.name.clone()) {
                return Err(
                    tensor.fault(ErrorKind::Malformed, "a second tensor has this name".into())
                );
            }
            declared.push(tensor);
        }
        let end = u64::try_from(file.len()).unwrap_or(u64::MAX);
        let tensors = tile(declared, cursor.offset(), end, alignment)?;
        Ok(Header {
            version,
            metadata,
            tensors,
        })
    }
}

fn magic(cursor: &mut Cursor<'_>) -> Result<(), AssetError> {
    let magic = cursor.take(4)?;
    if magic == b"GGUF" {
        return Ok(());
    }
    let guess = match magic {
        b"ggml" | b"lmgg" | b"fmgg" | b"tjgg" | b"ggmf" | b"ggjt" => {
            "this is one of GGUF's predecessors: convert the model again"
        }
        [b'P', b'K', ..] => "this is a zip archive, perhaps PyTorch weights: convert the model",
        [b'<', ..] => "this looks like a web page: the download went wrong",
        b"vers" => "this looks like a Git LFS pointer: fetch the real file",
        _ => "this is no GGUF file",
    };
    Err(AssetError::malformed(format!(
        "begins with `{}` where `GGUF` should be: {guess}",
        magic.escape_ascii()
    ))
    .at(0))
}

fn version(cursor: &mut Cursor<'_>) -> Result<u32, AssetError> {
    let offset = cursor.offset();
    let version = cursor.u32()?;
    let trouble = match version {
        2 | 3 => return Ok(version),
        1 => {
            "GGUF version 1 is not supported; versions 2 and 3 are: convert the model again".into()
        }
        // A big-endian file's version, read as little-endian.
        v if matches!(v.swap_bytes(), 1..=3) => format!(
            "a big-endian GGUF version {} file; little-endian versions 2 and 3 are supported",
            v.swap_bytes()
        ),
        v => format!("GGUF version {v} is not known; versions 2 and 3 are"),
    };
    Err(AssetError::unsupported(trouble).at(offset))
}

fn alignment(metadata: &Metadata) -> Result<u64, AssetError> {
    const KEY: &str = "general.alignment";
    let alignment = metadata.uint(KEY)?.unwrap_or(32);
    if alignment.is_power_of_two() && alignment <= limits::ALIGNMENT {
        Ok(alignment)
    } else {
        Err(metadata.fault(
            KEY,
            ErrorKind::Malformed,
            format!(
                "{alignment} is not a power of two up to {}",
                limits::ALIGNMENT
            ),
        ))
    }
}

/// A row of the tensor table; its offset counts from the start of the data.
struct Declared {
    name: String,
    format: Format,
    shape: Vec<usize>,
    offset: u64,
    len: u64,
    at: u64,
}

impl Declared {
    /// The least a row takes: name length, dimension count, one dimension, type, offset.
    const BYTES: u64 = 8 + 4 + 8 + 4 + 8;

    fn parse(cursor: &mut Cursor<'_>, alignment: u64) -> Result<Declared, AssetError> {
        let at = cursor.offset();
        let name = cursor.string(limits::TENSOR_NAME_BYTES)?;
        Self::parse_rest(cursor, alignment, at, &name).map_err(|e| e.tensor(&name).at(at))
    }

    fn parse_rest(
        cursor: &mut Cursor<'_>,
        alignment: u64,
        at: u64,
        name: &str,
    ) -> Result<Declared, AssetError> {
        if name.is_empty() {
            return Err(AssetError::malformed("a tensor without a name"));
        }
        let dimensions = cursor.u32()?;
        if !(1..=limits::GGUF_DIMENSIONS).contains(&dimensions) {
            return Err(AssetError::malformed(format!(
                "{dimensions} dimensions; a tensor has 1 to {}",
                limits::GGUF_DIMENSIONS
            )));
        }
        let mut shape = Vec::new();
        let mut elements = 1_u64;
        for _ in 0..dimensions {
            let dimension = cursor.u64()?;
            elements = elements
                .checked_mul(dimension)
                .filter(|&product| product > 0)
                .ok_or_else(|| {
                    AssetError::malformed(format!(
                        "dimension {dimension}: the shape is empty or overflows"
                    ))
                })?;
            shape.push(to_usize(dimension)?);
        }
        let cols = shape.first().copied().unwrap_or(1);
        shape.reverse();
        let format = format(cursor.u32()?)?;
        if !cols.is_multiple_of(format.block_len()) {
            return Err(AssetError::malformed(format!(
                "rows of {cols} elements are not whole {format} blocks of {}",
                format.block_len()
            )));
        }
        let rows = elements / u64::try_from(cols).unwrap_or(u64::MAX);
        let len = format
            .row_bytes(cols)
            .and_then(|row_bytes| u64::try_from(row_bytes).ok()?.checked_mul(rows))
            .ok_or_else(|| AssetError::malformed("its size in bytes overflows"))?;
        let offset = cursor.u64()?;
        if !offset.is_multiple_of(alignment) {
            return Err(AssetError::malformed(format!(
                "its data begins at {offset}, which is no multiple of the alignment {alignment}"
            )));
        }
        Ok(Declared {
            name: name.to_owned(),
            format,
            shape,
            offset,
            len,
            at,
        })
    }

    fn fault(&self, kind: ErrorKind, message: String) -> AssetError {
        AssetError::new(kind, message)
            .tensor(&self.name)
            .at(self.at)
    }
}

/// Puts tensors in the order of their data and checks that they tile `[table_end, file_end)`:
/// no overlap, and no gap but the padding that alignment asks for.
fn tile(
    mut declared: Vec<Declared>,
    table_end: u64,
    file_end: u64,
    alignment: u64,
) -> Result<Vec<TensorInfo>, AssetError> {
    declared.sort_by_key(|tensor| tensor.offset);
    let data_start = table_end.next_multiple_of(alignment);
    let mut expected = 0_u64;
    let mut tensors = Vec::with_capacity(declared.len());
    let mut data_end = table_end;
    for tensor in declared {
        if tensor.offset != expected {
            let how = if tensor.offset < expected {
                "overlaps the tensor before it"
            } else {
                "leaves a gap after the tensor before it"
            };
            return Err(tensor.fault(
                ErrorKind::Malformed,
                format!(
                    "its data begins at {} of the tensor data and {how}, which ends at {expected}",
                    tensor.offset
                ),
            ));
        }
        let offset = data_start.checked_add(tensor.offset);
        let end = offset.and_then(|offset| offset.checked_add(tensor.len));
        let (Some(offset), Some(end)) = (offset, end.filter(|&end| end <= file_end)) else {
            return Err(tensor.fault(
                ErrorKind::Malformed,
                format!(
                    "its {} bytes from {} of the tensor data run past the end of the file, \
                     which has {file_end} bytes: the download or copy did not finish",
                    tensor.len, tensor.offset
                ),
            ));
        };
        data_end = end;
        // Below `file_end` plus one alignment, so neither can overflow.
        expected = (tensor.offset + tensor.len).next_multiple_of(alignment);
        tensors.push(TensorInfo {
            name: tensor.name,
            format: tensor.format,
            shape: tensor.shape,
            offset: to_usize(offset)?,
            len: to_usize(tensor.len)?,
        });
    }
    if file_end > data_end.next_multiple_of(alignment) {
        return Err(AssetError::malformed(format!(
            "{} bytes follow the last tensor, and nothing says what they are",
            file_end - data_end
        ))
        .at(data_end));
    }
    Ok(tensors)
}

fn to_usize(value: u64) -> Result<usize, AssetError> {
    usize::try_from(value).map_err(|_| {
        AssetError::new(
            ErrorKind::Limit,
            format!("{value} exceeds this machine's address space"),
        )
    })
}

fn format(id: u32) -> Result<Format, AssetError> {
    if let Some(format) = Format::from_ggml(id) {
        return Ok(format);
    }
    let known: Vec<&str> = Format::ALL.iter().map(|f| f.name()).collect();
    let name = match UNSUPPORTED.iter().find(|(number, _)| *number == id) {
        Some((_, name)) => format!("block format {id} ({name}) is not supported"),
        None => format!("block format {id} is unknown"),
    };
    Err(AssetError::unsupported(format!(
        "{name}; the supported ones are {}: take the model in one of those",
        known.join(", ")
    )))
}

/// Tensor types of ggml that [`Format`] lacks: intermediate, integer, rare or withdrawn.
const UNSUPPORTED: &[(u32, &str)] = &[
    (4, "Q4_2, withdrawn"),
    (5, "Q4_3, withdrawn"),
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (31, "Q4_0_4_4, withdrawn"),
    (32, "Q4_0_4_8, withdrawn"),
    (33, "Q4_0_8_8, withdrawn"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (36, "IQ4_NL_4_4, withdrawn"),
    (37, "IQ4_NL_4_8, withdrawn"),
    (38, "IQ4_NL_8_8, withdrawn"),
    (40, "NVFP4"),
];
