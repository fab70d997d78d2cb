//! A checkpoint's tensors under their canonical names, read in place from mapped files.

mod mapped;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub(crate) use mapped::MappedFile;

use crate::Format;
use crate::error::{AssetError, ErrorKind, Printable};
use crate::names::{self, Dialect};

/// Every tensor of a checkpoint.
///
/// Iterates in file order (parts in order, then offsets). Nothing is copied or decoded: a
/// [`Tensor`] is a view of a mapped file.
#[derive(Debug, Default)]
pub struct Weights {
    tensors: Vec<Tensor>,
    by_name: HashMap<String, usize>,
    unrecognised: Vec<String>,
    skipped: Vec<Skipped>,
    /// How the files spell names, where they do.
    dialect: Option<Dialect>,
    files: Vec<Arc<MappedFile>>,
}

/// A tensor of the file that is not among the weights, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The file's own name for it.
    pub name: String,
    /// Why the weights do without it.
    pub reason: &'static str,
}

impl Weights {
    /// No tensors yet, of files that spell names so.
    pub(crate) fn spelled_as(dialect: Dialect) -> Weights {
        Weights {
            dialect: Some(dialect),
            ..Weights::default()
        }
    }

    /// What messages call the tensor of that canonical name, be it there or missing: what the files
    /// call it, and the canonical name beside it where that is another.
    pub fn called(&self, name: &str) -> String {
        let stored = match (self.find(name), self.dialect) {
            (Some(tensor), _) => Some(tensor.stored_name.clone()),
            (None, Some(dialect)) => names::spelled(dialect, name),
            (None, None) => None,
        };
        called(stored.as_deref().unwrap_or(name), name)
    }

    /// The tensor of that canonical name.
    pub fn find(&self, name: &str) -> Option<&Tensor> {
        self.by_name.get(name).and_then(|&i| self.tensors.get(i))
    }

    /// Every tensor, in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Tensor> {
        self.tensors.iter()
    }

    /// How many tensors there are.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Names of tensors that no table knows. They are among the weights under the file's own
    /// names, so that an architecture that leaves a tensor unused can refuse the checkpoint.
    pub fn unrecognised(&self) -> impl ExactSizeIterator<Item = &str> {
        self.unrecognised.iter().map(String::as_str)
    }

    /// Tensors left out by rule, for example rotary frequencies that the configuration carries.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Bytes of all tensors together.
    pub fn total_bytes(&self) -> u64 {
        self.tensors.iter().map(Tensor::byte_len).sum()
    }

    /// Elements of all tensors together.
    pub fn total_elements(&self) -> u64 {
        self.tensors.iter().map(Tensor::elements).sum()
    }

    /// Bytes and tensor count of each format present, most bytes first.
    pub fn by_format(&self) -> Vec<FormatShare> {
        let mut shares: Vec<FormatShare> = Vec::new();
        for tensor in &self.tensors {
            match shares.iter_mut().find(|s| s.format == tensor.format) {
                Some(share) => {
                    share.bytes += tensor.byte_len();
                    share.tensors += 1;
                }
                None => shares.push(FormatShare {
                    format: tensor.format,
                    bytes: tensor.byte_len(),
                    tensors: 1,
                }),
            }
        }
        shares.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.format.cmp(&b.format)));
        shares
    }

    /// Checks that no file was shortened, lengthened or failed to read since it was opened.
    ///
    /// A file that shrinks under a reader gives zeros, not a crash; call this after a run of reads
    /// (a load, a step) to learn whether they can be trusted.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] naming the file.
    pub fn intact(&self) -> Result<(), AssetError> {
        self.files.iter().try_for_each(|file| file.intact())
    }

    pub(crate) fn add_file(&mut self, file: Arc<MappedFile>) {
        self.files.push(file);
    }

    pub(crate) fn skip(&mut self, name: String, reason: &'static str) {
        self.skipped.push(Skipped { name, reason });
    }

    /// Takes a tensor in, or refuses it if its name is taken.
    pub(crate) fn insert(&mut self, tensor: Tensor, recognised: bool) -> Result<(), AssetError> {
        if let Some(other) = self.find(&tensor.name) {
            return Err(tensor.error(
                ErrorKind::Malformed,
                format!(
                    "a second tensor for `{}`, which `{}` already is",
                    tensor.name, other.stored_name
                ),
            ));
        }
        if !recognised {
            self.unrecognised.push(tensor.name.clone());
        }
        self.by_name.insert(tensor.name.clone(), self.tensors.len());
        self.tensors.push(tensor);
        Ok(())
    }

    /// Moves one tensor from the weights to the skipped list.
    pub(crate) fn leave_out(&mut self, name: &str, reason: &'static str) {
        if let Some(at) = self.by_name.remove(name) {
            let tensor = self.tensors.remove(at);
            for index in self.by_name.values_mut().filter(|index| **index > at) {
                *index -= 1;
            }
            self.skip(tensor.stored_name, reason);
        }
    }
}

/// How much of a checkpoint one format takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatShare {
    /// The format.
    pub format: Format,
    /// Bytes of its tensors.
    pub bytes: u64,
    /// How many tensors have it.
    pub tensors: usize,
}

/// One weight: a name, a format, a shape, and where its bytes are.
///
/// A matrix of shape `[rows, cols]` is stored row by row, each row whole blocks of its format.
/// Cloning is cheap and keeps the file mapped.
#[derive(Clone)]
pub struct Tensor {
    name: String,
    stored_name: String,
    format: Format,
    shape: Vec<usize>,
    rows: usize,
    cols: usize,
    row_bytes: usize,
    order: RowOrder,
    data: Data,
}

#[derive(Clone)]
enum Data {
    Mapped {
        file: Arc<MappedFile>,
        range: Range<usize>,
    },
    /// Reordered within a row, which no view of the file can be.
    Owned {
        file: Arc<MappedFile>,
        range: Range<usize>,
        bytes: Arc<[u8]>,
    },
}

/// How the rows that a model means lie in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowOrder {
    /// As they are.
    Stored,
    /// llama.cpp's order for rotating neighbours (`x[2j]`, `x[2j+1]`) instead of halves (`x[j]`,
    /// `x[j + d/2]`): within each head of `2 · half` rows, logical row `h · half + j` is stored as
    /// row `2j + h`. The converter's `reshape(heads, 2, half, cols).swapaxes(1, 2)`, undone.
    Interleaved { half: usize },
}

impl RowOrder {
    fn stored(self, logical: usize) -> usize {
        match self {
            RowOrder::Stored => logical,
            RowOrder::Interleaved { half } => {
                let (head, row) = (logical / (2 * half), logical % (2 * half));
                head * 2 * half + (row % half) * 2 + row / half
            }
        }
    }
}

/// Where a tensor lies in which file, as an importer found it.
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) format: Format,
    /// Outermost first.
    pub(crate) shape: Vec<usize>,
    pub(crate) range: Range<usize>,
}

impl Tensor {
    /// A view of `stored`'s range in `file`, under a canonical name.
    pub(crate) fn new(
        name: String,
        stored: Stored,
        file: &Arc<MappedFile>,
    ) -> Result<Tensor, AssetError> {
        let Stored {
            name: stored_name,
            format,
            shape,
            range,
        } = stored;
        let fault = |message: String| {
            AssetError::malformed(message)
                .tensor(&stored_name)
                .in_file(file.path())
        };
        let (cols, outer) = match shape.split_last() {
            Some((&cols, outer)) => (cols, outer),
            None => (1, &[][..]),
        };
        let rows = outer
            .iter()
            .try_fold(1_usize, |product, &dim| product.checked_mul(dim))
            .ok_or_else(|| fault("its shape overflows".into()))?;
        let row_bytes = format.row_bytes(cols).ok_or_else(|| {
            fault(format!(
                "rows of {cols} elements are not whole {format} blocks of {}",
                format.block_len()
            ))
        })?;
        if row_bytes.checked_mul(rows) != Some(range.len())
            || file.bytes().get(range.clone()).is_none()
        {
            return Err(fault(format!(
                "{rows} rows of {row_bytes} bytes do not fit bytes {}..{}",
                range.start, range.end
            )));
        }
        Ok(Tensor {
            name,
            stored_name,
            format,
            shape,
            rows,
            cols,
            row_bytes,
            order: RowOrder::Stored,
            data: Data::Mapped {
                file: Arc::clone(file),
                range,
            },
        })
    }

    /// Declares that heads are stored in llama.cpp's interleaved order; see [`Tensor::row`].
    pub(crate) fn interleaved(mut self, heads: usize) -> Result<Tensor, AssetError> {
        let vector = self.shape.len() == 1;
        let count = if vector { self.cols } else { self.rows };
        let half = count
            .checked_div(heads)
            .filter(|&head| head > 0 && head % 2 == 0 && head * heads == count)
            .map(|head| head / 2)
            .ok_or_else(|| {
                self.error(
                    ErrorKind::Mismatch,
                    format!("{count} rows are not {heads} heads of an even size"),
                )
            })?;
        let order = RowOrder::Interleaved { half };
        if !vector {
            self.order = order;
            return Ok(self);
        }
        if !self.format.is_float() {
            return Err(self.error(
                ErrorKind::Unsupported,
                format!(
                    "a bias in {}, whose elements cannot be reordered",
                    self.format
                ),
            ));
        }
        if let Data::Mapped { file, range } = &self.data {
            let stored = file.bytes().get(range.clone()).unwrap_or_default();
            let width = self.format.block_bytes();
            let mut bytes = Vec::with_capacity(stored.len());
            for logical in 0..count {
                let at = order.stored(logical) * width;
                bytes.extend_from_slice(stored.get(at..at + width).unwrap_or_default());
            }
            self.data = Data::Owned {
                file: Arc::clone(file),
                range: range.clone(),
                bytes: bytes.into(),
            };
        }
        Ok(self)
    }

    /// The canonical name, or the file's own where no table knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name in the file.
    pub fn stored_name(&self) -> &str {
        &self.stored_name
    }

    /// What messages call it, as [`Weights::called`] does.
    pub fn called(&self) -> String {
        called(&self.stored_name, &self.name)
    }

    /// How elements are stored.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Dimensions, outermost first: a matrix is `[rows, cols]`.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The product of all dimensions but the last; 1 for a vector.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The last dimension: elements of one row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// `rows · cols`.
    pub fn elements(&self) -> u64 {
        // Opening checked `rows · row_bytes`, and no format packs more than four elements a byte.
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        count(self.rows).saturating_mul(count(self.cols))
    }

    /// Bytes of the whole tensor.
    pub fn byte_len(&self) -> u64 {
        u64::try_from(self.range().len()).unwrap_or(u64::MAX)
    }

    /// The bytes of row `i` as the model means it: where a file keeps the rows of each head in
    /// another order, this looks the right one up.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] where `i` is not below [`Tensor::rows`].
    pub fn row(&self, i: usize) -> Result<&[u8], AssetError> {
        let row = if i < self.rows {
            let at = self.order.stored(i) * self.row_bytes;
            self.stored_bytes().get(at..at + self.row_bytes)
        } else {
            None
        };
        row.ok_or_else(|| {
            self.error(
                ErrorKind::Usage,
                format!("row {i} of a tensor with {} rows", self.rows),
            )
        })
    }

    /// All rows in the model's order: borrowed from the file, or a copy where the file has another
    /// order ([`Tensor::is_reordered`]).
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        let stored = self.stored_bytes();
        if self.order == RowOrder::Stored {
            return Cow::Borrowed(stored);
        }
        let mut bytes = Vec::with_capacity(stored.len());
        for row in 0..self.rows {
            let at = self.order.stored(row) * self.row_bytes;
            bytes.extend_from_slice(stored.get(at..at + self.row_bytes).unwrap_or_default());
        }
        Cow::Owned(bytes)
    }

    /// Whether rows lie in the file in another order than the model's.
    pub fn is_reordered(&self) -> bool {
        self.order != RowOrder::Stored
    }

    /// The file it lies in.
    pub fn file(&self) -> &Path {
        match &self.data {
            Data::Mapped { file, .. } | Data::Owned { file, .. } => file.path(),
        }
    }

    /// [`Weights::intact`] for its file alone.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] naming the file.
    pub fn intact(&self) -> Result<(), AssetError> {
        match &self.data {
            Data::Mapped { file, .. } | Data::Owned { file, .. } => file.intact(),
        }
    }

    /// Where it begins in that file, in bytes.
    pub fn offset(&self) -> u64 {
        u64::try_from(self.range().start).unwrap_or(u64::MAX)
    }

    /// An error about this tensor, with its file and offset.
    pub(crate) fn error(&self, kind: ErrorKind, message: String) -> AssetError {
        AssetError::new(kind, message)
            .tensor(&self.stored_name)
            .at(self.offset())
            .in_file(self.file())
    }

    fn range(&self) -> &Range<usize> {
        match &self.data {
            Data::Mapped { range, .. } | Data::Owned { range, .. } => range,
        }
    }

    fn stored_bytes(&self) -> &[u8] {
        match &self.data {
            // The range was checked against the mapping, whose length never changes.
            Data::Mapped { file, range } => file.bytes().get(range.clone()).unwrap_or_default(),
            Data::Owned { bytes, .. } => bytes,
        }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", self.name, self.format, self.shape)
    }
}
fn called(stored: &str, canonical: &str) -> String {
    let stored = Printable(stored);
    if stored.0 == canonical {
        return stored.to_string();
    }
    format!("{stored} ({canonical})")
}
