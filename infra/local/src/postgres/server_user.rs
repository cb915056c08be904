//! Who runs the server: we ourselves, or, because PostgreSQL refuses root, a user without privileges.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use super::error::PostgresError;

/// The user that initdb, the server and its supervisor run as.
#[derive(Clone, Debug)]
pub(super) struct ServerUser {
    /// The calling process's user id.
    pub(super) caller: u32,
    /// The server's user id; the caller's own unless that is root.
    pub(super) uid: u32,
    /// The group to drop to when the caller is root.
    drop_to_group: Option<u32>,
}

impl ServerUser {
    /// Asks `id` (the standard library has no getuid). Root becomes `postgres`, else `nobody`; the user must exist,
    /// since initdb looks up its own name.
    pub(super) fn find() -> Result<Self, PostgresError> {
        let caller = id(&["-u"])?;
        if caller != 0 {
            return Ok(Self { caller, uid: caller, drop_to_group: None });
        }
        for name in ["postgres", "nobody"] {
            match id(&["-u", name]) {
                Ok(uid) => return Ok(Self { caller, uid, drop_to_group: Some(id(&["-g", name])?) }),
                // `id` fails for a user that does not exist: the next one then.
                Err(PostgresError::Failed { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Err(PostgresError::NoServerUser)
    }

    pub(super) fn is_root(&self) -> bool {
        self.caller == 0
    }

    /// The group that the cluster's directory is handed to, if it must be handed over at all.
    pub(super) fn hand_over_to(&self) -> Option<(u32, u32)> {
        self.drop_to_group.map(|gid| (self.uid, gid))
    }

    /// A command that runs as this user, in `/`, with a clean environment and without any of our streams.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").env("LC_ALL", "C");
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(gid) = self.drop_to_group {
            command.uid(self.uid).gid(gid);
        }
        command
    }
}

fn id(arguments: &[&str]) -> Result<u32, PostgresError> {
    let mut command = Command::new("id");
    command.args(arguments).stdin(Stdio::null());
    let answer = output(&mut command)?;
    match answer.trim().parse() {
        Ok(id) => Ok(id),
        Err(source) => Err(PostgresError::NotANumber { program: format!("{command:?}"), answer, source }),
    }
}

/// Runs a command to its end and returns its standard output.
pub(super) fn output(command: &mut Command) -> Result<String, PostgresError> {
    let program = format!("{command:?}");
    let output = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .map_err(|source| PostgresError::Spawn { program: program.clone(), source })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let said = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    Err(PostgresError::Failed { program, status: output.status, output: said.trim().to_owned() })
}
