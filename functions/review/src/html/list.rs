//! The list as a page: the figures of the whole, what is withheld, the filter, a page of findings.

use maud::{Markup, html};
use reconciler::domain::Timestamp;
use reconciler::domain::verdict::Kind;
use serde_json::json;

use super::{Display, Endpoints, button, data, data_or_dash};
use crate::list::{Listed, Listing, Totals, Withheld};
use crate::money::amount;
use crate::request::{Sort, State};
use crate::text::{age, minute, plain};
use crate::widget::Page;

pub(super) fn page(listing: &Listing, page: &Page, endpoints: &Endpoints<'_>) -> Markup {
    let now = listing.read_at;
    html! {
        (totals(&listing.totals, now))
        form {
            @for batch in &listing.withheld { (withheld(batch, now, endpoints)) }
            // one for all of them: of two fields with the same name a form would send both
            @if !listing.withheld.is_empty() && endpoints.decide.is_some() {
                label class="line" { "Why a batch may go through (required)" input name="note" type="text" maxlength="2000" size="60"; }
            }
            (filter(page))
        }
        (button("Apply the filter", "btn btn-primary", endpoints.this, Display::Widget, None, &json!({"action": "list"})))
        @if listing.findings.is_empty() {
            p {
                @if page.behind {
                    "Nothing is behind the page before; the filter leaves " (listing.matching) ". "
                    (button("First page", "btn", endpoints.this, Display::Widget, None, &json!({"action": "list"})))
                } @else if page.filter.is_empty() { "The list is empty." } @else { "The filter leaves nothing." }
            }
        } @else {
            (table(&listing.findings, now, endpoints))
            p {
                (listing.findings.len()) " of " (listing.matching) " shown, as of " (minute(now)) ". "
                @if page.behind {
                    (button("First page", "btn", endpoints.this, Display::Widget, None, &json!({"action": "list"})))
                }
                @if let Some(next) = &listing.next {
                    (button("Next page", "btn", endpoints.this, Display::Widget, None, &json!({"action": "list", "after": next})))
                }
            }
        }
    }
}

fn totals(totals: &Totals, now: Timestamp) -> Markup {
    html! {
        h2 {
            @if totals.waiting == 0 { "Nothing waits for a person" } @else { (totals.waiting) " wait for a person" }
        }
        p {
            @for of in &totals.by_severity { (severity(of.severity, &format!("{} {}", of.findings, of.severity))) " " }
            @if let Some(oldest) = totals.oldest { "the oldest for " (age(oldest, now)) "; " }
            (totals.snoozed) " put off, " (totals.repairing) " being repaired"
        }
        @if !totals.money_at_risk.is_empty() {
            p {
                "Money at risk: "
                @for (nth, money) in totals.money_at_risk.iter().enumerate() {
                    @if nth > 0 { " + " }
                    b { (amount(money.amount_minor.into(), &plain(&money.currency))) }
                }
                @if totals.without_amount > 0 { ", and " (totals.without_amount) " of which it is not known" }
            }
        }
    }
}

fn withheld(batch: &Withheld, now: Timestamp, endpoints: &Endpoints<'_>) -> Markup {
    let call = json!({"action": "decide", "decision": "release", "job": batch.job, "revision": batch.revision});
    let sure = "Let this batch through? Its findings are written, and its payments count as verified.";
    html! {
        div class="box" {
            h3 { "Withheld for " (age(batch.withheld_at, now)) ": " (data(&batch.job)) ", revision " (batch.revision) }
            p { (data(&batch.because)) }
            @if let Some(decide) = endpoints.decide {
                (button("Let it through", "btn", decide, Display::Popup, Some(sure), &call))
            }
        }
    }
}

fn filter(page: &Page) -> Markup {
    let kinds: Vec<String> = Kind::all().map(|kind| kind.to_string()).collect();
    let kinds: Vec<(&str, &str)> = kinds.iter().map(|kind| (kind.as_str(), kind.as_str())).collect();
    let states = [
        (State::NeedsReview.as_str(), "waiting for a person"),
        (State::Repairable.as_str(), "being repaired"),
        (State::Snoozed.as_str(), "put off"),
        (State::All.as_str(), "all that are open"),
    ];
    let ages = [("1", "an hour"), ("24", "a day"), ("72", "3 days"), ("168", "a week")];
    let sorts = [
        (Sort::Severity.as_str(), "most severe first"),
        (Sort::Oldest.as_str(), "oldest first"),
        (Sort::Newest.as_str(), "newest first"),
    ];
    html! {
        label { "Findings" (select("state", page, None, &states)) }
        label { "Kind" (select("kind", page, Some("any"), &kinds)) }
        label { "Open for at least" (select("min_age_hours", page, Some("any time"), &ages)) }
        label { "Payment or PaymentIntent" input name="payment" type="text" maxlength="255" value=(page.filter("payment")); }
        label { "Order" (select("sort", page, None, &sorts)) }
    }
}

/// A field with the words to choose from, and `blank` for none of them. What is chosen stays in the list, whatever it is.
fn select(name: &str, page: &Page, blank: Option<&str>, options: &[(&str, &str)]) -> Markup {
    let chosen = page.filter(name).trim();
    let known = chosen.is_empty() || options.iter().any(|(word, _)| *word == chosen);
    html! {
        select name=(name) {
            @if let Some(blank) = blank { option value="" { (blank) } }
            @for (word, label) in options { option value=(word) selected[*word == chosen] { (label) } }
            @if !known { option value=(chosen) selected { (plain(chosen)) } }
        }
    }
}

fn table(findings: &[Listed], now: Timestamp, endpoints: &Endpoints<'_>) -> Markup {
    html! {
        table class="list" {
            colgroup {
                @for width in ["11%", "21%", "21%", "14%", "14%", "8%", "11%"] { col style=(format!("width:{width}")); }
            }
            thead { tr {
                th { "Severity" } th { "Kind" } th { "Payment" } th { "Here, at Stripe" } th class="num" { "At risk" }
                th class="num" { "Open for" } th {}
            } }
            tbody { @for found in findings { (row(found, now, endpoints)) } }
        }
    }
}

fn row(found: &Listed, now: Timestamp, endpoints: &Endpoints<'_>) -> Markup {
    let money = found.amount_minor.zip(found.currency.as_deref());
    html! {
        tr {
            td { (severity(found.severity, found.severity)) }
            td {
                (data(&found.kind))
                @if found.escalated_at.is_some() { div class="dim" { "repairs did not help" } }
                @if let Some(until) = found.snoozed_until.filter(|until| *until > now) {
                    div class="dim" { "put off until " (minute(until)) }
                }
            }
            td {
                (data_or_dash(found.payment.as_deref()))
                @if let Some(reference) = &found.external_ref { div class="dim" { (data(reference)) } }
                @if let Some(key) = found.match_key.as_ref().filter(|key| Some(*key) != found.payment.as_ref()) {
                    div class="dim" { "key " (data(key)) }
                }
            }
            td {
                (data_or_dash(found.local_state.as_deref())) ", " (data_or_dash(found.external_status.as_deref()))
                @if found.stripe_changed { div class="dim" { "changed at Stripe" } }
            }
            td class="num" {
                @if let Some((minor, currency)) = money { (amount(minor.into(), &plain(currency))) } @else { "–" }
            }
            td class="num" { (age(found.detected_at, now)) }
            td {
                (button("Show", "btn", endpoints.this, Display::Widget, None, &json!({"action": "show", "finding": found.finding})))
            }
        }
    }
}

pub(super) fn severity(severity: &str, label: &str) -> Markup {
    html! { span class={ "severity " (severity) } { (label) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_withheld_batches_have_a_button_each_and_one_note() {
        let batch = |job: &str| Withheld {
            job: job.to_owned(),
            revision: 7,
            withheld_at: Timestamp::UNIX_EPOCH,
            because: "51 of 60 are not there".to_owned(),
        };
        let listing = Listing {
            read_at: Timestamp::UNIX_EPOCH,
            findings: Vec::new(),
            matching: 0,
            next: None,
            totals: Totals::default(),
            withheld: vec![batch("payments-vs-stripe"), batch("unfinished-vs-stripe")],
        };
        let written = |decide| page(&listing, &Page::default(), &Endpoints { this: "this", decide }).into_string();
        let deciding = written(Some("decide"));
        assert_eq!(
            (deciding.matches("name=\"note\"").count(), deciding.matches("\"release\"").count()),
            (1, 2),
            "{deciding}"
        );
        let looking = written(None);
        assert!(
            looking.contains("51 of 60") && !looking.contains("name=\"note\"") && !looking.contains("release"),
            "{looking}"
        );
    }
}
