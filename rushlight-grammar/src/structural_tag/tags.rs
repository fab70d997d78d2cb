//! Formats of several tags: triggered in free text, or one after another.

use llguidance::earley::SymIdx;
use serde_json::{Map, Value};

use super::document::At;
use super::{Around, Builder};
use crate::error::{GrammarErrorKind, GrammarReport};

impl Builder<'_> {
    /// Free text with tags, up to and with one of `ends` where there are any.
    pub(super) fn triggered(
        &mut self,
        object: &Map<String, Value>,
        at: &At,
        around: &Around,
        ends: &[String],
    ) -> Result<SymIdx, GrammarReport> {
        const MEMBERS: [&str; 6] = [
            "type",
            "triggers",
            "tags",
            "at_least_one",
            "stop_after_first",
            "excludes",
        ];
        at.only(object, &MEMBERS)?;
        let triggers = at.texts(object, "triggers")?;
        let excludes = at.texts_or_none(object, "excludes")?;
        let at_least_one = at.flag(object, "at_least_one")?;
        let stop_after_first = at.flag(object, "stop_after_first")?;
        if triggers.is_empty() || triggers.iter().any(String::is_empty) {
            return Err(at
                .error(
                    GrammarErrorKind::Invalid,
                    "triggers",
                    "must be texts, at least one",
                )
                .into());
        }
        // Of each trigger: what may follow it. Of the first tag: whole tags.
        let mut after: Vec<Vec<SymIdx>> = vec![Vec::new(); triggers.len()];
        let mut firsts = Vec::new();
        let inside = Around {
            start: false,
            only: false,
            last: false,
            ..around.clone()
        };
        let tags = at.under("tags");
        for (n, tag) in tags.list(at.member(object, "tags")?)?.iter().enumerate() {
            let at = tags.under(&n.to_string());
            let tag = at.object(tag)?;
            let begin = at.text(tag, "begin")?;
            let mut matching = triggers
                .iter()
                .enumerate()
                .filter(|(_, trigger)| begin.starts_with(trigger.as_str()));
            let (Some((trigger, text)), None) = (matching.next(), matching.next()) else {
                let reason = "must start with exactly one of the triggers";
                return Err(at.error(GrammarErrorKind::Invalid, "begin", reason).into());
            };
            let rest = self.tag_after(tag, &at, &inside, begin)?;
            let left = self.target.text(begin.get(text.len()..).unwrap_or(""))?;
            let left = self.target.seq(vec![left, rest])?;
            if let Some(after) = after.get_mut(trigger) {
                after.push(left);
            }
            if at_least_one {
                let begin = self.target.text(begin)?;
                firsts.push(self.target.seq(vec![begin, rest])?);
            }
        }
        let mut called = Vec::new();
        for (trigger, after) in triggers.iter().zip(&after) {
            // A trigger that no tag has is text that may not come up.
            if after.is_empty() {
                continue;
            }
            let text = self.text_until(std::slice::from_ref(trigger), &excludes)?;
            let rest = self.target.alt(after)?;
            called.push(self.target.seq(vec![text, rest])?);
        }
        if called.is_empty() {
            let reason = "no tag is there";
            return Err(at
                .error(GrammarErrorKind::Unsatisfiable, "tags", reason)
                .into());
        }
        let end = match ends {
            [] => self.target.empty()?,
            _ => self.texts(ends)?,
        };
        if at_least_one && stop_after_first {
            let first = self.target.alt(&firsts)?;
            return Ok(self.target.seq(vec![first, end])?);
        }
        let mut stops = triggers;
        stops.extend(excludes);
        let text = match ends {
            [] => self.free_text(&stops, at, around)?,
            _ => self.text_until(ends, &stops)?,
        };
        let called = self.target.alt(&called)?;
        if stop_after_first {
            let called = self.target.seq(vec![called, end])?;
            return Ok(self.target.alt(&[text, called])?);
        }
        let more = self.target.repeat(called, 0, None)?;
        if at_least_one {
            let first = self.target.alt(&firsts)?;
            return Ok(self.target.seq(vec![first, more, text])?);
        }
        Ok(self.target.seq(vec![more, text])?)
    }

    /// Tags with a separator between them, and nothing else.
    pub(super) fn separated(
        &mut self,
        object: &Map<String, Value>,
        at: &At,
        around: &Around,
    ) -> Result<SymIdx, GrammarReport> {
        const MEMBERS: [&str; 5] = [
            "type",
            "tags",
            "separator",
            "at_least_one",
            "stop_after_first",
        ];
        at.only(object, &MEMBERS)?;
        let separator = at.text(object, "separator")?.to_owned();
        let at_least_one = at.flag(object, "at_least_one")?;
        let stop_after_first = at.flag(object, "stop_after_first")?;
        let inside = Around {
            start: false,
            only: false,
            last: around.last && stop_after_first,
            ..around.clone()
        };
        let tags = at.under("tags");
        let mut ways = Vec::new();
        for (n, tag) in tags.list(at.member(object, "tags")?)?.iter().enumerate() {
            let at = tags.under(&n.to_string());
            ways.push(self.tag(at.object(tag)?, &at, &inside)?);
        }
        if ways.is_empty() {
            let reason = "no tag is there";
            return Err(at
                .error(GrammarErrorKind::Unsatisfiable, "tags", reason)
                .into());
        }
        let tag = self.target.alt(&ways)?;
        let mut all = tag;
        if !stop_after_first {
            let separator = self.target.text(&separator)?;
            let next = self.target.seq(vec![separator, tag])?;
            let more = self.target.repeat(next, 0, None)?;
            all = self.target.seq(vec![tag, more])?;
        }
        if at_least_one {
            return Ok(all);
        }
        Ok(self.target.repeat(all, 0, Some(1))?)
    }
}
