//! Rows of f32 as a NumPy `.npy` file (format version 1.0), written as they come.
//!
//! The layout is that of NumPy's `numpy.lib.format`: a magic string, a dictionary as text that gives
//! type and shape, padded to a multiple of 64 bytes, then the elements, little-endian, row by row.

use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use crate::atomic::AtomicFile;
use crate::failure::Failure;

/// Bytes before the elements: room for any shape, and a multiple of 64.
const HEADER: usize = 128;

/// An array `[rows, width]` in the making. The file appears when it is finished.
#[derive(Debug)]
pub(crate) struct NpyRows {
    file: AtomicFile,
    rows: usize,
    width: usize,
}

impl NpyRows {
    /// Begins a file, which must be called `.npy`.
    pub(crate) fn create(path: &Path) -> Result<NpyRows, Failure> {
        if path.extension().is_none_or(|extension| extension != "npy") {
            let message =
                "logits are saved as NumPy arrays: give the file a name that ends in .npy";
            return Err(Failure::request(format!("{}: {message}", path.display())));
        }
        let mut file = NpyRows {
            file: AtomicFile::create(path)?,
            rows: 0,
            width: 0,
        };
        file.write(&[0; HEADER])?;
        Ok(file)
    }

    /// Adds a row; all have the same width.
    pub(crate) fn push(&mut self, row: &[f32]) -> Result<(), Failure> {
        self.rows += 1;
        self.width = row.len();
        let path = self.file.path().to_owned();
        let mut to = BufWriter::new(self.file.file());
        let written = row
            .iter()
            .try_for_each(|value| to.write_all(&value.to_le_bytes()));
        written
            .and_then(|()| to.flush())
            .map_err(|error| Failure::file(&path, "write", &error))
    }

    /// Completes the file and puts it in its place.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let path = self.file.path().to_owned();
        let header = header(self.rows, self.width);
        self.file
            .file()
            .seek(SeekFrom::Start(0))
            .map_err(|error| Failure::file(&path, "write", &error))?;
        self.write(&header)?;
        self.file.commit()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.file.path().to_owned();
        self.file
            .file()
            .write_all(bytes)
            .map_err(|error| Failure::file(&path, "write", &error))
    }
}

fn header(rows: usize, width: usize) -> Vec<u8> {
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    // The length of what follows it: two bytes.
    let rest = (HEADER - header.len() - 2) as u16;
    header.extend_from_slice(&rest.to_le_bytes());
    let shape = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}");
    header.extend_from_slice(shape.as_bytes());
    header.resize(HEADER - 1, b' ');
    header.push(b'\n');
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushlight_testkit::scratch::Scratch;
    use std::fs;

    /// Against the bytes of `numpy.save` for a float32 array of shape (2, 3).
    #[test]
    fn the_layout_is_numpys() {
        let scratch = Scratch::new();
        let path = scratch.path().join("logits.npy");
        let mut rows = NpyRows::create(&path).unwrap();
        rows.push(&[1.0, -2.5, f32::NEG_INFINITY]).unwrap();
        rows.push(&[0.0, 3.0, 4.0]).unwrap();
        rows.finish().unwrap();
        let bytes = fs::read(&path).unwrap();
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        let mut expected = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        expected.extend_from_slice(text.as_bytes());
        expected.resize(127, b' ');
        expected.push(b'\n');
        for value in [1.0, -2.5, f32::NEG_INFINITY, 0.0, 3.0, 4.0] {
            expected.extend_from_slice(&value.to_le_bytes());
        }
        assert_eq!(bytes, expected);
        // The largest shape fits.
        assert_eq!(header(usize::MAX, usize::MAX).len(), HEADER);
    }

    #[test]
    fn other_names_are_refused_and_nothing_is_left() {
        let scratch = Scratch::new();
        let error = NpyRows::create(&scratch.path().join("logits.safetensors")).unwrap_err();
        assert!(error.text().contains(".npy"), "{}", error.text());
        drop(NpyRows::create(&scratch.path().join("logits.npy")).unwrap());
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}
