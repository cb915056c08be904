//! The demo's payments: most of them fine, and a few of every kind of drift, each with the story behind it.

/// What is at Stripe for a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtStripe {
    /// Nothing is asked for.
    NoReference,
    /// A PaymentIntent in this status, in Stripe's words.
    Status(&'static str),
    /// The last attempt was declined, so many hours ago.
    Declined {
        /// Hours.
        ago: i64,
    },
    /// Stripe has never heard of it.
    Unheard,
    /// It exists in the other mode.
    OtherMode,
    /// The column holds something that is no reference.
    Malformed,
    /// A PaymentIntent in this status whose metadata names the order; the row does not name it.
    Unlinked(&'static str),
}

/// One sort of payment.
#[derive(Clone, Copy, Debug)]
pub struct Sort {
    /// What happened.
    pub story: &'static str,
    /// The application's status.
    pub local: &'static str,
    /// What is at Stripe.
    pub at_stripe: AtStripe,
    /// How many of 10,000 payments.
    pub share: i64,
    /// The age of the row's last change, in minutes.
    pub age_minutes: i64,
}

const fn sort(story: &'static str, local: &'static str, at_stripe: AtStripe, share: i64, age_minutes: i64) -> Sort {
    Sort { story, local, at_stripe, share, age_minutes }
}

const HOURS: i64 = 60;
const DAYS: i64 = 24 * HOURS;

/// Every sort; what is left over is paid on both sides.
pub const SORTS: [Sort; 22] = [
    sort("failed on both sides", "failed", AtStripe::Status("canceled"), 300, 20 * DAYS),
    sort("an abandoned cart", "pending", AtStripe::NoReference, 250, 12 * DAYS),
    sort("never attempted", "pending", AtStripe::Status("requires_payment_method"), 250, 3 * DAYS),
    sort("with the bank", "finalizing", AtStripe::Status("processing"), 120, 2 * DAYS),
    sort("made a minute ago", "pending", AtStripe::Status("succeeded"), 60, 1),
    sort("a webhook that is late, or never comes", "pending", AtStripe::Status("succeeded"), 80, 5 * HOURS),
    sort("the worker died after sending", "finalizing", AtStripe::Status("succeeded"), 40, 7 * HOURS),
    sort("the worker lost its lease", "expired", AtStripe::Status("succeeded"), 30, 8 * HOURS),
    sort("canceled in the dashboard", "pending", AtStripe::Status("canceled"), 30, 2 * DAYS),
    sort("declined, and nobody tried again", "finalizing", AtStripe::Declined { ago: 48 }, 20, 2 * DAYS),
    sort("a row that Stripe has never heard of", "finalizing", AtStripe::Unheard, 10, 3 * DAYS),
    sort("paid, and gone at Stripe", "paid", AtStripe::Unheard, 4, 30 * DAYS),
    sort("a row of test mode", "paid", AtStripe::OtherMode, 4, 40 * DAYS),
    sort("paid, and canceled behind our back", "paid", AtStripe::Status("canceled"), 8, 9 * DAYS),
    sort("paid, and only authorised", "paid", AtStripe::Status("requires_capture"), 6, 6 * DAYS),
    sort("given up here, and taken there", "failed", AtStripe::Status("succeeded"), 6, 5 * DAYS),
    sort("given up here, and still under way", "failed", AtStripe::Status("processing"), 4, 4 * DAYS),
    sort("a status of next year", "expired", AtStripe::Status("partially_funded"), 4, 2 * DAYS),
    sort("under way for six weeks", "pending", AtStripe::Status("processing"), 6, 42 * DAYS),
    sort("a state that the view does not map", "charged_back", AtStripe::Status("succeeded"), 4, 15 * DAYS),
    sort("a reference that is none", "paid", AtStripe::Malformed, 4, 10 * DAYS),
    sort("charged, and the worker died before it saved that", "finalizing", AtStripe::Unlinked("succeeded"), 4, DAYS),
];

/// What everything else is.
pub const FINE: Sort = sort("paid on both sides", "paid", AtStripe::Status("succeeded"), 0, 30 * DAYS);

/// Whether Stripe's webhook for it is still on its way when the demo begins, or never comes.
pub fn awaits_a_webhook(sort: &Sort) -> bool {
    match sort.at_stripe {
        AtStripe::Status("succeeded") => sort.local != "paid",
        AtStripe::Status("canceled") => sort.local != "failed",
        AtStripe::Declined { .. } => true,
        AtStripe::Status(_)
        | AtStripe::NoReference
        | AtStripe::Unheard
        | AtStripe::OtherMode
        | AtStripe::Malformed
        | AtStripe::Unlinked(_) => false,
    }
}

/// How many of a sort there are among `payments`: one at the least.
pub fn count(sort: &Sort, payments: i64) -> i64 {
    (sort.share * payments / 10_000).max(1)
}

/// One payment: its sort, and how many minutes ago the row was made and last changed.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// What happened to it.
    pub sort: Sort,
    /// Minutes.
    pub age_minutes: i64,
}

/// `payments` rows, or a few more where that is less than one of each sort; oldest first, the same every time.
pub fn plan(payments: i64) -> Vec<Planned> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut all: Vec<Planned> = SORTS
        .iter()
        .flat_map(|sort| (0..count(sort, payments)).map(move |_| *sort))
        .map(|sort| {
            // older does not change what it is, but for what is fresh
            let older = if sort.age_minutes > 10 { random.i64(0..=sort.age_minutes / 2) } else { 0 };
            Planned { sort, age_minutes: sort.age_minutes + older }
        })
        .collect();
    let wanted = usize::try_from(payments).unwrap_or_default().max(all.len());
    all.resize_with(wanted, || Planned { sort: FINE, age_minutes: random.i64(HOURS..90 * DAYS) });
    all.sort_by_key(|planned| std::cmp::Reverse(planned.age_minutes));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sort_is_there_and_the_number_is_kept() {
        for payments in [1, 100, 3_000] {
            let all = plan(payments);
            assert_eq!(all.len(), usize::try_from(payments).unwrap().max(SORTS.len()));
            for sort in SORTS {
                assert!(all.iter().any(|planned| planned.sort.story == sort.story), "{}", sort.story);
            }
            assert!(all.is_sorted_by(|one, next| one.age_minutes >= next.age_minutes));
        }
    }
}
