//! A headless browser in which tests look at pages: Debian's `chromium`, or the one that is there.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// The browser's program. Where there is none, root has Debian's installed, once at a time; nobody else is asked for a password.
/// `lookup` reads the environment: `PATH`.
///
/// # Errors
/// In words, what was tried and how it ended.
pub fn program(lookup: fn(&str) -> Option<String>) -> Result<PathBuf, String> {
    if let Some(program) = found(lookup) {
        return Ok(program);
    }
    let lock = std::env::temp_dir().join("reconciler-chromium.lock");
    let held = File::create(&lock).and_then(|file| file.lock().map(|()| file));
    let held = held.map_err(|error| format!("{}: {error}", lock.display()))?;
    if found(lookup).is_none() {
        // another user than root is refused by apt itself
        let install = || run("apt-get", &["install", "-y", "--no-install-recommends", "chromium"]);
        install().or_else(|_| run("apt-get", &["update"]).and_then(|()| install()))?;
    }
    drop(held);
    found(lookup).ok_or_else(|| "no chromium in PATH".to_owned())
}

fn found(lookup: fn(&str) -> Option<String>) -> Option<PathBuf> {
    let path = lookup("PATH")?;
    let named = |folder: PathBuf| NAMES.map(|name| folder.join(name));
    std::env::split_paths(&path).flat_map(named).find(|program| program.is_file())
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    let words = format!("{program} {}", arguments.join(" "));
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{words}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{words}: {error}")),
    }
}

/// Opens a file in a window of this size, takes a picture of it, and returns the document as it is after its scripts. The page
/// may have no other resources: the browser is kept from the network.
///
/// # Errors
/// In words, what the browser said.
pub fn look(program: &Path, page: &Path, picture: &Path, width: u32, height: u32) -> Result<String, String> {
    let profile = picture.with_extension("profile");
    let output = Command::new(program)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
        ])
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--window-size={width},{height}"))
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .output();
    let removed = std::fs::remove_dir_all(&profile);
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{}: {}: {said}", program.display(), output.status));
    }
    removed.map_err(|error| format!("{}: {error}", profile.display()))?;
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}
