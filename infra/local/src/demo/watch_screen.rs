//! The screen of `cargo demo -- watch`, and a line a minute where there is no terminal. 100 columns at most.

use std::fmt::Write as _;

use lag_metric::{LagReport, OutboxReport};
use reconciler::telemetry::Report;

use super::screen::age;
use super::watch::{Pace, Seen};

/// Clears the terminal and goes to its corner.
const CLEAR: &str = "\x1b[2J\x1b[H";

const WIDTH: usize = 100;

/// A scan's tick in a few words.
pub fn of_a_scan(report: &Report) -> String {
    let mut said = format!("{}: {} judged", report.outcome.as_str(), report.scanned);
    for (count, what) in [
        (report.repairable, "to repair"),
        (report.needs_review, "for a person"),
        (report.unverifiable, "unanswered"),
        (report.findings_opened, "found"),
    ] {
        if count > 0 {
            said += &format!(", {count} {what}");
        }
    }
    if let Some(figures) = &report.reverse {
        said += &format!("; {} objects, {} candidates", figures.objects, figures.candidates);
    }
    said
}

/// The whole screen.
pub fn drawn(seen: &Seen, pace: Pace) -> anyhow::Result<String> {
    let mut screen = CLEAR.to_owned();
    let minute = pace.minute.as_millis();
    writeln!(
        screen,
        "All functions on their schedules: minute {} (one takes {}.{} s here).   Ctrl-C ends it.\n",
        seen.minute,
        minute / 1_000,
        minute % 1_000 / 100,
    )?;
    match &seen.lag {
        Some(report) => figures(&mut screen, seen, report)?,
        None => writeln!(screen, "  the figures could not be read: see lag-metric below")?,
    }
    let (changed, ledger_rows, most) = seen.effects;
    writeln!(
        screen,
        "\n  gone wrong on purpose  {:>6}   lost webhooks, dead workers, canceled and lost rows",
        seen.mishaps
    )?;
    writeln!(
        screen,
        "  payments changed       {changed:>6}   {ledger_rows} ledger rows, at most {most} for a payment"
    )?;
    let (accepted, lost, twice) = seen.webhooks;
    writeln!(screen, "  webhooks               {accepted:>6}   delivered; {lost} lost, {twice} twice")?;
    writeln!(screen, "\n  last ticks")?;
    for (function, said) in &seen.ticks {
        let line: String = format!("    {function:<13} {said}").chars().take(WIDTH).collect();
        writeln!(screen, "{line}")?;
    }
    Ok(screen)
}

fn figures(screen: &mut String, seen: &Seen, report: &LagReport) -> anyhow::Result<()> {
    let seconds = |seconds: u64| i64::try_from(seconds).map(age).unwrap_or_default();
    let (cycle, judged, payments) = seen.cycle;
    writeln!(
        screen,
        "  lag            {:>9}   the payment that has gone unverified longest",
        seconds(report.lag_seconds)
    )?;
    writeln!(screen, "  cycle {cycle:>4}     {}   {judged} of {payments} payments", bar(judged, payments))?;
    writeln!(
        screen,
        "  reverse window {:>9}   everything that Stripe made before that is listed",
        seconds(report.reverse_window_age_seconds)
    )?;
    let OutboxReport { waiting: commands, dead: dead_commands, .. } = report.commands;
    let OutboxReport { waiting: events, dead: dead_events, .. } = report.events;
    writeln!(
        screen,
        "  outbox         {:>9}   {commands} commands and {events} events wait, {} are dead",
        commands + events,
        dead_commands + dead_events
    )?;
    writeln!(
        screen,
        "  budget         {:>7} %   of the last whole ten minutes; throttle level {}; {} requests in all",
        report.budget_used_permille / 10,
        report.throttle_level,
        report.stripe_reads_30_days
    )?;
    writeln!(screen, "\n  {:<32} {:>6} {:>10}", "open findings", "open", "oldest")?;
    for findings in report.findings.iter().filter(|findings| findings.open > 0) {
        let whose = if findings.verdict == "repairable" { "is repaired" } else { "a person decides" };
        writeln!(
            screen,
            "    {:<30} {:>6} {:>10}   {whose}",
            findings.kind,
            findings.open,
            seconds(findings.oldest_seconds)
        )?;
    }
    Ok(())
}

fn bar(done: i64, all: i64) -> String {
    let filled = usize::try_from(done.saturating_mul(20) / all.max(1)).unwrap_or(0).min(20);
    format!("[{}{}]", "=".repeat(filled), " ".repeat(20 - filled))
}

/// A minute in one line.
pub fn line(seen: &Seen) -> anyhow::Result<String> {
    let mut line = format!("minute {:>3}", seen.minute);
    match &seen.lag {
        Some(report) => write!(
            line,
            "  lag {} s  open findings {}  outbox {}",
            report.lag_seconds,
            report.open_findings,
            report.commands.waiting + report.events.waiting
        )?,
        None => write!(line, "  the figures could not be read")?,
    }
    write!(line, "  changed {}  ledger {}", seen.effects.0, seen.effects.1)?;
    for (function, said) in seen.ticks.iter().filter(|(_, said)| said.starts_with("FAILED")) {
        write!(line, "\n  {function}: {said}")?;
    }
    Ok(line)
}
