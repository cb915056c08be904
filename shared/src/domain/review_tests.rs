use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn finding(local: &str, external: &str, kind: &str, verdict: &str) -> FindingNow {
    let side = |text: &str| Some(text.to_owned());
    FindingNow {
        id: 1,
        kind: kind.to_owned(),
        verdict: verdict.to_owned(),
        revision: 3,
        local_state: side(local),
        external_status: side(external),
        external_ref: side("pi_1"),
        resolution: None,
        snoozed_until: None,
        command_waits: false,
        has_payment: true,
        payment: Some(PaymentNow { state: side(local), external_ref: side("pi_1"), external_status: side(external) }),
    }
}

fn reason(decision: Decision, finding: &FindingNow) -> &'static str {
    judge(decision, 3, finding, NOW).map_or_else(|refusal| refusal.reason(), |_| "stands")
}

#[test]
fn every_kind_has_a_name_of_its_own_that_can_be_read() {
    let mut names: Vec<String> = Kind::all().map(|kind| kind.to_string()).collect();
    assert!(Kind::all().all(|kind| Kind::parse(&kind.to_string()) == Some(kind)));
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 35);
    assert_eq!(Kind::parse("missed"), None);
}

#[test]
fn a_persons_transition_leads_only_to_what_stripe_says() {
    let locals = ["pending", "finalizing", "expired", "paid", "failed", "x"];
    let externals = ExternalStatus::KNOWN.iter().map(ExternalStatus::as_str).chain(["not_found", "new_status"]);
    let mut allowed = Vec::new();
    for external in externals {
        for local in locals {
            for transition in PersonOnly::ALL {
                let finding = finding(local, external, "paid_locally_not_externally", "needs_review");
                if judge(Decision::Apply(transition), 3, &finding, NOW).is_ok() {
                    allowed.push(format!("{} {local} {external}", transition.as_str()));
                }
            }
        }
    }
    assert_eq!(
        allowed,
        [
            "reverse_paid paid requires_payment_method",
            "reverse_paid paid requires_confirmation",
            "reverse_paid paid requires_action",
            "reverse_paid paid canceled",
            "accept_late_success failed succeeded",
            "reverse_paid paid not_found",
        ]
    );
}

#[test]
fn what_has_changed_since_it_was_shown_is_refused_with_what_is_true_now() {
    let shown = finding("paid", "canceled", "paid_locally_not_externally", "needs_review");
    let apply = Decision::Apply(PersonOnly::ReversePaid);
    assert_eq!(judge(apply, 3, &shown, NOW), Ok(Act::Apply(PersonOnly::ReversePaid)));
    let refused = judge(apply, 2, &shown, NOW).unwrap_err().to_string();
    assert!(
        refused.contains("revision 3 and not at 2") && refused.contains("here paid, at Stripe canceled"),
        "{refused}"
    );
    let closed = FindingNow { resolution: Some("accepted".to_owned()), ..shown.clone() };
    assert_eq!(judge(apply, 3, &closed, NOW).unwrap_err().to_string(), "the finding is closed: accepted");
    let payment = |state: &str, reference: Option<&str>, status: &str| FindingNow {
        payment: Some(PaymentNow {
            state: Some(state.to_owned()),
            external_ref: reference.map(str::to_owned),
            external_status: Some(status.to_owned()),
        }),
        ..shown.clone()
    };
    for (now, why) in [
        (payment("failed", Some("pi_1"), "canceled"), "payment_changed"),
        (payment("paid", None, "canceled"), "payment_changed"),
        (payment("paid", Some("pi_1"), "succeeded"), "stripe_changed"),
        (FindingNow { payment: None, ..shown.clone() }, "payment_gone"),
    ] {
        for decision in [apply, Decision::Accept, Decision::Retry, Decision::Snooze { until: NOW + SNOOZE_MAX }] {
            assert_eq!(reason(decision, &now), why);
        }
    }
}

#[test]
fn each_decision_is_refused_where_it_does_not_fit() {
    let repairing = finding("pending", "succeeded", "missed_success", "repairable");
    let helpless = FindingNow { verdict: "needs_review".to_owned(), ..repairing.clone() };
    let waiting = FindingNow { command_waits: true, ..repairing.clone() };
    let drift = finding("paid", "canceled", "paid_locally_not_externally", "needs_review");
    let orphan = FindingNow { has_payment: false, payment: None, local_state: None, ..drift.clone() };
    let snooze = |until| Decision::Snooze { until };
    let later = NOW + Duration::days(1);
    for (decision, finding, expected) in [
        (Decision::Accept, &repairing, "being_repaired"),
        (Decision::Accept, &helpless, "stands"),
        (Decision::Accept, &orphan, "stands"),
        (Decision::Retry, &helpless, "stands"),
        (Decision::Retry, &repairing, "stands"),
        (Decision::Retry, &waiting, "command_waits"),
        (Decision::Retry, &drift, "no_command"),
        (Decision::Apply(PersonOnly::ReversePaid), &orphan, "no_payment"),
        (Decision::Apply(PersonOnly::AcceptLateSuccess), &drift, "does_not_lead"),
        (snooze(later), &drift, "stands"),
        (snooze(later), &repairing, "being_repaired"),
        (snooze(NOW), &drift, "snooze_end"),
        (snooze(NOW + SNOOZE_MAX), &drift, "stands"),
        (snooze(NOW + SNOOZE_MAX + Duration::SECOND), &drift, "snooze_end"),
        (snooze(later), &FindingNow { snoozed_until: Some(later), ..drift.clone() }, "snoozed_already"),
    ] {
        assert_eq!(reason(decision, finding), expected, "{decision:?} {}", finding.kind);
    }
    let words = |finding| choices(finding, NOW).into_iter().map(Decision::as_str).collect::<Vec<_>>();
    assert_eq!(words(&drift), ["apply", "accept", "snooze"]);
    assert_eq!(words(&helpless), ["retry", "accept", "snooze"]);
    assert!(words(&waiting).is_empty());
}
