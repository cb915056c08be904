//! The desk's answers as pages of a CloudWatch dashboard: HTML with its style, and no script.
//!
//! Whatever comes from data is a text: `maud` escapes it, `text::plain` takes out what would turn the direction of writing
//! around, and `<bdi>` keeps letters that are written from right to left from reordering what stands beside them. What a button
//! calls is JSON in which no letter means anything to HTML.

mod list;
mod show;

use maud::{Markup, PreEscaped, html};
use serde_json::Value;

use crate::Answer;
use crate::decide::{Recorded, Refused};
use crate::digest::Digest;
use crate::text::plain;
use crate::widget::Page;

const STYLE: &str = include_str!("desk.css");

/// The functions that buttons call, by their ARNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints<'a> {
    /// The one that answers, for lists and findings.
    pub this: &'a str,
    /// The deciding one; `None`: no buttons for decisions.
    pub decide: Option<&'a str>,
}

/// Where a button's answer is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Display {
    /// In the widget, instead of the page.
    Widget,
    /// Over the page, which stays as it is with all that was typed.
    Popup,
}

/// An answer as a page.
pub fn page(answer: &Answer, page: &Page, endpoints: &Endpoints<'_>) -> String {
    let body = match answer {
        Answer::Listed(listing) => list::page(listing, page, endpoints),
        Answer::Shown(shown) => show::page(shown, page, endpoints),
        Answer::Recorded(recorded) => recorded_page(recorded),
        Answer::Digest(digest) => digest_page(digest),
        Answer::Refused(refused) => refused_page(refused),
        Answer::Described { markdown } => html! { pre { (markdown) } },
    };
    let theme = match (page.dark, page.narrow) {
        (false, false) => "rd",
        (true, false) => "rd dark",
        (false, true) => "rd narrow",
        (true, true) => "rd dark narrow",
    };
    let whole = html! {
        div class="cwdb-no-default-styles" {}
        style { (PreEscaped(STYLE)) }
        div class=(theme) { (body) }
    };
    whole.into_string()
}

fn recorded_page(recorded: &Recorded) -> Markup {
    let of = match (&recorded.finding, &recorded.job) {
        (Some(finding), _) => format!("finding {finding}"),
        (None, job) => format!("the withheld batch of {}", plain(job.as_deref().unwrap_or_default())),
    };
    let is = match recorded.result {
        "accepted" => "The difference is accepted; it is opened again as soon as either side changes.",
        "applied" => "The payment is written, with its ledger and its event.",
        "already_written" => "The payment was in this state already.",
        "queued" => "The command is issued again, from zero attempts.",
        "snoozed" => "It is put off, and comes back by itself.",
        "released" => "The next tick lets the batch through.",
        other => other,
    };
    html! {
        div class="box good" {
            h2 { (recorded.decision) ": " (of) }
            p { (is) }
            p class="dim" { "Review " (recorded.review) ", on record as decided by " (data(&recorded.who)) "." }
        }
    }
}

fn refused_page(refused: &Refused) -> Markup {
    html! {
        div class="box" {
            h2 { "Nothing was written" }
            p { (data(&refused.message)) }
            p class="dim" { (refused.reason) }
        }
    }
}

fn digest_page(digest: &Digest) -> Markup {
    let new = if digest.announced { "is announced" } else { "was announced before" };
    html! { p { "The summary of " (digest.day) " " (new) ": " (digest.totals.waiting) " wait for a person." } }
}

/// A text from data.
fn data(text: &str) -> Markup {
    html! { bdi { (plain(text)) } }
}

/// The same, and a dash where there is none.
fn data_or_dash(text: Option<&str>) -> Markup {
    text.map_or_else(|| html! { "–" }, data)
}

/// A button that calls a function with `call`. CloudWatch adds the forms' fields.
fn button(
    label: &str,
    class: &str,
    endpoint: &str,
    display: Display,
    confirmation: Option<&str>,
    call: &Value,
) -> Markup {
    let display = match display {
        Display::Widget => "widget",
        Display::Popup => "popup",
    };
    html! {
        a class=(class) { (label) }
        cwdb-action action="call" endpoint=(endpoint) display=(display) confirmation=[confirmation] { (PreEscaped(inert(call))) }
    }
}

/// JSON without a letter that means anything to HTML outside of a tag.
fn inert(json: &Value) -> String {
    json.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_button_calls_cannot_end_its_element_and_is_the_same_json() {
        let call = json!({"job": "</cwdb-action><script>&amp;\"'"});
        let written = inert(&call);
        assert!(!written.contains(['<', '>', '&']), "{written}");
        assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), call);
    }

    #[test]
    fn a_refusal_shows_its_reason_as_text() {
        let refused =
            Refused { reason: "request_unusable", message: "unknown field `<script>alert(1)</script>`".to_owned() };
        let endpoints = Endpoints { this: "arn:aws:lambda:eu-west-1:1:function:review", decide: None };
        let dark = Page { dark: true, ..Page::default() };
        let written = page(&Answer::Refused(refused), &dark, &endpoints);
        assert!(written.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && !written.contains("<script"), "{written}");
        assert!(written.contains("class=\"rd dark\""), "{written}");
    }
}
