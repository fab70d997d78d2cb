//! Files that appear whole or not at all.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process;

use crate::failure::Failure;

/// A file in the making, beside the place where it will be. Dropped before [`commit`](Self::commit),
/// it leaves nothing behind, and what was at its place stays.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    path: PathBuf,
    unfinished: PathBuf,
    file: File,
}

impl AtomicFile {
    /// Begins a file that will be at `path`.
    pub(crate) fn create(path: &Path) -> Result<AtomicFile, Failure> {
        let name = path.file_name().ok_or_else(|| {
            Failure::request(format!("{}: not the name of a file", path.display()))
        })?;
        // A rename would put a file in the place of a link, a device or a pipe.
        if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(Failure::request(format!(
                "{}: not a regular file, and it would be replaced",
                path.display()
            )));
        }
        // A sibling, so that the rename stays on one file system.
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.part", process::id()));
        let unfinished = path.with_file_name(hidden);
        let file =
            File::create(&unfinished).map_err(|error| Failure::file(path, "write", &error))?;
        Ok(AtomicFile {
            path: path.to_owned(),
            unfinished,
            file,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Puts the file in its place.
    pub(crate) fn commit(self) -> Result<(), Failure> {
        self.file
            .sync_all()
            .and_then(|()| fs::rename(&self.unfinished, &self.path))
            .map_err(|error| Failure::file(&self.path, "write", &error))
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // After a commit it is no longer there.
        let _ = fs::remove_file(&self.unfinished);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rushlight_testkit::scratch::Scratch;
    use std::io::Write;

    #[test]
    fn a_file_that_is_not_finished_leaves_the_old_one() {
        let scratch = Scratch::new();
        let path = scratch.write("notes.json", "old");
        let mut file = AtomicFile::create(&path).unwrap();
        file.file().write_all(b"ne").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        let mut file = AtomicFile::create(&path).unwrap();
        file.file().write_all(b"new").unwrap();
        file.commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
}
