//! Working a batch: what was claimed ends delivered, put back for later, dead, or given back.
//!
//! A claim is the attempt: it is counted when it is made, so that a row whose worker dies of it comes nearer to its own death,
//! too, and cannot kill workers for ever. A row that has been claimed more often than it may fail, without anybody's having
//! lived to say why, is dead without another try. What a tick gives back because it had no time for it was no attempt.
//!
//! No command begins after the tick's deadline, and no batch of events; events that are under way then are cut off, which
//! counts as an attempt without an answer. No batch of events begins that could outlast the lease of its rows: another worker
//! would have them by then, and with their successors they might arrive out of order.

use bootstrap::chain;
use futures_util::{StreamExt, stream};
use reconciler::clock::Clock;
use reconciler::config::DispatchSettings;
use reconciler::domain::Timestamp;
use reconciler::domain::id::PaymentId;
use reconciler::writer::{Command, Transition, WriteOutcome, apply_command};
use serde_json::{Value, json};
use time::Duration;
use tokio_postgres::Client;

use crate::outbox::{Claimed, claim, mark_delivered, mark_failed, release};
use crate::sink::{EVENTS_PER_CALL, Event, EventSink};
use crate::{DispatchError, DispatchReport, FUNCTION};

/// Commands under way at once on one connection: Postgres does them one by one, without waiting for us in between.
const PIPELINE: usize = 16;

/// The first pause of a row that failed, and the longest.
const BACKOFF: Duration = Duration::seconds(5);
const BACKOFF_MAX: Duration = Duration::hours(1);

/// The time of one tick: the database's, for what is written, and the process's, for when to end.
#[derive(Clone, Debug)]
pub struct Tick {
    clock: Clock,
    began: Timestamp,
    database_time: Timestamp,
    deadline: Option<Timestamp>,
}

impl Tick {
    /// `database_time` is the database's time at this moment, `deadline` the time by `clock` after which nothing begins.
    pub fn begin(clock: &Clock, database_time: Timestamp, deadline: Option<Timestamp>) -> Self {
        Self { clock: clock.clone(), began: clock.now(), database_time, deadline }
    }

    /// The database's time now, as far as this process can tell: what it was, and what has passed here.
    fn now(&self) -> Timestamp {
        self.database_time + (self.clock.now() - self.began)
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| self.clock.now() >= deadline)
    }

    async fn over(&self) {
        match self.deadline {
            Some(deadline) => self.clock.reach(deadline).await,
            None => std::future::pending().await,
        }
    }
}

/// Claims a batch and works it.
pub async fn run<S: EventSink>(
    db: &Client,
    sink: &S,
    settings: &DispatchSettings,
    tick: &Tick,
) -> Result<DispatchReport, DispatchError> {
    let claimed = claim(db, tick.now(), settings.batch, settings.lease_seconds).await?;
    work(db, sink, settings, tick, &claimed).await
}

/// Works rows that were claimed: first the commands, then the events.
pub async fn work<S: EventSink>(
    db: &Client,
    sink: &S,
    settings: &DispatchSettings,
    tick: &Tick,
    claimed: &[Claimed],
) -> Result<DispatchReport, DispatchError> {
    let report = DispatchReport { function: FUNCTION, claimed: count(claimed.len()), ..DispatchReport::default() };
    let mut working = Working { db, settings, tick, report, unworked: Vec::new() };
    let (workable, exhausted): (Vec<&Claimed>, Vec<&Claimed>) =
        claimed.iter().partition(|row| row.attempts <= settings.attempts_max);
    let (commands, events): (Vec<&Claimed>, Vec<&Claimed>) = workable.into_iter().partition(|row| row.is_command);
    for row in exhausted {
        working.put_back(row, "it was claimed too often, and no worker came to an end with it", Then::Dies).await?;
    }
    working.apply(&commands).await?;
    working.publish(sink, &events).await?;
    working.give_back().await?;
    Ok(working.report)
}

/// A batch that is being worked.
struct Working<'a> {
    db: &'a Client,
    settings: &'a DispatchSettings,
    tick: &'a Tick,
    report: DispatchReport,
    /// There was no time for them.
    unworked: Vec<&'a Claimed>,
}

/// What came of a command.
enum Applied {
    /// `None`: another worker claimed it meanwhile.
    Outcome(Option<WriteOutcome>),
    Failed(String),
    /// It will not read any better the next time.
    Unreadable(String),
    /// The tick was over before.
    NotBegun,
}

/// What becomes of a row that failed.
enum Then {
    /// It comes back until it has failed too often.
    ComesBack,
    Dies,
}

impl<'a> Working<'a> {
    async fn apply(&mut self, rows: &[&'a Claimed]) -> Result<(), DispatchError> {
        let (db, tick) = (self.db, self.tick);
        let applying = rows.iter().map(|row| async move {
            let applied = if tick.is_over() { Applied::NotBegun } else { apply(db, row, tick.now()).await };
            (*row, applied)
        });
        let mut applying = stream::iter(applying).buffer_unordered(PIPELINE);
        while let Some((row, applied)) = applying.next().await {
            match applied {
                Applied::Outcome(Some(WriteOutcome::Written)) => self.report.written += 1,
                Applied::Outcome(Some(WriteOutcome::AlreadyWritten)) => self.report.already_written += 1,
                Applied::Outcome(Some(WriteOutcome::Superseded)) => self.report.superseded += 1,
                Applied::Outcome(None) => self.report.outdated += 1,
                Applied::Failed(error) => self.put_back(row, &error, Then::ComesBack).await?,
                Applied::Unreadable(error) => self.put_back(row, &error, Then::Dies).await?,
                Applied::NotBegun => self.unworked.push(row),
            }
        }
        Ok(())
    }

    async fn publish<S: EventSink>(&mut self, sink: &S, rows: &[&'a Claimed]) -> Result<(), DispatchError> {
        let longest = Duration::try_from(sink.takes_at_most()).unwrap_or(Duration::MAX);
        for batch in rows.chunks(EVENTS_PER_CALL) {
            let would_end = self.tick.now().saturating_add(longest);
            if self.tick.is_over() || batch.iter().any(|row| row.lease_expires_at < would_end) {
                self.unworked.extend(batch);
                continue;
            }
            let event = |row: &&Claimed| Event { id: row.id, name: row.name.clone(), detail: row.payload.clone() };
            let events: Vec<Event> = batch.iter().map(event).collect();
            let (results, without) = tokio::select! {
                results = sink.publish(&events) => (results, "the sink gave no answer for it"),
                () = self.tick.over() => (Vec::new(), "the tick was over before it was answered"),
            };
            let mut results = results.into_iter();
            let mut accepted = Vec::new();
            for row in batch {
                match results.next() {
                    Some(Ok(())) => accepted.push(*row),
                    Some(Err(error)) => self.put_back(row, &error.to_string(), Then::ComesBack).await?,
                    None => self.put_back(row, without, Then::ComesBack).await?,
                }
            }
            let marked = mark_delivered(self.db, self.tick.now(), &accepted).await?;
            self.report.published += count(accepted.len());
            self.report.outdated += count(accepted.len() - marked);
        }
        Ok(())
    }

    /// A row failed: later again, or dead.
    async fn put_back(&mut self, row: &Claimed, error: &str, then: Then) -> Result<(), DispatchError> {
        let dies = match then {
            Then::ComesBack => row.attempts >= self.settings.attempts_max,
            Then::Dies => true,
        };
        // Postgres keeps no NUL in a text, and an error that cannot be kept must not hold up the rows beside it
        let short: String = error.replace('\0', " ").chars().take(500).collect();
        let now = self.tick.now();
        if !mark_failed(self.db, row, now + backoff(row.attempts), dies.then_some(now), &short).await? {
            self.report.outdated += 1;
        } else if dies {
            tracing::error!(outbox = row.id, payment = %row.aggregate, name = %row.name, error = %short, "a row of the outbox is dead");
            self.report.dead += 1;
        } else {
            tracing::warn!(outbox = row.id, payment = %row.aggregate, name = %row.name, error = %short, "a row of the outbox comes back later");
            self.report.failed += 1;
        }
        Ok(())
    }

    async fn give_back(&mut self) -> Result<(), DispatchError> {
        if self.unworked.is_empty() {
            return Ok(());
        }
        let given = release(self.db, &self.unworked).await?;
        self.report.given_back += count(given);
        self.report.outdated += count(self.unworked.len() - given);
        Ok(())
    }
}

async fn apply(db: &Client, row: &Claimed, now: Timestamp) -> Applied {
    let transition = match row.name.as_str() {
        "ApplyPaymentSucceeded" => Transition::Succeeded,
        "ApplyPaymentCanceled" => Transition::Canceled,
        "ApplyPaymentFailed" => Transition::Failed,
        other => return Applied::Unreadable(format!("no command is called {other}")),
    };
    let text = |key: &str| row.payload.get(key).and_then(Value::as_str);
    let (Some(payment_id), Some(external_ref)) = (text("payment_id"), text("external_ref")) else {
        return Applied::Unreadable("the command names no payment_id or no external_ref".to_owned());
    };
    let evidence = json!({
        "external_ref": external_ref,
        "external_status": text("external_status"),
        "observed_at": text("observed_at"),
        "source": "dispatch",
    });
    let command = Command {
        outbox_id: row.id,
        fence: row.fence,
        payment_id: PaymentId::new(payment_id),
        transition,
        evidence,
        finding_id: row.payload.get("finding_id").and_then(Value::as_i64),
    };
    match apply_command(db, &command, now).await {
        Ok(outcome) => Applied::Outcome(outcome),
        Err(error) => Applied::Failed(chain(&error)),
    }
}

/// Doubled with each attempt, at most an hour, and between half and one and a half of that.
fn backoff(attempts: i32) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(0).min(16);
    let pause = (BACKOFF * 2_i32.saturating_pow(doublings)).min(BACKOFF_MAX);
    pause * fastrand::i32(500..1500) / 1000
}

fn count(rows: usize) -> u64 {
    u64::try_from(rows).unwrap_or(u64::MAX)
}
