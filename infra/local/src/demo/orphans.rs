//! The demo's reverse scan: what Stripe has and nobody here knows. The second look is a grace period after the first, so here
//! that is a second instead of ten minutes.

use std::fmt::Write as _;

use anyhow::Context;
use bootstrap::ScanHost;
use reconciler::clock::Clock;
use reconciler::telemetry::{Outcome, Report, ReverseFigures};
use reverse_scan::Input;

use super::fill::METADATA_KEY;

/// Between two ticks that wait for the second look.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(250);

/// Ticks after which the demo gives up.
const TICKS_MAX: u32 = 400;

/// Lists a whole window and looks at its candidates twice. What that came to, as text.
pub async fn look(settings: &[(&str, String)]) -> anyhow::Result<String> {
    let further = [("GRACE_SECONDS", "1"), ("MATCH_METADATA_KEY", METADATA_KEY)];
    let lookup = |key: &str| {
        let known = settings.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone());
        further.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned()).or(known)
    };
    let host = ScanHost::from_lookup(&lookup, Some(reverse_scan::SHARE))?;
    let input = Input::default();
    let (mut complete, mut looks) = (false, 0);
    let mut total = ReverseFigures::default();
    let mut opened = 0;
    for _ in 0..TICKS_MAX {
        let report = host.tick(None, async |deps, now| reverse_scan::run(deps, now, &input).await).await?;
        let figures = figures(&report)?;
        opened += report.findings_opened;
        if !complete {
            total.pages += figures.pages;
            total.objects += figures.objects;
            total.known += figures.known;
            total.candidates = figures.candidates;
        }
        total.orphans += figures.orphans;
        looks += figures.looks;
        complete |= report.outcome == Outcome::Wrapped;
        if complete && looks >= total.candidates {
            return text(&total, opened);
        }
        Clock::System.sleep(PAUSE).await;
    }
    anyhow::bail!("the second look has not come within {TICKS_MAX} ticks: {total:?}")
}

fn figures(report: &Report) -> anyhow::Result<&ReverseFigures> {
    report.reverse.as_ref().context("the reverse scan's report has no figures")
}

fn text(total: &ReverseFigures, opened: u64) -> anyhow::Result<String> {
    let ReverseFigures { pages, objects, known, candidates, orphans, .. } = total;
    let mut screen = String::new();
    writeln!(screen, "The reverse scan listed what Stripe made in the last seven days.\n")?;
    let mut line = |what: &str, count: &u64, meaning: &str| writeln!(screen, "  {what:<36} {count:>6}   {meaning}");
    line("objects", objects, &format!("on {pages} {}", if *pages == 1 { "page" } else { "pages" }))?;
    line("known here", known, "and verified on the way")?;
    line("that may be nobody's", candidates, "looked at again after a grace period")?;
    line("orphans", orphans, "money that nobody here knows: a person decides")?;
    line("findings opened", &opened, "see the next table")?;
    Ok(screen)
}
