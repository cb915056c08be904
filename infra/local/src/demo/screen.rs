//! What the demo prints: 100 columns at most.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::Context;
use dispatch::DispatchReport;
use lag_metric::LagReport;
use reconciler::telemetry::Report;
use tokio_postgres::Client;

use super::facts::Facts;
use super::webhooks::Received;

/// What a person wants to see of a cycle.
#[derive(Debug, Default)]
pub struct Summary {
    /// Reports of all ticks.
    pub reports: Vec<Report>,
    /// Seconds since the oldest unverified payment, before and after.
    pub lag_seconds: (i64, i64),
    /// Milliseconds from the first tick to the last.
    pub took_ms: u64,
}

impl Summary {
    fn total(&self, field: impl Fn(&Report) -> u64) -> u64 {
        self.reports.iter().map(field).sum()
    }

    fn outcomes(&self) -> String {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for report in &self.reports {
            *counts.entry(report.outcome.as_str()).or_default() += 1;
        }
        let parts: Vec<String> = counts.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
        parts.join(", ")
    }
}

/// The age of the payment that has gone unverified longest, in seconds. By looking at every row: the demo is small.
pub async fn lag_seconds(db: &Client) -> anyhow::Result<i64> {
    let sql = "select coalesce(extract(epoch from max(clock_timestamp() - coalesce(o.verified_through, p.created_at))), 0)::bigint
               from reconciliation.payment p left join reconciliation.observation o on o.payment_id = p.id";
    Ok(db.query_one(sql, &[]).await.context("the lag")?.get(0))
}

/// Nobody reads the screen any more: `cargo demo | head`.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads the screen any more")]
pub struct NobodyReads(#[source] io::Error);

/// Prints a line, or several.
pub fn say(text: &str) -> anyhow::Result<()> {
    let mut screen = io::stdout().lock();
    let printed = writeln!(screen, "{text}").and_then(|()| screen.flush());
    printed.map_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            NobodyReads(error).into()
        } else {
            anyhow::Error::new(error).context("printing on the screen")
        }
    })
}

/// What the scan found.
pub async fn after_the_scan(db: &Client, summary: &Summary) -> anyhow::Result<String> {
    let mut screen = String::new();
    let seconds = summary.took_ms / 1_000;
    let tenths = summary.took_ms % 1_000 / 100;
    writeln!(
        screen,
        "One whole cycle in {} ticks ({}), {seconds}.{tenths} s, {} requests to Stripe.\n",
        summary.reports.len(),
        summary.outcomes(),
        summary.total(|report| report.requests),
    )?;

    writeln!(screen, "  verdict         payments   meaning")?;
    for (verdict, count, meaning) in [
        ("in_sync", summary.total(|report| report.in_sync), "both sides agree, confirmed by an answer"),
        ("in_flight", summary.total(|report| report.in_flight), "not an end yet, or changed too recently to judge"),
        ("repairable", summary.total(|report| report.repairable), "we are behind Stripe; a command is queued"),
        ("needs_review", summary.total(|report| report.needs_review), "a person decides"),
        (
            "unverifiable",
            summary.total(|report| report.unverifiable),
            "asked without an answer, during the outage; met again later",
        ),
    ] {
        writeln!(screen, "  {verdict:<13} {count:>10}   {meaning}")?;
    }
    let unverified = "select count(*) from reconciliation.payment p where not exists
        (select from reconciliation.observation o where o.payment_id = p.id and o.observed_at is not null)";
    let unverified: i64 = db.query_one(unverified, &[]).await.context("the unverified")?.get(0);
    let (before, now) = (age(summary.lag_seconds.0), age(summary.lag_seconds.1));
    writeln!(screen, "\n  lag (the payment that went unverified longest): {before} before, {now} now")?;
    writeln!(
        screen,
        "  never verified yet: {unverified} (changed within the grace period; the next cycle meets them)"
    )?;
    Ok(screen)
}

/// What the dispatcher and the webhooks did, side by side.
#[derive(Debug, Default)]
pub struct Race {
    repaired: i64,
    commands_already_written: i64,
    commands_superseded: i64,
    published: i64,
    /// Of the inbox, by outcome.
    outcomes: BTreeMap<String, i64>,
    received: Option<Received>,
}

impl Race {
    /// From the dispatcher's reports, the inbox and the sandbox.
    pub async fn count(db: &Client, repairs: &[DispatchReport], received: Option<Received>) -> anyhow::Result<Self> {
        let total = |field: fn(&DispatchReport) -> u64| i64::try_from(repairs.iter().map(field).sum::<u64>());
        let outcomes = "select outcome, count(*) from reconciliation.webhook_inbox group by outcome";
        let outcomes = db.query(outcomes, &[]).await.context("the inbox")?;
        Ok(Self {
            repaired: total(|report| report.written)?,
            commands_already_written: total(|report| report.already_written)?,
            commands_superseded: total(|report| report.superseded)?,
            published: total(|report| report.published)?,
            outcomes: outcomes.iter().map(|row| (row.get(0), row.get(1))).collect(),
            received,
        })
    }

    /// Payments that say they were changed, by whomever.
    pub fn written(&self) -> i64 {
        self.repaired + self.webhooks("written")
    }

    fn webhooks(&self, outcome: &str) -> i64 {
        self.outcomes.get(outcome).copied().unwrap_or_default()
    }
}

/// The race as text.
pub fn after_the_race(race: &Race) -> anyhow::Result<String> {
    let mut screen = String::new();
    let whose = if race.received.is_some() { ", while late webhooks came in" } else { "" };
    writeln!(screen, "The dispatcher repaired what it may, through the one write path{whose}.\n")?;
    writeln!(screen, "  who came                              count   what it came to")?;
    let mut line = |who: &str, count: i64, what: &str| writeln!(screen, "  {who:<36} {count:>6}   {what}");
    line("the dispatcher, first", race.repaired, "payment changed, ledger row and event with it")?;
    if race.received.is_some() {
        line("a webhook, first", race.webhooks("written"), "payment changed, ledger row and event with it")?;
        line("the dispatcher, after a webhook", race.commands_already_written, "already written: nothing done twice")?;
        line(
            "a webhook, after the dispatcher",
            race.webhooks("already_written"),
            "already written: nothing done twice",
        )?;
        line("a webhook for a payment in review", race.webhooks("superseded"), "the payment stays; a person decides")?;
        line("a webhook of a declined attempt", race.webhooks("no_transition"), "no end: the customer may try again")?;
    }
    if race.commands_superseded > 0 {
        line(
            "the dispatcher, too late",
            race.commands_superseded,
            "the payment went another way; it is scanned again",
        )?;
    }
    line("events published", race.published, "into the log, on a laptop")?;
    if let Some(Received { counters, known_before, waiting }) = &race.received {
        writeln!(
            screen,
            "\n  webhooks: {} events; {} lost, {} duplicated, {} held back behind later ones;\n  {} delivered ({known_before} known \
             already), {} not accepted at once, {waiting} not at all",
            counters.events,
            counters.lost,
            counters.duplicated,
            counters.held_back,
            counters.accepted,
            counters.refused + counters.unanswered,
        )?;
    }
    Ok(screen)
}

/// What was found and what is left, by kind.
pub async fn findings(db: &Client) -> anyhow::Result<String> {
    let mut screen = String::new();
    writeln!(screen, "  finding                               found   left   what becomes of it")?;
    let findings = "select kind, count(*), count(*) filter (where resolved_at is null),
                           bool_or(verdict = 'needs_review' and resolved_at is null)
                    from reconciliation.finding group by kind order by 4, 2 desc, 1";
    for row in db.query(findings, &[]).await.context("the findings")? {
        let (kind, found, left, review): (String, i64, i64, bool) = (row.get(0), row.get(1), row.get(2), row.get(3));
        let next = match (left, review) {
            (0, _) => "corrected",
            (_, true) => "a person decides",
            (_, false) => "the next scan asks again",
        };
        writeln!(screen, "  {kind:<36} {found:>6} {left:>6}   {next}")?;
    }
    Ok(screen)
}

/// What `lag-metric` says.
pub fn lag(report: &LagReport) -> anyhow::Result<String> {
    let seconds = |seconds: u64| i64::try_from(seconds).map(age).unwrap_or_default();
    let mut screen = String::new();
    writeln!(screen, "The metrics say, in one snapshot:\n")?;
    let mut line = |what: &str, value: String, meaning: &str| writeln!(screen, "  {what:<16} {value:>9}   {meaning}");
    line("lag", seconds(report.lag_seconds), "the payment that has gone unverified longest")?;
    line("never verified", report.never_verified.to_string(), "met by the scan, without an answer yet")?;
    line("not met", report.not_met.to_string(), "beyond the furthest payment that the scan has passed")?;
    line("window age", seconds(report.reverse_window_age_seconds), "everything older was listed by the reverse scan")?;
    line("open findings", report.open_findings.to_string(), "for a person, here; repairs are done")?;
    line("waiting", (report.commands.waiting + report.events.waiting).to_string(), "rows of the outbox")?;
    line("requests", report.stripe_reads_30_days.to_string(), "sent to Stripe, of the allocation of 30 days")?;
    Ok(screen)
}

/// The facts as text.
pub fn facts(facts: &Facts) -> anyhow::Result<String> {
    let Facts { changed, changed_twice, ledger_rows, ledger_rows_max, unequal, events, open_commands, dead } = facts;
    let mut screen = String::new();
    let verdict = if facts.hold() { "holds" } else { "IS BROKEN" };
    writeln!(screen, "Counted by SQL: every change was made once. That {verdict}.\n")?;
    writeln!(screen, "  {changed:>6}  payments changed, {changed_twice} of them more than once")?;
    writeln!(
        screen,
        "  {ledger_rows:>6}  ledger rows, at most {ledger_rows_max} for a payment, {unequal} at odds with it"
    )?;
    writeln!(screen, "  {events:>6}  events that tell of a change")?;
    write!(screen, "  {open_commands:>6}  commands are left open, and {dead} rows of the outbox are dead")?;
    Ok(screen)
}

/// An age in its largest unit.
pub fn age(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn an_age_is_written_in_its_largest_unit() {
        assert_eq!([age(0), age(119), age(120), age(7_200), age(200_000)], ["0 s", "119 s", "2 min", "2 h", "2 days"]);
    }
}
