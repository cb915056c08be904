//! One invocation in Lambda: by hand, `{"mode": "apply"}` or `{"mode": "check"}`, or by CloudFormation.
//!
//! Where the adapter comes from: the payload's `adapter` (SQL, or the name of one that comes with the reconciler), else the
//! file that the package ships (`ADAPTER_FILE`), else the one that is in the database stays.
//!
//! Every invocation connects anew and with the login's own rights, which are the owner's. It ends before Lambda ends it: what
//! is under way then is rolled back, and so is what the server still does, by the session's statement timeout.

use std::path::PathBuf;

use bootstrap::chain;
use bootstrap::database::connect_as_owner;
use bootstrap::lambda::Failed;
use reconciler::clock::Clock;
use reconciler::config::{Lookup, MigrateSettings};
use reconciler::domain::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::Duration;
use tokio_postgres::Client;

use crate::check::{Checked, check};
use crate::{apply_for, custom_resource, shipped_adapter};

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Apply what is missing, then check.
    Apply,
    /// Change nothing.
    Check,
}

/// The payload of an invocation by hand. A member that it does not know is refused: it may be a misspelt adapter.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// What to do.
    pub mode: Mode,
    /// The adapter, as SQL, or the name of one that comes with the reconciler. Only to apply it.
    #[serde(default)]
    pub adapter: Option<String>,
}

/// Where the adapter came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AdapterSource {
    /// The payload.
    Payload,
    /// `ADAPTER_FILE`.
    File,
    /// None was given and none was there.
    Default,
    /// None was given: the one that was there stays.
    Kept,
}

/// The answer to an invocation by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Always `migrate`.
    pub function: &'static str,
    /// What was done.
    pub mode: Mode,
    /// Whether the reconciler may work with this database.
    pub fit: bool,
    /// The versions that were applied.
    pub versions: Vec<String>,
    /// Which adapter is there now; `None` where nothing was applied.
    pub adapter: Option<AdapterSource>,
    /// What is wrong, and what was looked at.
    #[serde(flatten)]
    pub checked: Checked,
}

/// Answers an invocation. The answer is a [`Report`], or what CloudFormation was told.
pub async fn answer(lookup: Lookup<'_>, clock: &Clock, payload: Value, deadline: Timestamp) -> Result<Value, Failed> {
    let answer = if payload.get("RequestType").is_some() {
        serde_json::to_value(custom_resource::answer(lookup, clock, payload, deadline).await?)
    } else {
        let task = Task::deserialize(payload).map_err(|error| Failed {
            error_type: "PayloadUnusable",
            message: format!(r#"the payload has to be {{"mode": "apply"}} or {{"mode": "check"}}, to apply with an "adapter", too: {error}"#),
        })?;
        serde_json::to_value(carry_out(lookup, clock, &task, deadline).await?)
    };
    answer.map_err(|error| Failed { error_type: "AnswerUnwritable", message: error.to_string() })
}

/// Does it, and ends before `deadline`.
pub(crate) async fn carry_out(
    lookup: Lookup<'_>,
    clock: &Clock,
    task: &Task,
    deadline: Timestamp,
) -> Result<Report, Failed> {
    let ended = tokio::select! {
        ended = work(lookup, clock, task, deadline) => ended,
        () = clock.reach(deadline) => Err(Failed {
            error_type: "OutOfTime",
            message: "the migration was called off since the invocation's time was nearly up. What was under way is rolled \
                      back; versions that were applied before stay. Migrate again with a longer timeout of the function, or \
                      with `cargo tick migrate`"
                .to_owned(),
        }),
    }?;
    tracing::info!(
        mode = ?ended.mode,
        fit = ended.fit,
        versions = ended.versions.len(),
        errors = ended.checked.errors.len(),
        warnings = ended.checked.warnings.len(),
        checked = %ended.checked,
        "migrate"
    );
    Ok(ended)
}

async fn work(lookup: Lookup<'_>, clock: &Clock, task: &Task, deadline: Timestamp) -> Result<Report, Failed> {
    let unusable = |message: String| Failed { error_type: "SettingsUnusable", message };
    let settings = MigrateSettings::from_lookup(lookup).map_err(|error| unusable(error.to_string()))?;
    let given = adapter(lookup, &settings, task)?;
    let mut db = connect_as_owner(&settings.database)
        .await
        .map_err(|error| Failed { error_type: error.error_type(), message: chain(&error) })?;
    end_by(&db, deadline - clock.now()).await?;
    match task.mode {
        Mode::Check => {
            let checked = check(&mut db, settings.keyset)
                .await
                .map_err(|error| Failed { error_type: "DatabaseFailed", message: chain(&error) })?;
            let fit = checked.is_fit();
            Ok(Report { function: "migrate", mode: task.mode, fit, versions: Vec::new(), adapter: None, checked })
        }
        Mode::Apply => {
            let sql = given.as_ref().map(|(_, sql)| sql.as_str());
            let applied = apply_for(&mut db, sql, settings.keyset)
                .await
                .map_err(|error| Failed { error_type: error.error_type(), message: chain(&error) })?;
            let adapter = match (applied.adapter, given) {
                (_, Some((source, _))) => source,
                (true, None) => AdapterSource::Default,
                (false, None) => AdapterSource::Kept,
            };
            Ok(Report {
                function: "migrate",
                mode: task.mode,
                fit: applied.checked.is_fit(),
                versions: applied.versions,
                adapter: Some(adapter),
                checked: applied.checked,
            })
        }
    }
}

/// The server ends by itself, a moment later than this process, what nobody waits for any more.
async fn end_by(db: &Client, left: Duration) -> Result<(), Failed> {
    let milliseconds = (left + Duration::SECOND).whole_milliseconds().clamp(1, i128::from(i32::MAX));
    db.batch_execute(&format!("set statement_timeout = {milliseconds}"))
        .await
        .map_err(|error| Failed { error_type: "DatabaseFailed", message: chain(&error) })
}

fn adapter(
    lookup: Lookup<'_>,
    settings: &MigrateSettings,
    task: &Task,
) -> Result<Option<(AdapterSource, String)>, Failed> {
    let text = task.adapter.as_deref().map(str::trim).filter(|text| !text.is_empty());
    match (task.mode, text, &settings.adapter_file) {
        (Mode::Check, Some(_), _) => Err(Failed {
            error_type: "PayloadUnusable",
            message: "a check takes no adapter: it looks at the one that is in the database".to_owned(),
        }),
        (Mode::Check, None, _) | (Mode::Apply, None, None) => Ok(None),
        (Mode::Apply, Some(text), _) => {
            Ok(Some((AdapterSource::Payload, shipped_adapter(text).unwrap_or(text).to_owned())))
        }
        (Mode::Apply, None, Some(file)) => {
            let path = PathBuf::from(lookup("LAMBDA_TASK_ROOT").unwrap_or_else(|| ".".to_owned())).join(file);
            let sql = std::fs::read_to_string(path).map_err(|error| Failed {
                error_type: "SettingsUnusable",
                message: format!("the setting ADAPTER_FILE = {file:?} names no file of the package: {error}"),
            })?;
            Ok(Some((AdapterSource::File, sql)))
        }
    }
}
