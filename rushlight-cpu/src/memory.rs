//! States of a sequence: keys and values in pages.
//!
//! A page holds [`PAGE`] positions of one layer. Growing takes pages and copies nothing; a fork shares
//! all pages, and the first write to a shared one copies that one; rewinding gives back whole pages.
//!
//! A layer that sees only a window drops the pages behind it, but keeps one window more than it needs,
//! so that a rewind of up to a window's length lands where it was asked to. A cache that was asked to
//! be bounded keeps no more than it was given, a page of rounding and the tokens of one pass aside.
//!
//! Memory, by example: 30 layers × 3 heads × 64 elements × 2 (keys, values) × 2 bytes = 23,040 bytes a
//! token in f16; a page of one layer is 24,576 bytes.

use std::any::Any;
use std::sync::Arc;

use half::f16;
use half::slice::HalfFloatSliceExt;
use rushlight_ir::backend::{
    BackendError, BackendErrorKind, Bounded, KvDtype, StateOptions, States,
};
use rushlight_ir::graph::{StateKind, StateSpec};
use rushlight_kernels::{self as kernels, Elements};

/// Positions a page.
pub(crate) const PAGE: usize = 32;

/// Keys and values of [`PAGE`] positions: `(2, kv_heads, PAGE, head_dim)`, keys first.
#[derive(Clone)]
pub(crate) enum Page {
    F16(Vec<f16>),
    F32(Vec<f32>),
}

impl Page {
    fn new(elements: usize, dtype: KvDtype) -> Result<Page, BackendError> {
        Ok(match dtype {
            KvDtype::F16 => Page::F16(zeroed(elements, f16::ZERO)?),
            KvDtype::F32 => Page::F32(zeroed(elements, 0.0)?),
        })
    }

    fn try_clone(&self) -> Result<Page, BackendError> {
        let mut copy = match self {
            Page::F16(data) => Page::F16(zeroed(data.len(), f16::ZERO)?),
            Page::F32(data) => Page::F32(zeroed(data.len(), 0.0)?),
        };
        match (&mut copy, self) {
            (Page::F16(to), Page::F16(from)) => to.copy_from_slice(from),
            (Page::F32(to), Page::F32(from)) => to.copy_from_slice(from),
            (Page::F16(_), Page::F32(_)) | (Page::F32(_), Page::F16(_)) => {}
        }
        Ok(copy)
    }

    /// Keys and values of one head, as the attention kernel reads them.
    pub(crate) fn head(&self, head: usize, head_dim: usize) -> kernels::Page<'_> {
        let size = PAGE * head_dim;
        match self {
            Page::F16(data) => {
                let (keys, values) = data.split_at(data.len() / 2);
                kernels::Page {
                    keys: Elements::F16(&keys[head * size..(head + 1) * size]),
                    values: Elements::F16(&values[head * size..(head + 1) * size]),
                }
            }
            Page::F32(data) => {
                let (keys, values) = data.split_at(data.len() / 2);
                kernels::Page {
                    keys: Elements::F32(&keys[head * size..(head + 1) * size]),
                    values: Elements::F32(&values[head * size..(head + 1) * size]),
                }
            }
        }
    }

    /// Writes one position's row of one half (0: keys, 1: values), `kv_heads × head_dim`.
    fn write(&mut self, half: usize, slot: usize, row: &[f32], head_dim: usize) {
        let heads = row.len() / head_dim;
        for (head, x) in row.chunks_exact(head_dim).enumerate() {
            let start = ((half * heads + head) * PAGE + slot) * head_dim;
            match self {
                Page::F16(data) => data[start..start + head_dim].convert_from_f32_slice(x),
                Page::F32(data) => data[start..start + head_dim].copy_from_slice(x),
            }
        }
    }
}

fn zeroed<T: Clone>(len: usize, zero: T) -> Result<Vec<T>, BackendError> {
    let mut data = Vec::new();
    data.try_reserve_exact(len).map_err(|e| {
        BackendError::new(
            BackendErrorKind::OutOfMemory,
            format!("no memory for a page of {} bytes", len * size_of::<T>()),
        )
        .with_source(e)
    })?;
    data.resize(len, zero);
    Ok(data)
}

/// What a query at `p` sees of a layer: `0..sinks` and, of the rest, the last `window` positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visible {
    pub(crate) sinks: usize,
    pub(crate) window: Option<usize>,
    /// Positions behind the window that are kept for rewinds.
    slack: usize,
}

impl Visible {
    fn new(kind: StateKind, bounded: Option<Bounded>) -> Visible {
        match (kind, bounded) {
            (StateKind::Window { tokens }, _) => Visible {
                sinks: 0,
                window: Some(tokens),
                slack: tokens,
            },
            (StateKind::Kv, Some(b)) => Visible {
                sinks: b.sinks,
                window: Some(b.window),
                slack: 0,
            },
            (StateKind::Kv, None) => Visible {
                sinks: 0,
                window: None,
                slack: 0,
            },
        }
    }

    /// The first position behind the sinks that a query at `p` sees.
    fn from(&self, p: usize) -> usize {
        self.window
            .map_or(0, |window| (p + 1).saturating_sub(window))
    }
}

/// One layer's pages.
#[derive(Clone)]
pub(crate) struct LayerKv {
    /// By position / [`PAGE`]; `None` once dropped.
    pub(crate) pages: Vec<Option<Arc<Page>>>,
    pub(crate) visible: Visible,
    head_dim: usize,
    elements: usize,
}

impl LayerKv {
    /// Makes the pages of `from..to` exist and be this sequence's own.
    fn prepare(&mut self, from: usize, to: usize, dtype: KvDtype) -> Result<(), BackendError> {
        self.extend(to, dtype)?;
        for page in self.pages[from / PAGE..to.div_ceil(PAGE)].iter_mut() {
            match page {
                Some(page) => {
                    if Arc::get_mut(page).is_none() {
                        *page = Arc::new(page.try_clone()?);
                    }
                }
                None => *page = Some(Arc::new(Page::new(self.elements, dtype)?)),
            }
        }
        Ok(())
    }

    fn extend(&mut self, to: usize, dtype: KvDtype) -> Result<(), BackendError> {
        while self.pages.len() < to.div_ceil(PAGE) {
            self.pages
                .push(Some(Arc::new(Page::new(self.elements, dtype)?)));
        }
        Ok(())
    }

    /// Writes keys and values of the positions from `position` on. The pages must be prepared.
    pub(crate) fn write(&mut self, position: usize, keys: &[f32], values: &[f32], cols: usize) {
        let rows = keys.chunks_exact(cols).zip(values.chunks_exact(cols));
        for (p, (k, v)) in (position..).zip(rows) {
            if let Some(page) = self.pages[p / PAGE].as_mut().and_then(Arc::get_mut) {
                page.write(0, p % PAGE, k, self.head_dim);
                page.write(1, p % PAGE, v, self.head_dim);
            }
        }
    }

    /// Gives up pages that neither the next query nor a rewind of one window can need.
    fn drop_unseen(&mut self, len: usize) {
        let Some(window) = self.visible.window else {
            return;
        };
        let keep = window.saturating_add(self.visible.slack);
        let keep_from = len.saturating_sub(keep) / PAGE;
        let sinks = self.visible.sinks.div_ceil(PAGE);
        for page in self.pages.iter_mut().take(keep_from).skip(sinks).rev() {
            if page.take().is_none() {
                break;
            }
        }
    }

    /// Of `tokens` positions, those to take pages for at once, with `len` there already: a window never
    /// holds more than itself and what it keeps for rewinds.
    fn most(&self, len: usize, tokens: usize) -> usize {
        self.visible.window.map_or(tokens, |window| {
            let held = window.saturating_add(self.visible.slack + self.visible.sinks);
            tokens.min(len.saturating_add(held))
        })
    }

    /// The largest position at most `to` whose query would find all it sees.
    fn landing(&self, to: usize) -> usize {
        let first = self.visible.from(to) / PAGE;
        if self
            .pages
            .iter()
            .take(to.div_ceil(PAGE))
            .skip(first)
            .all(Option::is_some)
        {
            return to;
        }
        let prefix = self.pages.iter().take_while(|page| page.is_some()).count();
        to.min(prefix * PAGE)
    }
}

/// The states of one sequence.
#[derive(Clone)]
pub(crate) struct CpuStates {
    pub(crate) program: u64,
    pub(crate) layers: Vec<LayerKv>,
    len: usize,
    /// Positions that pages were taken for ahead of use.
    reserved: usize,
    dtype: KvDtype,
}

impl CpuStates {
    pub(crate) fn new(
        program: u64,
        specs: &[StateSpec],
        dtype: KvDtype,
        options: &StateOptions,
    ) -> Result<CpuStates, BackendError> {
        if options.bounded.is_some_and(|b| b.window == 0) {
            return Err(BackendError::new(
                BackendErrorKind::Option,
                "a bounded cache needs a window of at least 1 token",
            ));
        }
        let layers = specs.iter().map(|spec| LayerKv {
            pages: Vec::new(),
            visible: Visible::new(spec.kind, options.bounded),
            head_dim: spec.head_dim,
            elements: 2 * spec.kv_heads * PAGE * spec.head_dim,
        });
        let mut states = CpuStates {
            program,
            layers: layers.collect(),
            len: 0,
            reserved: 0,
            dtype,
        };
        states.reserve(options.reserve)?;
        Ok(states)
    }

    /// Makes room for `new` tokens behind the last, so that writing them cannot fail.
    pub(crate) fn prepare(&mut self, new: usize) -> Result<(), BackendError> {
        for layer in &mut self.layers {
            layer.prepare(self.len, self.len + new, self.dtype)?;
        }
        Ok(())
    }

    /// Counts `new` tokens in after a step wrote them.
    pub(crate) fn commit(&mut self, new: usize) {
        self.len += new;
        for layer in &mut self.layers {
            layer.drop_unseen(self.len);
        }
    }
}

impl States for CpuStates {
    fn len(&self) -> usize {
        self.len
    }

    fn rewind(&mut self, to: usize) -> usize {
        let mut at = to.min(self.len);
        // Landing lower for one layer may take another below what it kept, so go on until all agree.
        while let Some(lower) = self.layers.iter().map(|l| l.landing(at)).min() {
            if lower == at {
                break;
            }
            at = lower;
        }
        if at < self.len {
            // What was reserved stays reserved.
            for layer in &mut self.layers {
                let keep = at.max(layer.most(at, self.reserved));
                layer.pages.truncate(keep.div_ceil(PAGE));
            }
        }
        self.len = at;
        at
    }

    fn reserve(&mut self, tokens: usize) -> Result<(), BackendError> {
        for layer in &mut self.layers {
            layer.extend(layer.most(self.len, tokens), self.dtype)?;
        }
        self.reserved = self.reserved.max(tokens);
        Ok(())
    }

    fn fork(&self) -> Box<dyn States> {
        Box::new(self.clone())
    }

    fn bytes(&self) -> u64 {
        let pages = self.layers.iter().map(|layer| {
            (layer.pages.iter().flatten().count() * layer.elements * self.dtype.bytes()) as u64
        });
        pages.sum()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kind: StateKind) -> StateSpec {
        StateSpec {
            name: "kv".to_owned(),
            kind,
            kv_heads: 2,
            head_dim: 4,
        }
    }

    fn states(kinds: &[StateKind], options: StateOptions) -> CpuStates {
        let specs: Vec<StateSpec> = kinds.iter().map(|&kind| spec(kind)).collect();
        CpuStates::new(1, &specs, KvDtype::F32, &options).unwrap()
    }

    /// Appends positions whose rows are their own numbers.
    fn append(states: &mut CpuStates, count: usize) {
        let from = states.len();
        states.prepare(count).unwrap();
        let rows: Vec<f32> = (from..from + count).flat_map(|p| [p as f32; 8]).collect();
        for layer in &mut states.layers {
            layer.write(from, &rows, &rows, 8);
        }
        states.commit(count);
    }

    fn value(states: &CpuStates, layer: usize, position: usize) -> Option<f32> {
        match states.layers[layer]
            .pages
            .get(position / PAGE)?
            .as_deref()?
        {
            Page::F32(data) => Some(data[(PAGE + position % PAGE) * 4]),
            Page::F16(_) => None,
        }
    }

    #[test]
    fn eng_6_growing_keeps_every_element() {
        let mut states = states(&[StateKind::Kv; 2], StateOptions::default());
        append(&mut states, 8);
        let before: Vec<_> = states.layers[0]
            .pages
            .iter()
            .flatten()
            .map(Arc::as_ptr)
            .collect();
        append(&mut states, 3 * PAGE);
        for layer in 0..2 {
            for p in 0..8 + 3 * PAGE {
                assert_eq!(value(&states, layer, p), Some(p as f32));
            }
        }
        // The first page is where it was: growing copied nothing.
        assert_eq!(
            before,
            [Arc::as_ptr(states.layers[0].pages[0].as_ref().unwrap())]
        );
    }

    #[test]
    fn a_fork_copies_only_the_page_it_writes() {
        let mut origin = states(&[StateKind::Kv], StateOptions::default());
        append(&mut origin, PAGE + 5);
        let mut fork = origin.clone();
        fork.rewind(PAGE + 2);
        append(&mut fork, 1);
        let same = |page: usize| {
            Arc::ptr_eq(
                origin.layers[0].pages[page].as_ref().unwrap(),
                fork.layers[0].pages[page].as_ref().unwrap(),
            )
        };
        assert!(same(0) && !same(1));
        assert_eq!(value(&origin, 0, PAGE + 4), Some((PAGE + 4) as f32));
    }

    #[test]
    fn windows_stay_bounded_and_rewinds_land_where_their_pages_are() {
        let window = StateKind::Window { tokens: PAGE };
        let mut states = states(&[StateKind::Kv, window], StateOptions::default());
        append(&mut states, PAGE);
        for _ in 0..20 * PAGE {
            append(&mut states, 1);
        }
        let held = states.layers[1].pages.iter().flatten().count();
        assert!(held <= 3, "{held} pages of a window of one");
        let len = states.len();
        assert_eq!(states.rewind(len - PAGE), len - PAGE);
        assert_eq!(
            states.rewind(5 * PAGE),
            0,
            "the window's pages are gone, so is all"
        );
    }

    #[test]
    fn sinks_survive_and_can_be_rewound_to() {
        let bounded = Bounded {
            sinks: 4,
            window: PAGE,
        };
        let options = StateOptions {
            reserve: 0,
            bounded: Some(bounded),
        };
        let mut states = states(&[StateKind::Kv], options);
        for _ in 0..20 * PAGE {
            append(&mut states, 1);
        }
        assert_eq!(value(&states, 0, 3), Some(3.0));
        assert_eq!(value(&states, 0, 5 * PAGE), None);
        assert_eq!(states.rewind(10 * PAGE), PAGE);
        assert_eq!(states.len(), PAGE);
    }

    #[test]
    fn reserving_takes_pages_at_once_and_no_more_than_a_window_can_use() {
        let reserve = StateOptions {
            reserve: 10 * PAGE,
            bounded: None,
        };
        let window = StateKind::Window { tokens: PAGE };
        let states = states(&[StateKind::Kv, window], reserve);
        assert_eq!(states.layers[0].pages.len(), 10);
        assert_eq!(states.layers[1].pages.len(), 2);
        let page = (2 * 2 * PAGE * 4 * 4) as u64;
        assert_eq!(states.bytes(), 12 * page);
        let mut states = states;
        append(&mut states, 40);
        states.rewind(3);
        assert_eq!(
            states.layers[0].pages.len(),
            10,
            "a rewind gives no reserved page back"
        );
    }
}
