//! Progress bars on stderr, for whatever may take long. Where stderr is no terminal there are none.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that is gone when it is dropped. Clones show the same bar.
#[derive(Clone, Debug)]
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// A bar over bytes.
    pub(crate) fn bytes(label: &'static str) -> Bar {
        Bar::new(label, "{prefix} [{bar:32}] {bytes}/{total_bytes} {msg}")
    }

    /// A bar over things to count.
    pub(crate) fn count(label: &'static str) -> Bar {
        Bar::new(label, "{prefix} [{bar:32}] {pos}/{len} {msg}")
    }

    fn new(label: &'static str, template: &str) -> Bar {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        // The templates above are well formed; a bar of another look would do no harm.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(label);
        Bar(bar)
    }

    /// Shows that `done` of `total` are done.
    pub(crate) fn at(&self, done: u64, total: u64) {
        if self.0.length() != Some(total) {
            self.0.set_length(total);
        }
        self.0.set_position(done);
    }

    /// Shows a word beside the bar.
    pub(crate) fn say(&self, words: String) {
        self.0.set_message(words);
    }

    /// Takes the bar away.
    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}
