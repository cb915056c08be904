//! Which part of what Stripe created is walked: pure.
//!
//! A window **begins** if and only if none is under way and the upper edge, now less the grace period, has moved on since the
//! last one was completed, or somebody asked for what is older. It reaches back to the last completed upper edge less an
//! overlap of one more grace period, however long ago that was, so that windows leave no gap; the first one to
//! `REVERSE_WINDOW_DAYS` ago.
//!
//! A window is **complete** if and only if a page without a next one was read. Its edges never move while it is walked, but for
//! the lower one when somebody asks for more: pages come newest first, so that what is older simply follows.
//!
//! A complete window **proves** that a charge is not there if and only if it was walked under the present terms (another
//! metadata key, another filter would have met other objects) and no object of it was unreadable. What is proven reaches back
//! as far as such windows follow each other.

use reconciler::config::ReverseSettings;
use reconciler::domain::Timestamp;
use reconciler::domain::classify::Policy;
use reconciler::domain::id::ExternalRef;
use reconciler::store::reverse::{Proof, UnderWay, Window};
use time::Duration;

/// The upper edge is at least this much below now, however short the grace period: `created` has whole seconds.
const EDGE: Duration = Duration::seconds(10);

/// Windows overlap by a grace period, and at least by this.
const OVERLAP: Duration = Duration::minutes(1);

/// A PaymentIntent may be this much older than the payment that it is for: a cart that was open for long.
const OLDER: Duration = Duration::days(1);

/// And this much younger than the payment's last change: the worker was slow.
const YOUNGER: Duration = Duration::hours(1);

/// The settings that decide what a walk meets, as one text to compare.
pub(crate) fn terms(settings: &ReverseSettings) -> String {
    format!("match {:?}, marked {:?}, in {:?}", settings.match_key, settings.markers, settings.currencies)
}

/// The window with which a tick begins, if it is another than the one that was read.
pub(crate) fn begin(
    window: &Window,
    settings: &ReverseSettings,
    policy: &Policy,
    now: Timestamp,
    asked: Option<Timestamp>,
) -> Option<Window> {
    let mut next = window.clone();
    next.terms = terms(settings);
    let other_terms = next.terms != window.terms;
    if other_terms {
        (next.proven_from, next.proven_matched) = (None, 0);
    }
    match &mut next.under_way {
        Some(under_way) => {
            if let Some(asked) = asked {
                under_way.from = under_way.from.min(whole_second(asked));
            }
            if other_terms {
                from_the_first_page(under_way);
            }
        }
        None => next.under_way = due(window, settings, policy, now, asked),
    }
    // between two windows other terms alone are no reason to write
    (next.under_way != window.under_way || (other_terms && next.under_way.is_some())).then_some(next)
}

fn due(
    window: &Window,
    settings: &ReverseSettings,
    policy: &Policy,
    now: Timestamp,
    asked: Option<Timestamp>,
) -> Option<UnderWay> {
    let to = whole_second(now - policy.grace.max(EDGE));
    let completed_to = window.completed.map(|(completed_to, _)| completed_to);
    let regular = completed_to.map_or(to - settings.window, |completed_to| completed_to - policy.grace.max(OVERLAP));
    let from = asked.map_or(regular, |asked| whole_second(asked).min(regular));
    let is_due = from < to && (asked.is_some() || completed_to.is_none_or(|completed_to| completed_to < to));
    is_due.then_some(UnderWay {
        from,
        to,
        page_after: None,
        started_at: now,
        pages: 0,
        objects: 0,
        matched: 0,
        unread: 0,
    })
}

fn whole_second(at: Timestamp) -> Timestamp {
    at.replace_nanosecond(0).unwrap_or(at)
}

/// The window is walked from its newest page again.
pub(crate) fn from_the_first_page(under_way: &mut UnderWay) {
    under_way.page_after = None;
    (under_way.pages, under_way.objects, under_way.matched, under_way.unread) = (0, 0, 0, 0);
}

/// What was met on a page, or on the part of it that was finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Met {
    pub(crate) objects: i64,
    pub(crate) known: i64,
    pub(crate) matched: i64,
    pub(crate) unread: i64,
}

/// Where the walk goes from a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Behind this object: the page was finished and has a next one.
    Next(ExternalRef),
    /// The page was finished and is the last one: the window is complete.
    Complete,
    /// Behind this object, in the middle of the page; or to the same page again.
    Cut(Option<ExternalRef>),
}

/// The window after a page.
pub(crate) fn turn(window: &Window, met: &Met, way: Way, now: Timestamp) -> Window {
    let mut next = window.clone();
    next.known += met.known;
    let Some(under_way) = &mut next.under_way else { return next };
    under_way.objects += met.objects;
    under_way.matched += met.matched;
    under_way.unread += met.unread;
    match way {
        Way::Next(after) => {
            under_way.pages += 1;
            under_way.page_after = Some(after);
        }
        Way::Cut(after) => under_way.page_after = after.or_else(|| under_way.page_after.take()),
        Way::Complete => {
            let UnderWay { from, to, matched, unread, .. } = *under_way;
            let completed_to = window.completed.map_or(to, |(before, _)| before.max(to));
            next.completed = Some((completed_to, now));
            (next.proven_from, next.proven_matched) = if unread > 0 {
                (None, 0)
            } else {
                (Some(next.proven_from.map_or(from, |proven| proven.min(from))), next.proven_matched + matched)
            };
            next.under_way = None;
        }
    }
    next
}

/// What is proven: a payment of this time that no object names has no charge. `None` where nothing is. Where no object names
/// the payment that names it, the metadata key is a wrong one, or the account is.
pub(crate) fn proof(window: &Window, policy: &Policy, now: Timestamp) -> Option<Proof> {
    let (completed_to, _) = window.completed?;
    let proof = Proof {
        from: window.proven_from? + OLDER,
        to: completed_to - YOUNGER,
        changed_since: now - policy.in_flight_max,
    };
    (window.proven_matched > 0 && proof.from < proof.to).then_some(proof)
}

#[cfg(test)]
mod tests;
