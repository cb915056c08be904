//! Holds sessions of Postgres in the middle of their own statements, so that repair, webhook and scan meet in the rows'
//! real locks.
//!
//! A trigger on each table that they write lets a session stand at a gate before it changes a row, with all that it has
//! locked by then, and once more before its commit. The gate is an advisory lock, which the test holds until it lets the
//! session on. Sessions without a number pass. One session moves at a time: all others stand at a gate, at a named step of
//! their own code, or in the queue for a row that somebody else has changed.

use std::collections::HashMap;
use std::pin::Pin;
use std::task::Poll;

use reconciler::scan::steps::{Held, Steps};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::Client;

/// How often a move is looked at before it counts as one that never comes to an end.
const LOOKS_MAX: u32 = 100_000;

/// The turn of a session alternates between two locks: the test still holds the next one when it lets go of this one.
const GATES: &str = "
create schema gates;
create function gates.stand() returns trigger language plpgsql security definer set search_path = pg_catalog as $$
declare
    actor integer := nullif(current_setting('gates.actor', true), '')::integer;
    turn  integer;
begin
    if actor is not null then
        turn := nextval('gates.turn_' || actor) % 2; -- a sequence, for it outlives a rollback
        perform pg_advisory_lock(actor, turn);
        perform pg_advisory_unlock(actor, turn);
    end if;
    return new;
end $$;
create trigger gate before update on payments for each row execute function gates.stand();
create trigger gate before insert on payment_ledger for each row execute function gates.stand();
create trigger gate before insert or update on reconciliation.outbox for each row execute function gates.stand();
create trigger gate before update on reconciliation.finding for each row execute function gates.stand();
create trigger gate before insert on reconciliation.webhook_inbox for each row execute function gates.stand();
create trigger gate before update on reconciliation.observation for each row execute function gates.stand();
create trigger gate before insert on reconciliation.review for each row execute function gates.stand();
create constraint trigger gate_at_commit after insert on reconciliation.review
    deferrable initially deferred for each row execute function gates.stand();
create constraint trigger gate_at_commit after insert or update on reconciliation.outbox
    deferrable initially deferred for each row execute function gates.stand();
create constraint trigger gate_at_commit after insert on reconciliation.webhook_inbox
    deferrable initially deferred for each row execute function gates.stand();
create constraint trigger gate_at_commit after update on reconciliation.cursor
    deferrable initially deferred for each row execute function gates.stand();";

/// The gates of one database, held by a session of their own.
pub(crate) struct Gates {
    keeper: Client,
}

/// A session with a number, which stands at the gates.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) actor: i32,
    pid: i32,
}

/// Something that runs over one session.
pub(crate) struct Run<'a, T> {
    pub(crate) actor: i32,
    pid: i32,
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    steps: UnboundedReceiver<Held>,
    held: Option<Held>,
    result: Option<T>,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// At a named step of its own code, between two statements.
    Step,
    /// Inside a statement or before its commit, with its locks.
    Gate { turn: i32 },
    /// In the queue for a row that another run has changed.
    Queue,
    /// It has ended.
    End,
}

impl Gates {
    /// Puts the gates up and closes them for the actors 1 to `actors`. `keeper` is a superuser's session.
    pub(crate) async fn close(keeper: Client, actors: i32) -> Self {
        keeper.batch_execute(GATES).await.expect("gates");
        for actor in 1..=actors {
            let close = format!(
                "create sequence gates.turn_{actor};
                 select pg_advisory_lock({actor}, 0), pg_advisory_lock({actor}, 1)"
            );
            keeper.batch_execute(&close).await.expect("gate");
        }
        Self { keeper }
    }

    /// Gives a session its number.
    pub(crate) async fn session(&self, client: Client, actor: i32) -> Session {
        client.batch_execute(&format!("set gates.actor = '{actor}'")).await.expect("number");
        let pid = client.query_one("select pg_backend_pid()", &[]).await.expect("pid").get(0);
        Session { client, actor, pid }
    }

    /// Lets a run on from where it stands; it has moved when [`Gates::settle`] has returned.
    pub(crate) async fn let_on<T>(&self, run: &mut Run<'_, T>, stand: Stand) {
        match stand {
            Stand::Step => run.held.take().expect("it stands at a step").go_on.send(()).expect("it waits"),
            Stand::Gate { turn } => self.open(run.actor, turn).await,
            Stand::Queue | Stand::End => panic!("actor {} cannot be let on: {stand:?}", run.actor),
        }
    }

    /// Lets an actor pass the gate at which it stands, and closes it behind it.
    pub(crate) async fn open(&self, actor: i32, turn: i32) {
        let open = format!("select pg_advisory_unlock({actor}, {turn})");
        self.keeper.batch_execute(&open).await.expect("open");
        let close = format!("select pg_advisory_lock({actor}, {turn})"); // waits until it has passed
        self.keeper.batch_execute(&close).await.expect("close");
    }

    /// Leaves all gates of an actor open, and waits until its sessions, which nobody drives any more, have ended.
    pub(crate) async fn abandon(&self, actor: i32) {
        let open = format!("select pg_advisory_unlock({actor}, 0), pg_advisory_unlock({actor}, 1)");
        self.keeper.batch_execute(&open).await.expect("open");
        let there = format!(
            "select from pg_stat_activity where application_name = 'actor {actor}' and datname = current_database()"
        );
        for _ in 0..LOOKS_MAX {
            if self.keeper.query_typed(&there, &[]).await.expect("look").is_empty() {
                return;
            }
        }
        panic!("a session of actor {actor} does not end");
    }

    /// The turn of the gate at which another process's session stands, if it does.
    pub(crate) async fn stands_at(&self, actor: i32) -> Option<i32> {
        let sql = format!(
            "select l.objid::integer from pg_locks l join pg_stat_activity a using (pid)
             where a.application_name = 'actor {actor}' and a.datname = current_database() and l.locktype = 'advisory' and not l.granted"
        );
        self.keeper.query_typed(&sql, &[]).await.expect("locks").first().map(|row| row.get(0))
    }

    /// A database's URL by which another process connects as an actor.
    pub(crate) fn url(url: &str, actor: i32) -> String {
        let and = if url.contains('?') { '&' } else { '?' };
        format!("{url}{and}application_name=actor%20{actor}&options=-c%20gates.actor%3D{actor}")
    }

    /// Ends the run's session where it stands, as if its process had died, and waits until Postgres has let go of its locks.
    pub(crate) async fn kill<T>(&self, run: &Run<'_, T>) {
        let kill = format!("select pg_terminate_backend({})", run.pid);
        self.keeper.batch_execute(&kill).await.expect("kill");
        let there = format!("select from pg_stat_activity where pid = {}", run.pid);
        for _ in 0..LOOKS_MAX {
            if self.keeper.query(&there, &[]).await.expect("look").is_empty() {
                return;
            }
        }
        panic!("the session of actor {} does not end", run.actor);
    }

    /// Waits until every run stands somewhere, and says where.
    pub(crate) async fn settle<T>(&self, runs: &mut [Run<'_, T>]) -> Vec<Stand> {
        for _ in 0..LOOKS_MAX {
            for run in runs.iter_mut() {
                run.look().await;
            }
            let waiting = self.waiting().await;
            let stands: Vec<Stand> = runs.iter().filter_map(|run| run.stand(&waiting)).collect();
            if stands.len() == runs.len() {
                return stands;
            }
        }
        panic!("the runs do not come to a stand");
    }

    /// The sessions that wait for a lock: for which turn of a gate, or for a row.
    async fn waiting(&self) -> HashMap<i32, Option<i32>> {
        let sql = "select pid, case locktype when 'advisory' then objid::integer end from pg_locks where not granted";
        let rows = self.keeper.query_typed(sql, &[]).await.expect("locks");
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }
}

impl<'a, T> Run<'a, T> {
    /// `start` is given the session and the steps to run with. Nothing happens before the first [`Gates::settle`].
    pub(crate) fn new<F: Future<Output = T> + 'a>(session: Session, start: impl FnOnce(Session, Steps) -> F) -> Self {
        let (watcher, steps) = unbounded_channel();
        let (actor, pid) = (session.actor, session.pid);
        let future = Box::pin(start(session, Steps::Watched(watcher)));
        Self { actor, pid, future, steps, held: None, result: None }
    }

    /// Whether it has ended.
    pub(crate) fn ended(&self) -> bool {
        self.result.is_some()
    }

    /// What it ended with, if it has.
    pub(crate) fn result(&self) -> Option<&T> {
        self.result.as_ref()
    }

    /// What it ended with.
    pub(crate) fn into_result(self) -> T {
        self.result.expect("it has ended")
    }

    /// Lets its own code go on as far as it can.
    async fn look(&mut self) {
        if self.result.is_none() && self.held.is_none() {
            if let Poll::Ready(result) = futures_util::poll!(self.future.as_mut()) {
                self.result = Some(result);
            }
            self.held = self.steps.try_recv().ok();
        }
    }

    fn stand(&self, waiting: &HashMap<i32, Option<i32>>) -> Option<Stand> {
        if self.result.is_some() {
            return Some(Stand::End);
        }
        if self.held.is_some() {
            return Some(Stand::Step);
        }
        waiting.get(&self.pid).map(|gate| gate.map_or(Stand::Queue, |turn| Stand::Gate { turn }))
    }
}
