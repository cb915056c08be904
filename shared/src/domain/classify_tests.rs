//! The whole classification table, every pair, and the properties that hold over all of it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use time::Duration;

use super::Timestamp;
use super::classify::{BeforeAsking, Policy, before_asking, classify};
use super::external::{Decline, External, ExternalPayment, ExternalStatus};
use super::id::{ExternalRef, PaymentId};
use super::orphan::{OrphanVerdict, classify_orphan};
use super::payment::{LocalState, Payment, Reference};
use super::verdict::{Judgement, Kind, Verdict};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const POLICY: Policy =
    Policy { grace: Duration::minutes(10), retry_window: Duration::hours(24), in_flight_max: Duration::days(30) };

fn payment(state: Option<&str>, reference: Option<&str>, updated: Duration) -> Payment {
    Payment {
        id: PaymentId::new("7"),
        reference: Reference::from_view(reference.map(str::to_owned)),
        match_key: None,
        state: LocalState::from_view(state),
        created_at: NOW - Duration::days(90),
        updated_at: NOW - updated,
        version: "1".into(),
        previous: None,
    }
}

fn present(status: &str, created: Duration) -> ExternalPayment {
    ExternalPayment {
        id: ExternalRef::parse("pi_1").unwrap(),
        status: ExternalStatus::from_stripe(status),
        amount_minor: 1,
        amount_received_minor: 0,
        currency: "eur".into(),
        created: NOW - created,
        livemode: true,
        metadata: BTreeMap::new(),
        decline: None,
        cancellation_reason: None,
    }
}

/// What a cell says: the verdict, the kind, and `+` where a compensation event goes out with it.
fn cell(judgement: &Judgement) -> String {
    let event = matches!(judgement, Judgement::NeedsReview { compensation: true, .. });
    match judgement.kind() {
        None => judgement.verdict().as_str().to_owned(),
        Some(kind) => format!("{} {kind}{}", judgement.verdict().as_str(), if event { " +" } else { "" }),
    }
}

fn judged(state: Option<&str>, external: &External) -> String {
    cell(&classify(&payment(state, Some("pi_1"), Duration::hours(1)), external, &POLICY, NOW))
}

const MISSED_SUCCESS: &str = "repairable missed_success";
const MISSED_CANCEL: &str = "repairable missed_cancel";
const PAID_ALONE: &str = "needs_review paid_locally_not_externally";
const MISSING: &str = "needs_review missing_externally";
const UNMAPPED: &str = "needs_review unmapped_state";

/// One row a state; columns: succeeded, canceled, requires_payment_method (no decline), requires_confirmation,
/// requires_action, processing, requires_capture, not_found, an unknown text.
#[rustfmt::skip]
const TABLE: [(Option<&str>, [&str; 9]); 7] = [
    (Some("pending"), [MISSED_SUCCESS, MISSED_CANCEL, "in_sync", "in_flight", "in_flight", "in_flight", "in_flight",
        MISSING, "needs_review unexpected:pending->unknown"]),
    (Some("finalizing"), [MISSED_SUCCESS, MISSED_CANCEL, "in_flight", "in_flight", "in_flight", "in_flight", "in_flight",
        "needs_review missing_externally +", "needs_review unexpected:finalizing->unknown +"]),
    (Some("expired"), [MISSED_SUCCESS, MISSED_CANCEL, "in_sync", "in_flight", "in_flight", "in_flight", "in_flight",
        "needs_review missing_externally +", "needs_review unexpected:expired->unknown +"]),
    (Some("paid"), ["in_sync", PAID_ALONE, PAID_ALONE, PAID_ALONE, PAID_ALONE, PAID_ALONE, PAID_ALONE,
        MISSING, PAID_ALONE]),
    (Some("failed"), ["needs_review unexpected:failed->succeeded", "in_sync", "in_sync",
        "needs_review unexpected:failed->requires_confirmation", "needs_review unexpected:failed->requires_action",
        "needs_review unexpected:failed->processing", "needs_review unexpected:failed->requires_capture",
        MISSING, "needs_review unexpected:failed->unknown"]),
    (Some("refunded"), [UNMAPPED; 9]),
    (None, [UNMAPPED; 9]),
];

const COLUMNS: [&str; 9] = [
    "succeeded",
    "canceled",
    "requires_payment_method",
    "requires_confirmation",
    "requires_action",
    "processing",
    "requires_capture",
    "not_found",
    "partially_funded",
];

#[test]
fn every_pair_of_the_table() {
    for (state, cells) in TABLE {
        for (column, expected) in COLUMNS.into_iter().zip(cells) {
            let external = match column {
                "not_found" => External::NotFound { other_mode: false },
                status => External::Present(present(status, Duration::hours(1))),
            };
            assert_eq!(judged(state, &external), expected, "{state:?} x {column}");
        }
    }
}

#[test]
fn a_decline_is_an_end_only_when_the_retry_window_has_passed() {
    let declined = |state, charged_at: Option<Duration>, updated, created| {
        let mut external = present("requires_payment_method", created);
        external.decline = Some(Decline { code: None, charged_at: charged_at.map(|ago| NOW - ago) });
        cell(&classify(&payment(Some(state), Some("pi_1"), updated), &External::Present(external), &POLICY, NOW))
    };
    let (hour, day, long) = (Duration::hours(1), Duration::hours(24), Duration::hours(25));
    for (state, before) in [("finalizing", "in_flight"), ("expired", "in_sync")] {
        assert_eq!(
            declined(state, Some(day), long, long),
            before,
            "{state}: exactly as long as the window is within it"
        );
        assert_eq!(declined(state, Some(long), hour, long), "repairable missed_failure", "{state}: from the charge on");
        assert_eq!(declined(state, None, hour, long), before, "{state}: no charge, our row is fresh");
        assert_eq!(declined(state, None, long, hour), before, "{state}: no charge, their object is fresh");
        assert_eq!(declined(state, None, long, long), "repairable missed_failure", "{state}: no charge, nothing since");
    }
    assert_eq!(declined("pending", Some(long), long, long), "in_sync");
    assert_eq!(declined("failed", Some(long), long, long), "in_sync");
    assert_eq!(declined("paid", Some(hour), long, long), PAID_ALONE);
}

#[test]
fn nothing_is_in_flight_for_longer_than_the_maximum() {
    let stalled = "needs_review stalled_in_flight";
    let (max, over) = (Duration::days(30), Duration::days(30) + Duration::SECOND);
    for (state, status) in
        [("pending", "processing"), ("finalizing", "requires_payment_method"), ("expired", "requires_action")]
    {
        let judged = |updated, created| {
            let external = External::Present(present(status, created));
            cell(&classify(&payment(Some(state), Some("pi_1"), updated), &external, &POLICY, NOW))
        };
        assert_eq!(judged(over, over), stalled, "{state} x {status}");
        assert_eq!(judged(max, over), "in_flight", "{state} x {status}: our last sign of life counts");
        assert_eq!(judged(over, max), "in_flight", "{state} x {status}: and theirs");
        assert_eq!(judged(Duration::days(-400), over), stalled, "{state} x {status}: a date in the future has no say");
    }
}

#[test]
fn the_other_mode_is_missing_too_but_nobody_is_compensated_for_it() {
    for state in ["pending", "finalizing", "expired", "paid", "failed"] {
        assert_eq!(judged(Some(state), &External::NotFound { other_mode: true }), MISSING, "{state}");
    }
}

#[test]
fn the_grace_period_comes_before_everything_else() {
    let plan = |updated| before_asking(&payment(Some("x"), Some(""), updated), &POLICY, NOW);
    assert_eq!(plan(Duration::seconds(599)), BeforeAsking::TooFresh);
    assert_eq!(plan(Duration::ZERO), BeforeAsking::TooFresh);
    assert_eq!(plan(-POLICY.grace), BeforeAsking::TooFresh, "clocks differ");
    assert_ne!(plan(POLICY.grace), BeforeAsking::TooFresh, "as old as the grace is old enough");
    assert_ne!(plan(-POLICY.grace - Duration::SECOND), BeforeAsking::TooFresh, "a wrong date is not fresh");
}

#[test]
fn what_cannot_be_asked_for_is_judged_from_the_row() {
    let settled = |state, reference: Option<&str>| match before_asking(
        &payment(state, reference, Duration::hours(1)),
        &POLICY,
        NOW,
    ) {
        BeforeAsking::Settled(judgement) => cell(&judgement),
        BeforeAsking::Ask(id) => format!("ask {id}"),
        BeforeAsking::TooFresh => "too fresh".to_owned(),
    };
    let too_long = format!("pi_{}", "x".repeat(297));
    for reference in ["", "pi_1/refunds", "ch_1", too_long.as_str()] {
        for state in [Some("pending"), Some("paid"), Some("odd"), None] {
            assert_eq!(settled(state, Some(reference)), "needs_review malformed_reference", "{reference:?}");
        }
    }
    assert_eq!(settled(Some("pending"), None), "in_sync", "an abandoned cart");
    assert_eq!(settled(Some("failed"), None), "in_sync");
    assert_eq!(settled(Some("finalizing"), None), "in_flight", "waits for the reverse scan");
    assert_eq!(settled(Some("expired"), None), "in_flight", "waits for the reverse scan");
    let long_ago = payment(Some("expired"), None, Duration::days(31));
    let stalled = BeforeAsking::Settled(Judgement::NeedsReview { kind: Kind::StalledInFlight, compensation: false });
    assert_eq!(before_asking(&long_ago, &POLICY, NOW), stalled, "but not for ever");
    assert_eq!(settled(Some("paid"), None), "needs_review no_external_reference");
    assert_eq!(settled(Some("odd"), None), UNMAPPED);
    assert_eq!(settled(Some("odd"), Some("pi_1")), "ask pi_1");
}

#[test]
fn an_orphan_is_a_persons_only_where_money_moved_or_is_held() {
    let payment = PaymentId::new("7");
    let verdict = |status, unlinked| classify_orphan(&present(status, Duration::ZERO), unlinked);
    for status in ["succeeded", "requires_capture"] {
        let orphan = OrphanVerdict::NeedsReview { kind: Kind::OrphanCharge, payment_id: None };
        assert_eq!(verdict(status, None), orphan);
        let unlinked = OrphanVerdict::NeedsReview { kind: Kind::UnlinkedCharge, payment_id: Some(payment.clone()) };
        assert_eq!(verdict(status, Some(&payment)), unlinked);
    }
    for status in ["requires_payment_method", "requires_confirmation", "requires_action", "processing", "brand_new"] {
        assert_eq!(verdict(status, Some(&payment)), OrphanVerdict::Pending, "{status}");
    }
    assert_eq!(verdict("canceled", Some(&payment)), OrphanVerdict::Harmless);
}

prop_compose! {
    fn any_payment()(
        state in prop_oneof![
            proptest::sample::select(vec!["pending", "finalizing", "expired", "paid", "failed"]).prop_map(|s| Some(s.to_owned())),
            any::<Option<String>>(),
        ],
        seconds in -4_000_000_i64..4_000_000,
    ) -> Payment {
        payment(state.as_deref(), Some("pi_1"), Duration::seconds(seconds))
    }
}

prop_compose! {
    fn any_external()(
        status in prop_oneof![
            proptest::sample::select(COLUMNS.to_vec()).prop_map(str::to_owned),
            any::<String>(),
        ],
        created in 0_i64..4_000_000,
        declined in any::<Option<Option<u32>>>(),
        other_mode in any::<bool>(),
    ) -> External {
        if status == "not_found" {
            return External::NotFound { other_mode };
        }
        let mut external = present(&status, Duration::seconds(created));
        external.decline = declined.map(|charged| Decline {
            code: None,
            charged_at: charged.map(|ago| NOW - Duration::seconds(i64::from(ago))),
        });
        External::Present(external)
    }
}

proptest! {
    #[test]
    fn total_and_never_falsely_healthy(payment in any_payment(), external in any_external()) {
        let judgement = classify(&payment, &external, &POLICY, NOW);
        let verdict = judgement.verdict();
        prop_assert_eq!(judgement.kind().is_some(), matches!(verdict, Verdict::Repairable | Verdict::NeedsReview));
        prop_assert_ne!(verdict, Verdict::Unverifiable);
        if payment.state == LocalState::Paid {
            prop_assert_ne!(verdict, Verdict::InFlight);
        }
        let unknown = matches!(&external, External::Present(p) if matches!(p.status, ExternalStatus::Unknown(_)));
        if unknown || matches!(external, External::NotFound { .. }) || matches!(payment.state, LocalState::Unmapped(_)) {
            prop_assert_eq!(verdict, Verdict::NeedsReview);
        }
        if verdict == Verdict::Repairable {
            prop_assert!(!matches!(payment.state, LocalState::Paid | LocalState::Failed), "money moves only by a person");
        }
    }
}
