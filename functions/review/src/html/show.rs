//! One finding as a page: the facts, what can be decided, the evidence, what came before.

use maud::{Markup, html};
use serde_json::{Value, json};

use super::list::severity;
use super::{Display, Endpoints, button, data, data_or_dash};
use crate::money::amount;
use crate::show::Shown;
use crate::text::{age, minute, plain};
use crate::widget::Page;

pub(super) fn page(shown: &Shown, page: &Page, endpoints: &Endpoints<'_>) -> Markup {
    html! {
        p { (button("Back to the list", "btn", endpoints.this, Display::Widget, None, &json!({"action": "list"}))) }
        h2 {
            "Finding " (shown.finding) ": " (data(&shown.kind)) " " (severity(shown.severity, shown.severity))
        }
        (facts(shown))
        form {
            // the list's filter, for the way back
            @for (name, text) in &page.filter { input type="hidden" name=(name) value=(text); }
            @if let Some(decide) = endpoints.decide.filter(|_| !shown.choices.is_empty()) { (decisions(shown, decide)) }
        }
        @if endpoints.decide.is_none() && !shown.choices.is_empty() {
            p class="dim" { "This widget only shows. What can be decided: " (shown.choices.join(", ")) "." }
        }
        h3 { "Evidence" }
        pre { (lines(&format!("{:#}", shown.evidence))) }
        (rows("Decided before", &shown.reviews))
        (rows("Other findings of the payment", &shown.earlier))
        (rows("Commands and events that came of it", &shown.outbox))
    }
}

fn facts(shown: &Shown) -> Markup {
    let now = shown.read_at;
    let money = |name: &str| {
        let minor = shown.evidence.get(name)?.as_i64()?;
        Some(amount(minor.into(), &plain(shown.evidence.get("currency")?.as_str()?)))
    };
    html! {
        table class="facts" {
            (fact("Payment", &data_or_dash(shown.payment.as_deref())))
            (fact("PaymentIntent", &html! {
                (data_or_dash(shown.external_ref.as_deref()))
                @if let Some(url) = &shown.stripe_url {
                    " " a href=(url) target="_blank" rel="noopener noreferrer" { "in Stripe's dashboard" }
                }
            }))
            (fact("Found", &html! {
                "here " (data_or_dash(shown.local_state.as_deref())) ", at Stripe " (data_or_dash(shown.external_status.as_deref()))
                ", " (age(shown.detected_at, now)) " ago (" (minute(shown.detected_at)) ")"
            }))
            (fact("Seen last", &html! { (age(shown.last_seen_at, now)) " ago" }))
            @if let Some(amount) = money("amount_minor") { (fact("Amount", &html! { (amount) })) }
            @if let Some(received) = money("amount_received_minor") { (fact("Received", &html! { (received) })) }
            @if let Some(payment) = &shown.payment_now {
                (fact("The payment now", &html! {
                    (data_or_dash(payment.state.as_deref())) " with " (data_or_dash(payment.external_ref.as_deref()))
                    @if let Some(updated_at) = payment.updated_at { ", changed " (age(updated_at, now)) " ago" }
                }))
            }
            @if let Some(observation) = &shown.observation {
                (fact("Stripe last said", &html! {
                    (data_or_dash(observation.external_status.as_deref())) ", " (age(observation.observed_at, now)) " ago"
                }))
            }
            @if let Some(at) = shown.escalated_at { (fact("Repairs did not help", &html! { "known since " (minute(at)) })) }
            @if let Some(until) = shown.put_off_until() { (fact("Put off until", &html! { (minute(until)) })) }
            @if let Some(resolution) = &shown.resolution {
                (fact("Closed", &html! { (data(resolution)) @if let Some(at) = shown.resolved_at { ", " (minute(at)) } }))
            }
        }
    }
}

fn fact(name: &str, is: &Markup) -> Markup {
    html! { tr { th { (name) } td { (is) } } }
}

/// The note, and a button for each choice. Their answers come over the page, so that a note that was refused is not lost.
fn decisions(shown: &Shown, decide: &str) -> Markup {
    html! {
        h3 { "Decide" }
        label class="line" { "Why (required)" textarea name="note" maxlength="2000" {} }
        label { "Your name (a claim: Lambda does not say who you are)" input name="by" type="text" maxlength="255"; }
        @if shown.choices.contains(&"snooze") {
            label { "Put off for" select name="days" {
                @for days in [1, 3, 7, 14, 30] {
                    option value=(days) { (days) @if days == 1 { " day" } @else { " days" } }
                }
            } }
        }
        p { @for choice in &shown.choices { (decision(shown, choice, decide)) } }
    }
}

fn decision(shown: &Shown, choice: &str, decide: &str) -> Markup {
    let Shown { finding, revision, .. } = shown;
    let (label, class, sure) = match (choice, shown.transition) {
        ("accept", _) => (
            "Accept",
            "btn",
            format!("Accept the difference of finding {finding}? It stays closed until either side changes."),
        ),
        ("retry", _) => {
            ("Repair again", "btn", format!("Issue the repair of finding {finding} again, from zero attempts?"))
        }
        ("apply", Some(transition)) => (
            if transition == "reverse_paid" { "Reverse the payment" } else { "Take the late success" },
            "btn btn-primary",
            format!("Write {transition} for the payment of finding {finding}, with its ledger and its event?"),
        ),
        ("snooze", _) => ("Put off", "btn", format!("Put finding {finding} off?")),
        (other, _) => (other, "btn", format!("{other}: finding {finding}?")),
    };
    let transition = shown.transition.filter(|_| choice == "apply");
    let mut call = json!({"action": "decide", "decision": choice, "finding": finding, "revision": revision,
        "transition": transition});
    if let Some(members) = call.as_object_mut() {
        members.retain(|_, member| !member.is_null());
    }
    button(label, class, decide, Display::Popup, Some(&sure), &call)
}

/// Rows of a history: the members that are not null.
fn rows(title: &str, rows: &[Value]) -> Markup {
    html! {
        @if !rows.is_empty() {
            h3 { (title) }
            table class="facts" {
                @for row in rows {
                    tr {
                        th { (row.get("id").and_then(Value::as_i64).unwrap_or_default()) }
                        td {
                            @for (name, value) in row.as_object().into_iter().flatten().filter(|(name, value)| *name != "id" && !value.is_null()) {
                                div class="note" { span class="dim" { (name) " " } bdi { (lines(&words(value))) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn words(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A text with its line breaks.
fn lines(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}
