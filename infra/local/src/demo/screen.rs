//! The demo's closing screen.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Context;
use dispatch::DispatchReport;
use reconciler::telemetry::Report;
use tokio_postgres::Client;

/// What a person wants to see of a cycle.
#[derive(Debug, Default)]
pub struct Summary {
    /// Reports of all ticks.
    pub reports: Vec<Report>,
    /// Seconds since the oldest unverified payment, before and after.
    pub lag_seconds: (i64, i64),
    /// Milliseconds from the first tick to the last.
    pub took_ms: u64,
    /// The configured rate.
    pub requests_per_second: u32,
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

/// The closing screen as text.
pub async fn closing(db: &Client, summary: &Summary) -> anyhow::Result<String> {
    let mut screen = String::new();
    let seconds = summary.took_ms / 1_000;
    let tenths = summary.took_ms % 1_000 / 100;
    writeln!(
        screen,
        "One whole cycle in {} ticks ({}), {seconds}.{tenths} s, {} requests to Stripe at up to {} a second.\n",
        summary.reports.len(),
        summary.outcomes(),
        summary.total(|report| report.requests),
        summary.requests_per_second,
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

    writeln!(screen, "\n  open finding                          count   what happens next")?;
    let findings = "select kind, verdict, count(*) from reconciliation.finding where resolved_at is null
                    group by kind, verdict order by verdict desc, count(*) desc, kind";
    for row in db.query(findings, &[]).await.context("the findings")? {
        let (kind, verdict, count): (String, String, i64) = (row.get(0), row.get(1), row.get(2));
        let next =
            if verdict == "repairable" { "the canonical writer is asked to repair it" } else { "a person decides" };
        writeln!(screen, "  {kind:<36} {count:>6}   {next}")?;
    }

    writeln!(screen, "\n  outbox                                count")?;
    let outbox =
        "select kind, type, count(*) from reconciliation.outbox group by kind, type order by kind, count(*) desc";
    for row in db.query(outbox, &[]).await.context("the outbox")? {
        let (kind, name, count): (String, String, i64) = (row.get(0), row.get(1), row.get(2));
        writeln!(screen, "  {:<36} {count:>6}", format!("{kind} {name}"))?;
    }

    let unverified = "select count(*) from reconciliation.payment p where not exists
        (select from reconciliation.observation o where o.payment_id = p.id and o.observed_at is not null)";
    let unverified: i64 = db.query_one(unverified, &[]).await.context("the unverified")?.get(0);
    writeln!(
        screen,
        "\n  lag (the payment that went unverified longest): {} before, {} now",
        age(summary.lag_seconds.0),
        age(summary.lag_seconds.1)
    )?;
    writeln!(
        screen,
        "  never verified yet: {unverified} (changed within the grace period; the next cycle meets them)"
    )?;
    Ok(screen)
}

/// What the dispatcher made of it, as text.
pub async fn after_repairs(db: &Client, repairs: &[DispatchReport]) -> anyhow::Result<String> {
    let total = |field: fn(&DispatchReport) -> u64| repairs.iter().map(field).sum::<u64>();
    let mut screen = String::new();
    writeln!(screen, "  Then the dispatcher carried the commands out, through the one write path:")?;
    writeln!(
        screen,
        "  {:>6}  payments repaired, each with a ledger row and an event",
        total(|report| report.written)
    )?;
    writeln!(screen, "  {:>6}  events published (into the log, on a laptop)", total(|report| report.published))?;
    let count =
        async |sql: &str| -> anyhow::Result<i64> { Ok(db.query_one(sql, &[]).await.context("a count")?.get(0)) };
    let review = count("select count(*) from reconciliation.finding where resolved_at is null").await?;
    writeln!(screen, "  {review:>6}  findings are left, and wait for a person")?;
    let waiting = "select count(*) from reconciliation.outbox where delivered_at is null";
    writeln!(screen, "  {:>6}  rows are left in the outbox", count(waiting).await?)?;
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
