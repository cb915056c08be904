//! What a job has learned of its account: how far a PaymentIntent's creation is from its row's, and how many objects there
//! are that are not the job's. It decides what a batch costs, and no verdict: with a wrong idea of the account more payments
//! are retrieved one by one, and that teaches better.
//!
//! **Offsets.** The range that is kept is the one that costs least: a second of it costs the objects listed in it, a payment
//! outside of it costs a retrieve. So one row that was made days before its PaymentIntent widens nothing, unless the account
//! is so empty that looking through those days costs less than a call. It widens at once and narrows by a quarter with each
//! batch that was answered as a whole: only that batch has no blind spot.
//!
//! **Density** is that of the foreign objects alone; the job's own payments are known from the batch itself. Windows are drawn
//! around our payments, so what all objects in them come to would be too much, and a job that believes in too much stops
//! listing and never learns better. For the same reason a batch of which nothing was listed halves what is believed.

use super::plan::{Density, OBJECTS_PER_CALL, Span};

/// A PaymentIntent is looked for so many seconds around its row's creation until something is learned.
pub const SLACK_AT_FIRST: i64 = 10;

/// Fewer offsets than this say where the middle is, and not yet where the ends are.
const ENOUGH: usize = 30;

/// Seconds from a row's creation to its PaymentIntent's, both ends included; negative where the PaymentIntent came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// The least.
    pub from: i64,
    /// The greatest.
    pub to: i64,
}

/// What a job knows of its account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// `None` before anything was learned.
    pub offsets: Option<Offsets>,
    /// Of objects that are not the job's; `None` before anything was listed.
    pub foreign: Option<Density>,
}

/// What the pages of some windows held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// All objects.
    pub objects: u64,
    /// Those that nobody had asked for.
    pub foreign: u64,
    /// The stretch of time that the pages covered.
    pub seconds: u64,
}

/// What a batch teaches.
#[derive(Clone, Copy, Debug)]
pub struct Lesson<'a> {
    /// Seconds from the row's creation to the PaymentIntent's, of the payments that were answered.
    pub offsets: &'a [i64],
    /// How many payments each of these stands for: more than one where only a sample of them was asked.
    pub each_for: u64,
    /// Every payment of the batch was answered.
    pub whole: bool,
    /// What was listed.
    pub measured: Measured,
}

impl Learned {
    /// When the PaymentIntent of a row may have been created, by what is known so far.
    pub fn span(&self, row_created: i64) -> Span {
        let Offsets { from, to } = self.offsets.unwrap_or(Offsets { from: -SLACK_AT_FIRST, to: SLACK_AT_FIRST });
        Span { from: row_created.saturating_add(from), before: row_created.saturating_add(to).saturating_add(1) }
    }

    /// The density to plan with.
    pub fn density(&self) -> Density {
        self.foreign.unwrap_or_default()
    }

    /// The same after a lesson.
    #[must_use]
    pub fn after(&self, lesson: &Lesson<'_>) -> Self {
        Self { offsets: self.offsets_after(lesson), foreign: self.foreign_after(lesson.measured) }
    }

    fn offsets_after(&self, lesson: &Lesson<'_>) -> Option<Offsets> {
        let Some(seen) = cheapest_range(lesson) else { return self.offsets };
        Some(match self.offsets {
            None => seen,
            Some(old) => {
                let narrows = lesson.whole && lesson.offsets.len() >= ENOUGH;
                let quarter =
                    |from: i64, to: i64| if narrows { (to.saturating_sub(from)).unsigned_abs().div_ceil(4) } else { 0 };
                let step = |by: u64| i64::try_from(by).unwrap_or(i64::MAX);
                Offsets {
                    from: if seen.from < old.from { seen.from } else { old.from + step(quarter(old.from, seen.from)) },
                    to: if seen.to > old.to { seen.to } else { old.to - step(quarter(seen.to, old.to)) },
                }
            }
        })
    }

    fn foreign_after(&self, measured: Measured) -> Option<Density> {
        let halved = |density: Density| Density { per_million_seconds: density.per_million_seconds / 2 };
        if measured.seconds == 0 {
            return self.foreign.map(halved);
        }
        let seen = Density::of(measured.foreign, measured.seconds);
        Some(self.foreign.map_or(seen, |old| Density {
            per_million_seconds: old.per_million_seconds.midpoint(seen.per_million_seconds),
        }))
    }
}

/// The range of offsets that costs least in calls: a second in it costs the objects listed, a payment outside of it one call.
fn cheapest_range(lesson: &Lesson<'_>) -> Option<Offsets> {
    let mut sorted = lesson.offsets.to_vec();
    sorted.sort_unstable();
    let least = *sorted.first()?;
    let density = Density::of(lesson.measured.objects, lesson.measured.seconds);
    // in hundredths of a call, like an object on a page
    let each = i128::from(lesson.each_for) * i128::from(OBJECTS_PER_CALL);
    let listed = |offset: i64| i128::from(density.objects_in(offset.abs_diff(least)));
    // What a range costs is the listing up to its end less that up to its begin, and the payments before and behind it. So for
    // each end the best begin is the cheapest one so far.
    let (mut begin, mut begin_costs) = (least, 0);
    let (mut best, mut best_costs) = (Offsets { from: least, to: least }, i128::MAX);
    let mut missed = 0;
    for offset in &sorted {
        let listed = listed(*offset);
        if missed - listed < begin_costs {
            (begin, begin_costs) = (*offset, missed - listed);
        }
        missed += each;
        let costs = begin_costs + listed - missed;
        if costs < best_costs {
            (best, best_costs) = (Offsets { from: begin, to: *offset }, costs);
        }
    }
    let Offsets { from, to } = best;
    // the ends of a few are not the ends of all
    let margin = if sorted.len() < ENOUGH { (to - from) / 5 } else { 0 };
    Some(Offsets { from: from - margin, to: to + margin })
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Measured = Measured { objects: 1_000, foreign: 0, seconds: 200_000 };
    const BUSY: Measured = Measured { objects: 1_000, foreign: 0, seconds: 10 };

    fn lesson(offsets: &[i64], whole: bool, measured: Measured) -> Lesson<'_> {
        Lesson { offsets, each_for: 1, whole, measured }
    }

    fn offsets(learned: Learned) -> (i64, i64) {
        let Offsets { from, to } = learned.offsets.unwrap();
        (from, to)
    }

    #[test]
    fn before_anything_is_learned_it_is_ten_seconds_around() {
        assert_eq!(Learned::default().span(1_000), Span { from: 990, before: 1_011 });
        assert_eq!(Learned::default().after(&lesson(&[], true, Measured::default())), Learned::default());
    }

    #[test]
    fn one_row_days_before_its_payment_intent_widens_nothing() {
        let mut seen = [-2, 0, 1, 3].repeat(100);
        seen.push(3 * 86_400);
        assert_eq!(offsets(Learned::default().after(&lesson(&seen, true, QUIET))), (-2, 3));
        let old = Learned { offsets: Some(Offsets { from: -2, to: 3 }), foreign: None };
        assert_eq!(offsets(old.after(&lesson(&seen, true, BUSY))), (-2, 3));
        // but where there is next to nothing to list in those days, listing them costs less than a call
        let empty = Measured { objects: 1_000, foreign: 0, seconds: 1_000_000_000 };
        assert_eq!(offsets(Learned::default().after(&lesson(&seen, true, empty))), (-2, 3 * 86_400));
    }

    #[test]
    fn it_widens_at_once_and_narrows_slowly_and_only_by_a_whole_batch() {
        let old = Learned { offsets: Some(Offsets { from: -4, to: 100 }), foreign: None };
        let wide = vec![-9; 40];
        assert_eq!(offsets(old.after(&lesson(&wide, false, QUIET))), (-9, 100));
        let narrow = [0, 20].repeat(20);
        assert_eq!(offsets(old.after(&lesson(&narrow, false, QUIET))), (-4, 100));
        assert_eq!(offsets(old.after(&lesson(&narrow, true, QUIET))), (-3, 80));
        let mut learned = old;
        for _ in 0..40 {
            learned = learned.after(&lesson(&narrow, true, QUIET));
        }
        assert_eq!(offsets(learned), (0, 20), "and comes to rest");
    }

    #[test]
    fn a_sample_is_given_a_margin_and_a_weight() {
        let sample = Lesson { each_for: 100, ..lesson(&[600, 7_000], false, QUIET) };
        assert_eq!(offsets(Learned::default().after(&sample)), (-680, 8_280));
    }

    #[test]
    fn density_is_that_of_foreign_objects_and_fades_when_nothing_is_listed() {
        let measured = Measured { objects: 1_000, foreign: 900, seconds: 1_000 };
        let learned = Learned::default().after(&lesson(&[], false, measured));
        assert_eq!(learned.foreign, Some(Density::of(900, 1_000)));
        let learned = learned.after(&lesson(&[], false, Measured { foreign: 100, ..measured }));
        assert_eq!(learned.foreign, Some(Density::of(500, 1_000)));
        let learned = learned.after(&lesson(&[], false, Measured::default()));
        assert_eq!(learned.foreign, Some(Density::of(250, 1_000)));
    }
}
