//! Which `created` windows to list for a batch of payments, and which payments to retrieve one by one.
//!
//! **The cost model.** One list page is one call and carries 100 objects; one retrieve is one call. A window is expected to
//! hold the wanted payments whose range it meets, and foreign objects (other applications', other batches') by their density
//! times its length; it costs a call for each 100 of these begun, and one at least.
//!
//! - Neighbouring windows are **merged** if and only if the foreign objects expected between them are fewer than a page: then
//!   listing the gap costs less than beginning another page behind it.
//! - A window is **listed** if and only if that costs less than retrieving its payments. Where it costs the same, a retrieve
//!   is the surer call.
//! - A long window is **cut** into parts, so that several are listed at once and the oldest payments are answered first; a
//!   cut costs half a page on average, so a part has five pages at least.
//!
//! Seconds are whole unix seconds, windows are half-open: many objects share a second.

/// Objects that one list call answers for.
pub const OBJECTS_PER_CALL: u64 = 100;

/// The shortest part that a window is cut into, in pages.
const PART_PAGES: u64 = 5;

/// Half-open seconds: `from` is in it and `before` is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first unix second.
    pub from: i64,
    /// The first unix second behind it.
    pub before: i64,
}

impl Span {
    /// How long it is, in seconds.
    pub fn seconds(&self) -> u64 {
        u64::try_from(self.before.saturating_sub(self.from)).unwrap_or(0)
    }

    /// Whether a second belongs to both.
    pub fn meets(&self, other: &Self) -> bool {
        self.from < other.before && other.from < self.before
    }

    /// What is left of it where `done` need not be looked at again. A hole in its middle stays in.
    #[must_use]
    pub fn without(self, done: &[Self]) -> Option<Self> {
        if self.from >= self.before {
            return None;
        }
        let at_an_end = |span: &&Self| span.meets(&self) && (span.from <= self.from || span.before >= self.before);
        match done.iter().find(at_an_end) {
            None => Some(self),
            Some(span) if span.from <= self.from => Self { from: span.before, ..self }.without(done),
            Some(span) => Self { before: span.from, ..self }.without(done),
        }
    }
}

/// Objects a second, as a whole number a million seconds (11.6 days).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Density {
    /// Objects in a million seconds.
    pub per_million_seconds: u64,
}

impl Density {
    const MILLION: u64 = 1_000_000;

    /// As many objects in as many seconds; a part of a second counts as one.
    pub fn of(objects: u64, seconds: u64) -> Self {
        Self { per_million_seconds: objects.saturating_mul(Self::MILLION) / seconds.max(1) }
    }

    /// The objects expected in so many seconds, rounded down.
    pub fn objects_in(self, seconds: u64) -> u64 {
        self.per_million_seconds.saturating_mul(seconds) / Self::MILLION
    }
}

/// What a batch will cost, and how to go about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What to list, oldest first.
    pub windows: Vec<Window>,
    /// For each wanted payment the first and the last of the windows that it may be in; `None` where it is to be retrieved.
    pub places: Vec<Option<(usize, usize)>>,
}

/// A stretch of time to list, newest object first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Which seconds.
    pub span: Span,
    /// How many wanted payments may be in it.
    pub wanted: u64,
    /// What listing all of it is expected to cost, in calls.
    pub calls: u64,
}

impl Plan {
    /// What the cost model says of the whole batch, in calls.
    pub fn calls(&self) -> u64 {
        let singles = self.places.iter().filter(|place| place.is_none()).count();
        let listed: u64 = self.windows.iter().map(|window| window.calls).sum();
        listed.saturating_add(u64::try_from(singles).unwrap_or(u64::MAX))
    }
}

/// Plans a batch. `wanted` says for each payment when its PaymentIntent may have been created, `None` where nobody can say;
/// `foreign` is the density of everything else; a window is cut into at most `parts_max` parts.
pub fn plan(wanted: &[Option<Span>], foreign: Density, parts_max: usize) -> Plan {
    let mut ranges: Vec<(usize, Span)> =
        wanted.iter().enumerate().filter_map(|(index, span)| span.map(|span| (index, span))).collect();
    ranges.sort_by_key(|(index, span)| (span.from, span.before, *index));

    let mut planned = Plan { windows: Vec::new(), places: vec![None; wanted.len()] };
    let mut rest: &[(usize, Span)] = &ranges;
    while let Some((_, first)) = rest.first() {
        let mut span = *first;
        let mut count = 0;
        for (_, next) in rest {
            let gap = Span { from: span.before, before: next.from }.seconds();
            if foreign.objects_in(gap) >= OBJECTS_PER_CALL {
                break;
            }
            span.before = span.before.max(next.before);
            count += 1;
        }
        let (rows, behind) = rest.split_at(count);
        if pages(size(rows), foreign, span) < size(rows) {
            take_in(&mut planned, cut(rows, span, foreign, parts_max), rows);
        }
        rest = behind;
    }
    planned
}

/// Puts the windows of some rows into the plan.
fn take_in(planned: &mut Plan, windows: Vec<Window>, rows: &[(usize, Span)]) {
    let base = planned.windows.len();
    planned.windows.extend(windows);
    let windows = planned.windows.get(base..).unwrap_or_default();
    for (index, range) in rows {
        let first = windows.iter().position(|window| window.span.meets(range));
        let last = windows.iter().rposition(|window| window.span.meets(range));
        if let Some(place) = planned.places.get_mut(*index) {
            *place = first.zip(last).map(|(first, last)| (base + first, base + last));
        }
    }
}

fn size(rows: &[(usize, Span)]) -> u64 {
    u64::try_from(rows.len()).unwrap_or(u64::MAX)
}

fn pages(wanted: u64, foreign: Density, span: Span) -> u64 {
    wanted.saturating_add(foreign.objects_in(span.seconds())).div_ceil(OBJECTS_PER_CALL).max(1)
}

fn window(rows: &[(usize, Span)], span: Span, foreign: Density) -> Window {
    let wanted = u64::try_from(rows.iter().filter(|(_, range)| range.meets(&span)).count()).unwrap_or(u64::MAX);
    Window { span, wanted, calls: pages(wanted, foreign, span) }
}

/// Cuts at equal numbers of rows. Where the ranges are so wide that most rows may be in any part, nothing is cut.
fn cut(rows: &[(usize, Span)], whole: Span, foreign: Density, parts_max: usize) -> Vec<Window> {
    let uncut = window(rows, whole, foreign);
    let parts = usize::try_from(uncut.calls / PART_PAGES).unwrap_or(usize::MAX).min(parts_max).max(1);
    let mut windows = Vec::with_capacity(parts);
    let mut from = whole.from;
    for part in 1..parts {
        let (earlier, later) = rows.split_at(rows.len() * part / parts);
        let Some((_, row)) = later.first() else { continue };
        let apart = earlier.iter().all(|(_, range)| range.before <= row.from);
        let before = if apart { row.from } else { row.from + (row.before - row.from) / 2 };
        if before > from && before < whole.before {
            windows.push(window(rows, Span { from, before }, foreign));
            from = before;
        }
    }
    windows.push(window(rows, Span { from, before: whole.before }, foreign));
    let cuts = u64::try_from(windows.len()).unwrap_or(u64::MAX) - 1;
    let calls: u64 = windows.iter().map(|window| window.calls).sum();
    if calls <= uncut.calls + cuts { windows } else { vec![uncut] }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn span(from: i64, before: i64) -> Span {
        Span { from, before }
    }

    fn around(seconds: &[i64]) -> Vec<Option<Span>> {
        seconds.iter().map(|at| Some(span(at - 10, at + 11))).collect()
    }

    #[test]
    fn an_account_of_our_own_is_one_window_however_sparse_and_nothing_is_cut_below_five_pages_a_part() {
        let hourly: Vec<i64> = (0..900).map(|row| row * 3_600).collect();
        let planned = plan(&around(&hourly), Density::default(), 8);
        assert_eq!((planned.windows.len(), planned.calls()), (1, 9));
        let hourly: Vec<i64> = (0..1_000).map(|row| row * 3_600).collect();
        let planned = plan(&around(&hourly), Density::default(), 8);
        assert_eq!((planned.windows.len(), planned.calls()), (2, 10));
        assert_eq!(plan(&around(&hourly), Density::default(), 1).windows.len(), 1);
    }

    #[test]
    fn a_gap_is_listed_when_that_costs_less_than_a_call() {
        let rows = around(&[0, 1, 2, 1_000, 1_001, 1_002]);
        let windows = |foreign| plan(&rows, foreign, 8).windows.len();
        assert_eq!(windows(Density::of(99, 976)), 1);
        assert_eq!(windows(Density::of(101, 976)), 2);
    }

    #[test]
    fn a_window_that_costs_as_much_as_its_rows_is_not_listed() {
        assert_eq!(plan(&around(&[5]), Density::default(), 8).windows, [], "one row, one call: the retrieve is surer");
        let rows = around(&[0, 0, 0]);
        assert_eq!(plan(&rows, Density::of(300, 21), 8).places, [None, None, None]);
        assert_eq!(plan(&rows, Density::of(150, 21), 8).places, [Some((0, 0)); 3]);
    }

    #[test]
    fn what_was_listed_already_is_not_listed_again() {
        assert_eq!(span(0, 10).without(&[]), Some(span(0, 10)));
        assert_eq!(span(0, 10).without(&[span(-5, 3)]), Some(span(3, 10)));
        assert_eq!(span(0, 10).without(&[span(7, 30)]), Some(span(0, 7)));
        assert_eq!(span(0, 10).without(&[span(5, 10), span(0, 5)]), None);
        assert_eq!(span(0, 10).without(&[span(4, 6)]), Some(span(0, 10)), "a hole stays");
    }

    /// Rows with a range and the true second within it, and the density of the rest.
    fn batches() -> impl Strategy<Value = (Vec<Option<(Span, i64)>>, Density, usize)> {
        let row = (0..40_000_i64, 1..60_i64, any::<prop::sample::Index>()).prop_map(|(from, length, at)| {
            (span(from, from + length), from + i64::try_from(at.index(60)).unwrap() % length)
        });
        let rows = prop::collection::vec(prop::option::weighted(0.95, row), 0..1_500);
        (rows, 0..3_000_000_u64, 1..9_usize)
            .prop_map(|(rows, per_million_seconds, parts)| (rows, Density { per_million_seconds }, parts))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn windows_are_disjoint_and_sorted_and_every_row_is_covered_or_left((rows, foreign, parts) in batches()) {
            let wanted: Vec<Option<Span>> = rows.iter().map(|row| row.map(|(span, _)| span)).collect();
            let planned = plan(&wanted, foreign, parts);
            for window in &planned.windows {
                prop_assert!(window.span.from < window.span.before);
            }
            for pair in planned.windows.windows(2) {
                prop_assert!(pair[0].span.before <= pair[1].span.from);
            }
            prop_assert_eq!(planned.places.len(), rows.len());
            for (place, range) in planned.places.iter().zip(&wanted) {
                let Some((first, last)) = *place else { continue };
                let range = range.expect("a row that nobody can place is left");
                // from the first to the last window without a hole, and all of the range in them
                for pair in planned.windows[first..=last].windows(2) {
                    prop_assert_eq!(pair[0].span.before, pair[1].span.from);
                }
                prop_assert!(planned.windows[first].span.from <= range.from);
                prop_assert!(range.before <= planned.windows[last].span.before);
            }
            prop_assert!(planned.calls() <= u64::try_from(rows.len()).unwrap(), "never dearer than one by one");
        }

        #[test]
        fn no_more_calls_than_the_cost_model_said_for_the_same_answers((rows, foreign, parts) in batches()) {
            let wanted: Vec<Option<Span>> = rows.iter().map(|row| row.map(|(span, _)| span)).collect();
            let planned = plan(&wanted, foreign, parts);
            let mut answered = vec![false; rows.len()];
            let mut calls = 0;
            for window in &planned.windows {
                let mut objects = foreign.objects_in(window.span.seconds());
                for (index, row) in rows.iter().enumerate() {
                    // any row whose PaymentIntent is here, planned for this window or not
                    if row.is_some_and(|(_, at)| window.span.from <= at && at < window.span.before) {
                        answered[index] = true;
                        objects += 1;
                    }
                }
                calls += objects.div_ceil(OBJECTS_PER_CALL).max(1);
            }
            for (place, answered) in planned.places.iter().zip(answered) {
                prop_assert!(answered || place.is_none());
                calls += u64::from(!answered);
            }
            prop_assert!(calls <= planned.calls(), "{} > {}", calls, planned.calls());
        }
    }
}
