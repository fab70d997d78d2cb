//! The header of one safetensors file.
//!
//! The layout is that of the [safetensors format](https://github.com/huggingface/safetensors#format):
//! an eight-byte little-endian header length, a JSON header, tensor data. The `safetensors` crate
//! reads it too; this parser exists because a repeated name must be refused rather than resolved to
//! its last entry, and because every refusal must say which tensor and which bytes.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use crate::Format;
use crate::error::{AssetError, ErrorKind};
use crate::limits;

/// What stands before the tensor data of one safetensors file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The free-form `__metadata__`.
    pub metadata: BTreeMap<String, String>,
    /// Tensors in the order of their data.
    pub tensors: Vec<TensorInfo>,
}

/// One tensor's name, type, shape and place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The file's name for it.
    pub name: String,
    /// The element type as the file spells it, for example `BF16`.
    pub dtype: &'static str,
    /// Outermost dimension first; empty for a single number, none is zero.
    pub shape: Vec<usize>,
    /// First byte, from the file's start.
    pub offset: usize,
    /// Bytes of data.
    pub len: usize,
}

impl TensorInfo {
    /// The format behind the element type, where weights may have it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for all but F32, F16 and BF16.
    pub fn format(&self) -> Result<Format, AssetError> {
        match self.dtype {
            "F32" => Ok(Format::F32),
            "F16" => Ok(Format::F16),
            "BF16" => Ok(Format::BF16),
            other => Err(AssetError::unsupported(format!(
                "elements of type {other}; weights in F32, F16 and BF16 are supported"
            ))
            .tensor(&self.name)
            .at(u64::try_from(self.offset).unwrap_or(u64::MAX))),
        }
    }
}

/// Every element type of the format and its size in bits.
const DTYPES: &[(&str, usize)] = &[
    ("BOOL", 8),
    ("F4", 4),
    ("F6_E2M3", 6),
    ("F6_E3M2", 6),
    ("U8", 8),
    ("I8", 8),
    ("F8_E5M2", 8),
    ("F8_E4M3", 8),
    ("F8_E8M0", 8),
    ("I16", 16),
    ("U16", 16),
    ("F16", 16),
    ("BF16", 16),
    ("I32", 32),
    ("U32", 32),
    ("F32", 32),
    ("C64", 64),
    ("F64", 64),
    ("I64", 64),
    ("U64", 64),
];

impl Header {
    /// Parses the header of a whole file and checks that its tensors tile the rest of it.
    ///
    /// Never panics, and allocates no more than a small multiple of the header's length.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] or [`ErrorKind::Limit`], with the tensor and the byte offset.
    pub fn parse(file: &[u8]) -> Result<Header, AssetError> {
        let (json, data_start) = json(file)?;
        let Entries { metadata, tensors } = serde_json::from_slice(json).map_err(|e| {
            AssetError::malformed(format!("the header is not as it should be: {e}"))
                .at(PREFIX_BYTES)
                .quoting(&e)
        })?;
        let mut names = HashSet::with_capacity(tensors.len());
        for (name, _) in &tensors {
            if !names.insert(name.as_str()) {
                return Err(AssetError::malformed("a second tensor has this name")
                    .tensor(name)
                    .at(PREFIX_BYTES));
            }
        }
        tile(tensors, data_start, file.len()).map(|tensors| Header { metadata, tensors })
    }
}

const PREFIX_BYTES: u64 = 8;

/// The header's JSON, and where the data starts.
fn json(file: &[u8]) -> Result<(&[u8], usize), AssetError> {
    let truncated = |what: &str| {
        AssetError::malformed(format!(
            "the file has {} bytes and ends within {what}: the download or copy did not finish",
            file.len()
        ))
    };
    let Some((length, rest)) = file.split_first_chunk::<8>() else {
        return Err(truncated("its first eight bytes").at(0));
    };
    let length = u64::from_le_bytes(*length);
    if length > limits::SAFETENSORS_HEADER_BYTES {
        return Err(AssetError::new(
            ErrorKind::Limit,
            format!(
                "a header of {length} bytes; at most {} are accepted, so this is probably no \
                 safetensors file",
                limits::SAFETENSORS_HEADER_BYTES
            ),
        )
        .at(0));
    }
    let json = usize::try_from(length)
        .ok()
        .and_then(|length| rest.get(..length))
        .ok_or_else(|| truncated("its header").at(PREFIX_BYTES))?;
    Ok((json, file.len() - rest.len() + json.len()))
}

/// Puts tensors in the order of their data and checks that they tile it: no overlap, no gap, no
/// bytes before or after.
fn tile(
    mut entries: Vec<(String, Entry)>,
    data_start: usize,
    file_end: usize,
) -> Result<Vec<TensorInfo>, AssetError> {
    let data_len = file_end - data_start;
    entries.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut expected = 0;
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        let [begin, end] = entry.data_offsets;
        let fault = |kind, message: String| {
            let at = u64::try_from(data_start.saturating_add(begin)).unwrap_or(u64::MAX);
            AssetError::new(kind, message).tensor(&name).at(at)
        };
        if name.is_empty() || name.len() > to_usize(limits::TENSOR_NAME_BYTES) {
            return Err(fault(
                ErrorKind::Limit,
                format!(
                    "a name of {} bytes; 1 to {} are accepted",
                    name.len(),
                    limits::TENSOR_NAME_BYTES
                ),
            ));
        }
        if begin != expected {
            let how = if begin < expected {
                "overlaps"
            } else {
                "leaves a gap after"
            };
            return Err(fault(
                ErrorKind::Malformed,
                format!(
                    "its data begins at {begin} and {how} the tensor before it, which ends at \
                     {expected}"
                ),
            ));
        }
        if end > data_len {
            return Err(fault(
                ErrorKind::Malformed,
                format!(
                    "its data ends at {end}, but only {data_len} bytes follow the header: the \
                     download or copy did not finish"
                ),
            ));
        }
        let (dtype, bytes) = entry
            .size()
            .map_err(|(kind, message)| fault(kind, message))?;
        if end.checked_sub(begin) != Some(bytes) {
            return Err(fault(
                ErrorKind::Malformed,
                format!(
                    "shape {:?} in {dtype} takes {bytes} bytes, its range is {begin}..{end}",
                    entry.shape
                ),
            ));
        }
        expected = end;
        tensors.push(TensorInfo {
            name,
            dtype,
            shape: entry.shape,
            offset: data_start + begin,
            len: bytes,
        });
    }
    if expected != data_len {
        return Err(AssetError::malformed(format!(
            "{} bytes follow the last tensor, and nothing says what they are",
            data_len - expected
        ))
        .at(u64::try_from(data_start + expected).unwrap_or(u64::MAX)));
    }
    Ok(tensors)
}

fn to_usize(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

impl Entry {
    /// The type's name in the table, and bytes of the whole shape.
    fn size(&self) -> Result<(&'static str, usize), (ErrorKind, String)> {
        let &(dtype, bits) = DTYPES
            .iter()
            .find(|(name, _)| *name == self.dtype)
            .ok_or_else(|| {
                let name: String = self.dtype.chars().take(32).collect();
                (
                    ErrorKind::Malformed,
                    format!("element type `{}` is unknown", name),
                )
            })?;
        if self.shape.len() > limits::SAFETENSORS_DIMENSIONS {
            return Err((
                ErrorKind::Limit,
                format!(
                    "{} dimensions; at most {} are accepted",
                    self.shape.len(),
                    limits::SAFETENSORS_DIMENSIONS
                ),
            ));
        }
        let bits = self
            .shape
            .iter()
            .try_fold(bits, |bits, &dim| bits.checked_mul(dim))
            .filter(|&bits| bits > 0 && bits.is_multiple_of(8));
        match bits {
            Some(bits) => Ok((dtype, bits / 8)),
            None => Err((
                ErrorKind::Malformed,
                format!(
                    "shape {:?} is empty, overflows or ends within a byte",
                    self.shape
                ),
            )),
        }
    }
}

/// The header's object, with repeated names kept.
struct Entries {
    metadata: BTreeMap<String, String>,
    tensors: Vec<(String, Entry)>,
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Entries, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut metadata = None;
                let mut tensors = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        if metadata.replace(map.next_value()?).is_some() {
                            return Err(A::Error::custom("`__metadata__` is there twice"));
                        }
                        continue;
                    }
                    if tensors.len() >= to_usize(limits::TENSORS) {
                        return Err(A::Error::custom(format!(
                            "more than {} tensors",
                            limits::TENSORS
                        )));
                    }
                    tensors.push((name, map.next_value()?));
                }
                Ok(Entries {
                    metadata: metadata.unwrap_or_default(),
                    tensors,
                })
            }
        }

        deserializer.deserialize_map(Object)
    }
}
