//! Files that appear whole or not at all.

use std::fs::{self, File};
use std::io;
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
    /// Begins a file that will be at `path`, or where the link at `path` leads, with the permissions of
    /// the file that it replaces.
    pub(crate) fn create(path: &Path) -> Result<AtomicFile, Failure> {
        let path = &target(path).map_err(|error| Failure::file(path, "write", &error))?;
        let name = path.file_name().ok_or_else(|| {
            Failure::request(format!("{}: not the name of a file", path.display()))
        })?;
        let there = fs::symlink_metadata(path).ok();
        // A rename would put a file in the place of a device or a pipe.
        if there.as_ref().is_some_and(|there| !there.is_file()) {
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
        let fault = |error| Failure::file(path, "write", &error);
        let file = AtomicFile {
            path: path.to_owned(),
            file: File::create(&unfinished).map_err(fault)?,
            unfinished,
        };
        if let Some(there) = there {
            file.file
                .set_permissions(there.permissions())
                .map_err(fault)?;
        }
        Ok(file)
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

/// Where a path leads when its links are followed, whether something is there or not.
fn target(path: &Path) -> io::Result<PathBuf> {
    // As many as Linux follows.
    const LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&path) {
            Ok(next) => path = path.parent().unwrap_or(Path::new("")).join(next),
            // Not a link, or nothing at all.
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many links"))
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

    #[cfg(unix)]
    #[test]
    fn permissions_stay_and_links_are_followed() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let scratch = Scratch::new();
        let path = scratch.write("notes.json", "old");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let link = scratch.path().join("link");
        symlink("notes.json", &link).unwrap();
        let write = |at: &Path| {
            let mut file = AtomicFile::create(at).unwrap();
            file.file().write_all(b"new").unwrap();
            file.commit().unwrap();
        };
        write(&link);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        // A link to what is not there yet.
        symlink("later.json", scratch.path().join("ahead")).unwrap();
        write(&scratch.path().join("ahead"));
        assert_eq!(
            fs::read_to_string(scratch.path().join("later.json")).unwrap(),
            "new"
        );
        // A circle, and what is no file.
        symlink("circle", scratch.path().join("circle")).unwrap();
        let error = AtomicFile::create(&scratch.path().join("circle")).unwrap_err();
        assert!(error.text().contains("circle"), "{}", error.text());
        let error = AtomicFile::create(scratch.path()).unwrap_err();
        assert!(
            error.text().contains("not a regular file"),
            "{}",
            error.text()
        );
    }
}
