//! Little-endian reads from a byte slice that know where they are and never run past the end.

use crate::error::{AssetError, ErrorKind};

pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    /// Bytes from the file's start.
    pub(super) fn offset(&self) -> u64 {
        u64::try_from(self.at).unwrap_or(u64::MAX)
    }

    pub(super) fn remaining(&self) -> u64 {
        u64::try_from(self.bytes.len() - self.at).unwrap_or(u64::MAX)
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], AssetError> {
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        match (taken, end) {
            (Some(taken), Some(end)) => {
                self.at = end;
                Ok(taken)
            }
            _ => Err(AssetError::malformed(format!(
                "the file ends here, {} bytes before the next field does: it is truncated",
                u64::try_from(count).unwrap_or(u64::MAX) - self.remaining()
            ))
            .at(self.offset())),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], AssetError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, AssetError> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn i8(&mut self) -> Result<i8, AssetError> {
        self.array().map(i8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, AssetError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn i16(&mut self) -> Result<i16, AssetError> {
        self.array().map(i16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, AssetError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, AssetError> {
        self.array().map(i32::from_le_bytes)
    }

    pub(super) fn f32(&mut self) -> Result<f32, AssetError> {
        self.array().map(f32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, AssetError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, AssetError> {
        self.array().map(i64::from_le_bytes)
    }

    pub(super) fn f64(&mut self) -> Result<f64, AssetError> {
        self.array().map(f64::from_le_bytes)
    }

    pub(super) fn bool(&mut self) -> Result<bool, AssetError> {
        let offset = self.offset();
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(AssetError::malformed(format!(
                "a boolean is 0 or 1, this byte is {other}"
            ))
            .at(offset)),
        }
    }

    /// A count of things that take at least `least` bytes each, checked against `limit` and
    /// against the bytes that are left, so that the caller may allocate for it.
    pub(super) fn count(
        &mut self,
        what: &str,
        limit: u64,
        least: u64,
    ) -> Result<usize, AssetError> {
        let offset = self.offset();
        let count = self.u64()?;
        self.check_count(count, what, limit, least)
            .map_err(|e| e.at(offset))
    }

    pub(super) fn check_count(
        &self,
        count: u64,
        what: &str,
        limit: u64,
        least: u64,
    ) -> Result<usize, AssetError> {
        if count > limit {
            return Err(AssetError::new(
                ErrorKind::Limit,
                format!("{count} {what}; at most {limit} are accepted"),
            ));
        }
        if count.saturating_mul(least) > self.remaining() {
            return Err(AssetError::malformed(format!(
                "{count} {what} in the {} bytes that are left: the file is truncated or broken",
                self.remaining()
            )));
        }
        usize::try_from(count).map_err(|_| {
            AssetError::new(
                ErrorKind::Limit,
                format!("{count} {what} exceed this machine's memory"),
            )
        })
    }

    /// A string with its length in front.
    pub(super) fn string(&mut self, limit: u64) -> Result<String, AssetError> {
        let count = self.count("bytes of text", limit, 1)?;
        let offset = self.offset();
        let bytes = self.take(count)?;
        String::from_utf8(bytes.to_vec()).map_err(|e| {
            let valid = u64::try_from(e.utf8_error().valid_up_to()).unwrap_or(0);
            AssetError::malformed("text that is not UTF-8")
                .at(offset.saturating_add(valid))
                .because(e)
        })
    }
}
