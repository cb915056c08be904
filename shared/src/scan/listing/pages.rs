//! One window of a plan, as far as its pages have come.

use std::collections::HashSet;

use crate::domain::id::ExternalRef;
use crate::domain::plan::{Density, OBJECTS_PER_CALL, Span};

/// Pages of its own before a window's density is believed.
const PAGES_TO_MEASURE: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    Busy,
    Ended,
}

/// One window, as far as it is listed.
pub(super) struct Pages {
    pub(super) span: Span,
    /// Payments that may be in it and have no answer yet.
    pub(super) wanted: u64,
    pub(super) state: State,
    pub(super) after: Option<ExternalRef>,
    pub(super) cursors: HashSet<ExternalRef>,
    /// Where listing begins: the window's end, but where it was begun anew.
    pub(super) list_before: i64,
    /// The second of the oldest object seen; the window's end before any.
    pub(super) reached: i64,
    pub(super) pages: u64,
    pub(super) objects: u64,
    pub(super) foreign: u64,
    pub(super) complete: bool,
    pub(super) attempt: u32,
    pub(super) begun_anew: bool,
}

impl Pages {
    pub(super) fn new(span: Span, wanted: u64) -> Self {
        Self {
            span,
            wanted,
            state: State::Waiting,
            after: None,
            cursors: HashSet::new(),
            list_before: span.before,
            reached: span.before,
            pages: 0,
            objects: 0,
            foreign: 0,
            complete: false,
            attempt: 1,
            begun_anew: false,
        }
    }

    /// What its pages covered for sure: the second of the oldest object may go on behind the page.
    pub(super) fn covered(&self) -> Span {
        let from = if self.complete { self.span.from } else { self.reached.saturating_add(1).min(self.span.before) };
        Span { from, before: self.span.before }
    }

    /// The pages that are still expected.
    pub(super) fn expected(&self, learned: Density) -> u64 {
        let seconds = Span { from: self.reached, before: self.span.before }.seconds();
        let foreign = if self.pages < PAGES_TO_MEASURE { learned } else { Density::of(self.foreign, seconds.max(1)) };
        let left = Span { from: self.span.from, before: self.reached }.seconds();
        self.wanted.saturating_add(foreign.objects_in(left)).div_ceil(OBJECTS_PER_CALL)
    }
}
