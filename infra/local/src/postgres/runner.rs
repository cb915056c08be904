//! The runner: the one process that lives as long as the test run.

use std::process::{Command, Stdio};

use super::server_user::output;

/// The process id that every test process of one run agrees on: the parent, if that is cargo or nextest, and
/// otherwise (started by hand, or by a debugger) this process itself.
pub(super) fn of_this_test_run() -> u32 {
    let parent = std::os::unix::process::parent_id();
    match program_name(parent) {
        Some(name) if name == "cargo" || name == "cargo-nextest" => parent,
        Some(_) | None => std::process::id(),
    }
}

fn program_name(process: u32) -> Option<String> {
    // Slim images have no `ps`, and macOS has no /proc. When neither answers, the cluster is merely not shared.
    let name = match std::fs::read_to_string(format!("/proc/{process}/comm")) {
        Ok(name) => name,
        Err(_) => {
            output(Command::new("ps").args(["-o", "comm=", "-p", &process.to_string()]).stdin(Stdio::null())).ok()?
        }
    };
    name.trim().rsplit('/').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_name() {
        let own = program_name(std::process::id()).expect("this process runs");
        assert!(own.starts_with("local"), "{own}");
    }
}
