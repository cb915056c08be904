//! Programs from PyPI that tests run. Each is installed once, with everything it needs, into a virtual environment of its own
//! in a cache folder of the project's own, under a lock, so that two tests at once do not install it twice. Only wheels are
//! taken, which run no code of theirs while they are installed.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program, or some that go together.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    /// Its folder: another version has another name.
    pub name: &'static str,
    /// What to install, with versions.
    pub packages: &'static [&'static str],
}

/// Written when an installation has come to its end.
const COMPLETE: &str = "complete";

/// The folder with its programs and its `python`; installed if need be. `lookup` reads the environment: `TOOLS_CACHE` (where
/// tools are installed), `HOME` and `XDG_CACHE_HOME`.
///
/// # Errors
/// In words, what was tried and how it ended.
pub fn install(tool: &Tool, lookup: fn(&str) -> Option<String>) -> Result<PathBuf, String> {
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let cache = cache(lookup).ok_or_else(|| "neither HOME nor TOOLS_CACHE is set".to_owned())?;
    std::fs::create_dir_all(&cache).map_err(|error| failed(&cache, error))?;
    let lock = cache.join(format!("{}.lock", tool.name));
    // held until this function ends, or the process, however it ends
    let held = File::create(&lock).and_then(|file| file.lock().map(|()| file)).map_err(|error| failed(&lock, error))?;
    let directory = cache.join(tool.name);
    let (programs, complete) = (directory.join("bin"), directory.join(COMPLETE));
    if !complete.exists() {
        if directory.exists() {
            std::fs::remove_dir_all(&directory).map_err(|error| failed(&directory, error))?;
        }
        run(OsStr::new("python3"), &[OsStr::new("-m"), OsStr::new("venv"), directory.as_os_str()])?;
        let pip = ["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--retries", "1"];
        let arguments = pip.iter().chain(&["--only-binary=:all:"]).chain(tool.packages);
        run(programs.join("python").as_os_str(), &arguments.map(OsStr::new).collect::<Vec<_>>())?;
        File::create(&complete).map_err(|error| failed(&complete, error))?;
    }
    drop(held);
    Ok(programs)
}

/// Beside the one that Postgres is fetched into, by the same rule but for root, whose home will do here.
fn cache(lookup: fn(&str) -> Option<String>) -> Option<PathBuf> {
    let setting = |name: &str| lookup(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home_cache = if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" };
    let users = || setting("XDG_CACHE_HOME").or_else(|| setting("HOME").map(|home| home.join(home_cache)));
    setting("TOOLS_CACHE").or_else(|| users().map(|cache| cache.join("reconciler-tools")))
}

/// Runs an installer with the user's own environment (mirrors, proxies).
fn run(program: &OsStr, arguments: &[&OsStr]) -> Result<(), String> {
    let mut command = Command::new(program);
    let words = format!("{} {}", program.display(), arguments.join(OsStr::new(" ")).display());
    match command.args(arguments).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{words}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{words}: {error}")),
    }
}
