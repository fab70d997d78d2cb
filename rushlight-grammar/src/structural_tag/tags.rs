//! Formats of several tags: triggered in free text, or one after another.

use std::rc::Rc;

use serde_json::{Map, Value};

use super::document::At;
use super::shape::{self, Part, Shape, Until};
use super::{Around, Builder, free_text};
use crate::error::{GrammarErrorKind, GrammarReport};

impl Builder<'_> {
    /// Free text with tags, up to and with one of `ends` where there are any.
    pub(super) fn triggered(
        &mut self,
        object: &Map<String, Value>,
        at: &At,
        around: &Around,
        ends: &[String],
    ) -> Result<Part, GrammarReport> {
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
        let excludes = at.excludes(object)?;
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
        let mut after: Vec<Vec<Part>> = vec![Vec::new(); triggers.len()];
        let mut firsts = Vec::new();
        let inside = Around {
            start: false,
            last: false,
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
            let rest = self.tag_after(tag, &at, &inside)?;
            if at_least_one {
                firsts.push(shape::seq(vec![shape::text(begin), rest.clone()]));
            }
            let left = shape::text(begin.get(text.len()..).unwrap_or(""));
            if let Some(after) = after.get_mut(trigger) {
                after.push(shape::seq(vec![left, rest]));
            }
        }
        if after.iter().all(Vec::is_empty) {
            let reason = "no tag is there";
            return Err(at
                .error(GrammarErrorKind::Unsatisfiable, "tags", reason)
                .into());
        }
        if let Some(lone) = after.iter().position(Vec::is_empty) {
            let at = at.under("triggers").under(&lone.to_string());
            let reason = "no tag begins with this trigger; a text that may not come up belongs into 'excludes'";
            return Err(at.error(GrammarErrorKind::Invalid, "", reason).into());
        }
        at.can_stop(&triggers, &excludes, "excludes")?;
        let stops = triggers.iter().cloned();
        let called = Rc::new(Shape::Until(Until {
            stops: stops.zip(after.into_iter().map(shape::alt)).collect(),
            rivals: ends.to_vec(),
            excludes: excludes.clone(),
        }));
        let end = match ends {
            [] => shape::empty(),
            _ => shape::texts(ends),
        };
        let first = shape::alt(firsts);
        if at_least_one && stop_after_first {
            return Ok(shape::seq(vec![first, end]));
        }
        let mut stops = triggers;
        stops.extend(excludes);
        let text = match ends {
            [] => free_text(stops, at, around)?,
            _ => {
                at.can_stop(ends, &stops, "triggers")?;
                shape::until(ends, &stops)
            }
        };
        if stop_after_first {
            return Ok(shape::alt(vec![text, shape::seq(vec![called, end])]));
        }
        let more = Rc::new(Shape::Star(called));
        Ok(match at_least_one {
            true => shape::seq(vec![first, more, text]),
            false => shape::seq(vec![more, text]),
        })
    }

    /// Tags with a separator between them, and nothing else.
    pub(super) fn separated(
        &mut self,
        object: &Map<String, Value>,
        at: &At,
        around: &Around,
    ) -> Result<Part, GrammarReport> {
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
            last: around.last && stop_after_first,
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
        let tag = shape::alt(ways);
        let all = match stop_after_first {
            true => tag,
            false => Rc::new(Shape::Separated {
                tag,
                separator: shape::text(separator),
            }),
        };
        Ok(match at_least_one {
            true => all,
            false => shape::optional(all),
        })
    }
}
