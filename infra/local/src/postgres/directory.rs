//! The cluster's directory: where it lies, who may start one, and what becomes of one whose supervisor was killed.
//!
//! A directory is in use if and only if its lock file is locked. The supervisor holds that lock as its standard
//! input, so the kernel gives it up with the supervisor, however that ends, and a process id that comes round again
//! deceives nobody.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::PostgresError;
use super::server_user::{ServerUser, output};

const PREFIX: &str = "reconciler-pg-";
const LOCK: &str = "supervisor.lock";
const LOG: &str = "server.log";
const SHARED_MEMORY: &str = "/dev/shm";
/// A cluster takes about 40 MB and each database 8 MB, and Docker's default for /dev/shm is 64 MB.
const ROOM_NEEDED_KB: u64 = 1024 * 1024;
/// The longest path that every Unix accepts for a socket.
const LONGEST_SOCKET_PATH: usize = 103;

/// Where clusters may lie: in memory, where there is such a place, and on disk.
fn bases(user: &ServerUser) -> Vec<PathBuf> {
    let memory = PathBuf::from(SHARED_MEMORY);
    memory.is_dir().then_some(memory).into_iter().chain([on_disk(user)]).collect()
}

/// The temporary directory, or /tmp where that is too long for a socket's path or (it may be root's own) closed to
/// the server's user.
fn on_disk(user: &ServerUser) -> PathBuf {
    let temporary = std::env::temp_dir();
    if user.is_root() || temporary.as_os_str().len() > 60 { PathBuf::from("/tmp") } else { temporary }
}

/// Memory is 5 to 15 times faster at making databases, but says nothing about durability, and may be small.
fn base(user: &ServerUser, durable: bool) -> PathBuf {
    if !durable && free_kb(Path::new(SHARED_MEMORY)).is_some_and(|free| free > ROOM_NEEDED_KB) {
        PathBuf::from(SHARED_MEMORY)
    } else {
        on_disk(user)
    }
}

/// None where there is no such place, or `df` does not know.
fn free_kb(path: &Path) -> Option<u64> {
    let answer = output(Command::new("df").arg("-Pk").arg(path).stdin(Stdio::null())).ok()?;
    answer.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()
}

/// The directory of a running cluster of this name.
pub(super) fn running(name: &str, user: &ServerUser) -> Result<Option<PathBuf>, PostgresError> {
    for base in bases(user) {
        let directory = base.join(format!("{PREFIX}{name}"));
        if belongs_to(&directory, user) && is_supervised(&directory)? {
            return Ok(Some(directory));
        }
    }
    Ok(None)
}

/// A new directory of mode 0700, owned by the server's user, and its lock, taken.
pub(super) fn create(name: &str, user: &ServerUser, durable: bool) -> Result<(PathBuf, File), PostgresError> {
    let directory = base(user, durable).join(format!("{PREFIX}{name}"));
    let failed = |operation| {
        let path = directory.clone();
        move |source| PostgresError::File { operation, path, source }
    };
    // Fails if it is there: nobody can have put something of theirs in our way.
    DirBuilder::new().mode(0o700).create(&directory).map_err(failed("create"))?;
    let locked = File::create_new(directory.join(LOCK)).and_then(|lock| lock.lock().map(|()| lock));
    let lock = locked.map_err(failed("lock"))?;
    if let Some((uid, gid)) = user.hand_over_to() {
        std::os::unix::fs::chown(&directory, Some(uid), Some(gid)).map_err(failed("hand over"))?;
    }
    Ok((directory, lock))
}

/// A new file for what the supervisor and the server write.
pub(super) fn create_log(directory: &Path) -> Result<File, PostgresError> {
    let path = directory.join(LOG);
    let created = OpenOptions::new().create_new(true).append(true).mode(0o600).open(&path);
    created.map_err(|source| PostgresError::File { operation: "create", path, source })
}

/// The log to read from; an open one stays readable when the directory is gone.
pub(super) fn open_log(directory: &Path) -> Result<File, PostgresError> {
    let path = directory.join(LOG);
    File::open(&path).map_err(|source| PostgresError::File { operation: "open", path, source })
}

/// The path of the server's socket, as PostgreSQL names it.
pub(super) fn socket(directory: &Path, port: u16) -> Result<PathBuf, PostgresError> {
    let path = directory.join(format!(".s.PGSQL.{port}"));
    if path.as_os_str().len() > LONGEST_SOCKET_PATH { Err(PostgresError::SocketPath { path }) } else { Ok(path) }
}

/// Whether a supervisor lives that will remove this directory.
pub(super) fn is_supervised(directory: &Path) -> Result<bool, PostgresError> {
    let path = directory.join(LOCK);
    match File::open(&path) {
        Ok(lock) => Ok(free_lock(&lock, &path)? == LockState::Held),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(source) => Err(PostgresError::File { operation: "open", path, source }),
    }
}

#[derive(PartialEq, Eq)]
enum LockState {
    Held,
    Free,
}

/// Takes the lock if it is free, and then holds it until the file is closed.
fn free_lock(lock: &File, path: &Path) -> Result<LockState, PostgresError> {
    match lock.try_lock() {
        Ok(()) => Ok(LockState::Free),
        Err(TryLockError::WouldBlock) => Ok(LockState::Held),
        Err(TryLockError::Error(source)) => {
            Err(PostgresError::File { operation: "lock", path: path.to_owned(), source })
        }
    }
}

fn belongs_to(directory: &Path, user: &ServerUser) -> bool {
    std::fs::symlink_metadata(directory)
        .is_ok_and(|metadata| metadata.is_dir() && [user.uid, user.caller].contains(&metadata.uid()))
}

/// Stops and removes the clusters of this user whose supervisor is gone. Call it under the [`StartLock`].
pub(super) fn sweep(user: &ServerUser) -> Result<(), PostgresError> {
    for base in bases(user) {
        let entries = std::fs::read_dir(&base).map_err(|source| PostgresError::File {
            operation: "list",
            path: base.clone(),
            source,
        })?;
        for entry in entries {
            let entry =
                entry.map_err(|source| PostgresError::File { operation: "list", path: base.clone(), source })?;
            let directory = entry.path();
            if entry.file_name().to_string_lossy().starts_with(PREFIX) && belongs_to(&directory, user) {
                sweep_one(&directory, user)?;
            }
        }
    }
    Ok(())
}

/// Stops and removes this cluster if its supervisor is gone.
pub(super) fn sweep_one(directory: &Path, user: &ServerUser) -> Result<(), PostgresError> {
    let path = directory.join(LOCK);
    match File::open(&path) {
        Ok(lock) => {
            // The lock file shows who started it: root and the user postgres may both have clusters of postgres.
            let ours = lock.metadata().is_ok_and(|metadata| metadata.uid() == user.caller);
            if ours && free_lock(&lock, &path)? == LockState::Free {
                stop_orphan(directory, user)?;
                return remove(directory);
            }
            Ok(())
        }
        // The start was cut off before there was a lock, or a supervisor is just removing it.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let ours = std::fs::symlink_metadata(directory).is_ok_and(|metadata| metadata.uid() == user.caller);
            if ours { remove(directory) } else { Ok(()) }
        }
        // Another user's.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        Err(source) => Err(PostgresError::File { operation: "open", path, source }),
    }
}

/// Removes the directory; gone already is as good.
pub(super) fn remove(directory: &Path) -> Result<(), PostgresError> {
    match std::fs::remove_dir_all(directory) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(source) => Err(PostgresError::File { operation: "remove", path: directory.to_owned(), source }),
    }
}

/// Waits for the end for ten seconds; PostgreSQL's immediate shutdown takes at most five.
const STOP_ORPHAN: &str = r#"
kill -QUIT "$1" || exit 0
seconds=0
while kill -0 "$1" 2>/dev/null && [ "$seconds" -lt 10 ]; do sleep 1; seconds=$((seconds + 1)); done
"#;

/// Stops the server that still runs in a directory without a supervisor, if one does.
fn stop_orphan(directory: &Path, user: &ServerUser) -> Result<(), PostgresError> {
    let path = directory.join("data/postmaster.pid");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(PostgresError::File { operation: "read", path, source }),
    };
    let (process, port) = (text.lines().next(), text.lines().nth(3).and_then(|port| port.parse().ok()));
    let (Some(process), Some(port)) = (process, port) else {
        // Not written to its end, so the server never got as far as its socket.
        return Ok(());
    };
    // Only a server that answers in this very directory proves that the process id is still its own.
    if UnixStream::connect(socket(directory, port)?).is_ok() {
        output(user.command("/bin/sh").args(["-c", STOP_ORPHAN, "sh", process]))?;
    }
    Ok(())
}

/// Held while a cluster is being looked for, started or swept up: one process of a user at a time.
#[derive(Debug)]
pub(super) struct StartLock {
    path: PathBuf,
    _file: File,
}

impl StartLock {
    /// Blocks until the lock is free.
    pub(super) fn acquire(user: &ServerUser) -> Result<Self, PostgresError> {
        let path = on_disk(user).join(format!("{PREFIX}start-{}.lock", user.caller));
        loop {
            let failed = |source| PostgresError::File { operation: "lock", path: path.clone(), source };
            let mut options = OpenOptions::new();
            let file = options.create(true).truncate(false).write(true).mode(0o600).open(&path).map_err(failed)?;
            file.lock().map_err(failed)?;
            let held = file.metadata().map_err(failed)?;
            // The holder before us removed the file on leaving: then what we locked is no longer what others open.
            if std::fs::symlink_metadata(&path).is_ok_and(|there| there.ino() == held.ino()) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for StartLock {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            eprintln!("remove {}: {error}", self.path.display());
        }
    }
}
