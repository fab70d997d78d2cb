//! The committed category of every case.
//!
//! One line a case, `category<TAB>id`, in the order of the collection. Cases that pass are counted and not listed, so the
//! file names exactly what is left to do.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::cases::Case;
use crate::walk::{Category, Outcome};

/// Compares with the file at `path`; with `record`, rewrites it where nothing got worse. False where something did.
pub(crate) fn compare(
    path: &Path,
    cases: &[Case],
    outcomes: &[Outcome],
    record: bool,
) -> Result<bool, String> {
    let at = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && record => String::new(),
        Err(e) => return Err(at(&e)),
    };
    let first = text.is_empty();
    let mut known: HashMap<&str, Category> = HashMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (category, id) = line
            .split_once('\t')
            .ok_or_else(|| at(&format!("'{line}'")))?;
        let category = [
            Category::Refuse,
            Category::RejectValid,
            Category::AcceptInvalid,
            Category::Error,
        ]
        .into_iter()
        .find(|c| c.to_string() == category)
        .ok_or_else(|| at(&format!("'{category}' is no category")))?;
        known.insert(id, category);
    }
    let (mut worse, mut better) = (0, 0);
    let mut out = String::from("# category<TAB>case; cases that are not listed pass\n");
    for (case, outcome) in cases.iter().zip(outcomes) {
        let now = outcome.category();
        let before = known
            .get(case.id.as_str())
            .copied()
            .unwrap_or(Category::Pass);
        if now > before && !first {
            worse += 1;
            println!("worse: {} was {before}, is {now} {}", case.id, outcome.note);
        } else if now < before {
            better += 1;
            println!("better: {} was {before}, is {now}", case.id);
        }
        if now != Category::Pass {
            let _ = writeln!(out, "{now}\t{}", case.id);
        }
    }
    println!("{worse} worse, {better} better than {}", path.display());
    if record && worse == 0 {
        std::fs::write(path, out).map_err(|e| at(&e))?;
    }
    Ok(worse == 0)
}
