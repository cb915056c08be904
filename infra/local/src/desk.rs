//! The review desk's answers for a terminal. Everything that comes from data is shown as text: what would steer a terminal, or
//! turn the order of the letters around, is replaced.

use std::fmt::Write;

use reconciler::domain::Timestamp;
use review::Answer;
use review::list::{Listed, Listing};
use review::money::amount;
use review::show::Shown;
use review::text::{age, minute, plain};
use serde_json::Value;

/// The screen of an answer. It ends in a newline.
pub fn screen(answer: &Answer) -> String {
    match answer {
        Answer::Listed(listing) => list(listing),
        Answer::Shown(shown) => show(shown),
        Answer::Recorded(recorded) => {
            let of = match (&recorded.finding, &recorded.job) {
                (Some(finding), _) => format!("finding {finding}"),
                (None, Some(job)) => format!("the batch of {}", plain(job)),
                (None, None) => "nothing".to_owned(),
            };
            let who = plain(&recorded.who);
            format!("{of}: {} (review {}, on record as decided by {who})\n", recorded.result, recorded.review)
        }
        Answer::Digest(digest) => {
            let new = if digest.announced { "announced" } else { "was announced before" };
            format!("the summary of {} {new}: {} wait for a person\n", digest.day, digest.totals.waiting)
        }
        Answer::Refused(refused) => format!("refused: {}\n", plain(&refused.message)),
        Answer::Described { markdown } => (*markdown).to_owned(),
    }
}

fn or_dash(text: Option<&str>) -> String {
    text.map_or_else(|| "-".to_owned(), plain)
}

fn list(listing: &Listing) -> String {
    let now = listing.read_at;
    let totals = &listing.totals;
    let by_severity: Vec<String> =
        totals.by_severity.iter().map(|of| format!("{} {}", of.findings, of.severity)).collect();
    let mut screen = match totals.waiting {
        0 => "Nothing waits for a person".to_owned(),
        waiting => format!("{waiting} wait for a person ({})", by_severity.join(", ")),
    };
    if let Some(oldest) = totals.oldest {
        add(&mut screen, format_args!(", the oldest for {}", age(oldest, now)));
    }
    add(&mut screen, format_args!("; {} put off, {} being repaired\n", totals.snoozed, totals.repairing));
    if !totals.money_at_risk.is_empty() {
        let sums: Vec<String> = totals
            .money_at_risk
            .iter()
            .map(|money| amount(money.amount_minor.into(), &plain(&money.currency)))
            .collect();
        add(&mut screen, format_args!("Money at risk: {}", sums.join(" + ")));
        if totals.without_amount > 0 {
            add(&mut screen, format_args!(", and {} of which it is not known", totals.without_amount));
        }
        screen.push('\n');
    }
    for batch in &listing.withheld {
        let (job, because) = (plain(&batch.job), plain(&batch.because));
        add(
            &mut screen,
            format_args!(
                "WITHHELD for {}: {job}, revision {}: {because}\n  let it through: cargo review release --job {job} --revision {} --note …\n",
                age(batch.withheld_at, now),
                batch.revision,
                batch.revision
            ),
        );
    }
    if !listing.findings.is_empty() {
        screen.push('\n');
        screen += &table(&listing.findings, now);
        add(&mut screen, format_args!("\n{} of {} shown", listing.findings.len(), listing.matching));
        if let Some(next) = &listing.next {
            add(&mut screen, format_args!("; the next page: --after {next}"));
        }
        screen += ". One of them: cargo review show NUMBER\n";
    } else if listing.totals.waiting + listing.totals.snoozed + listing.totals.repairing > 0 {
        screen += "\nNone of the open findings is in this list: --state, --kind, --min-age-hours, --payment and --after say which are.\n";
    }
    screen
}

fn table(findings: &[Listed], now: Timestamp) -> String {
    let heads = ["finding", "severity", "kind", "payment", "here", "Stripe", "amount", "open for"].map(str::to_owned);
    let row = |found: &Listed| {
        let money = found.amount_minor.zip(found.currency.as_deref());
        [
            found.finding.to_string(),
            found.severity.to_owned(),
            plain(&found.kind),
            or_dash(found.payment.as_deref().or(found.external_ref.as_deref())),
            or_dash(found.local_state.as_deref()),
            or_dash(found.external_status.as_deref()) + if found.stripe_changed { " (changed)" } else { "" },
            money.map_or_else(|| "-".to_owned(), |(minor, currency)| amount(minor.into(), &plain(currency))),
            age(found.detected_at, now),
        ]
    };
    let rows: Vec<[String; 8]> = std::iter::once(heads).chain(findings.iter().map(row)).collect();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..8).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; 8]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn show(shown: &Shown) -> String {
    let now = shown.read_at;
    let Shown { finding, severity, kind, verdict, .. } = shown;
    let mut screen =
        format!("Finding {finding}: {} ({severity}, {verdict}), revision {}\n", plain(kind), shown.revision);
    let mut line = |name: &str, text: String| add(&mut screen, format_args!("  {name:<18}{text}\n"));
    line("payment", or_dash(shown.payment.as_deref()));
    line("PaymentIntent", or_dash(shown.external_ref.as_deref()));
    line(
        "found",
        format!(
            "here {}, at Stripe {}",
            or_dash(shown.local_state.as_deref()),
            or_dash(shown.external_status.as_deref())
        ),
    );
    line("open for", format!("{}, last seen {} ago", age(shown.detected_at, now), age(shown.last_seen_at, now)));
    if let Some(resolution) = &shown.resolution {
        line("closed", plain(resolution));
    }
    if let Some(until) = shown.put_off_until() {
        line("put off until", minute(until));
    }
    if let Some(payment) = &shown.payment_now {
        let reference = or_dash(payment.external_ref.as_deref());
        line(
            "the payment now",
            format!(
                "{} with {reference}{}",
                or_dash(payment.state.as_deref()),
                payment.updated_at.map(|at| format!(", changed {} ago", age(at, now))).unwrap_or_default()
            ),
        );
    }
    if let Some(observation) = &shown.observation {
        line(
            "Stripe last said",
            format!("{}, {} ago", or_dash(observation.external_status.as_deref()), age(observation.observed_at, now)),
        );
    }
    if let Some(url) = &shown.stripe_url {
        line("look at it", url.clone());
    }
    line("evidence", plain(&shown.evidence.to_string()));
    for (name, rows) in [("decided", &shown.reviews), ("other finding", &shown.earlier), ("outbox", &shown.outbox)] {
        for row in rows {
            line(name, members(row));
        }
    }
    let of = format!("{finding} --revision {} --note …", shown.revision);
    for choice in &shown.choices {
        let command = match *choice {
            "apply" => format!("apply {} {of}", shown.transition.unwrap_or_default()),
            "snooze" => format!("snooze {of} --days …"),
            choice => format!("{choice} {of}"),
        };
        line("decide", format!("cargo review {command}"));
    }
    screen
}

/// The members of a row that are not null, as text.
fn members(row: &Value) -> String {
    let members = row.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let written = members.map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name} {}", plain(&text))
    });
    written.collect::<Vec<_>>().join(", ")
}

fn add(screen: &mut String, text: std::fmt::Arguments<'_>) {
    let written = screen.write_fmt(text);
    debug_assert!(written.is_ok(), "a String takes everything");
}
