//! `cargo demo` as a newcomer runs it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::binaries::{binaries, start};

fn path() -> String {
    local::postgres::environment("PATH").unwrap_or_default()
}

#[tokio::test]
async fn webhooks_and_repairs_race_and_every_change_is_made_once() {
    let arguments = ["--payments", "60", "--rps", "5000", "--latency-ms", "0"];
    let (code, stdout, stderr) = start(&binaries().join("demo"), &arguments, [("PATH", path().as_str())]).ended().await;
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("every change was made once. That holds."), "{stdout}");
    // five sorts are behind Stripe, with a payment each, and there is a fresh one that its webhook may pay
    let repairs = |line: &str| -> u32 {
        let line = stdout.lines().find(|printed| printed.trim_start().starts_with(line)).expect("a line of the table");
        line.split_whitespace().find_map(|word| word.parse().ok()).expect("a count")
    };
    let changed = repairs("the dispatcher, first") + repairs("a webhook, first");
    assert!((5..=6).contains(&changed), "{stdout}");
    assert!(stdout.lines().all(|line| line.chars().count() <= 100), "{stdout}");
}

#[tokio::test]
async fn watching_ticks_every_function_and_no_change_is_made_twice() {
    let arguments = ["--", "watch", "--minutes", "7", "--minute-ms", "300", "--payments", "60", "--latency-ms", "0"];
    let (code, stdout, stderr) = start(&binaries().join("demo"), &arguments, [("PATH", path().as_str())]).ended().await;
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(!stdout.contains("FAILED") && !stdout.contains("could not be read"), "{stdout}");
    let minutes: Vec<Vec<&str>> = stdout
        .lines()
        .filter(|line| line.starts_with("minute"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(minutes.len(), 7, "{stdout}");
    let number = |line: &[&str], word: &str| -> i64 {
        let place = line.iter().position(|other| *other == word).unwrap_or_else(|| panic!("{word}: {line:?}"));
        line[place + 1].parse().unwrap()
    };
    for line in &minutes {
        assert_eq!(number(line, "changed"), number(line, "ledger"), "{line:?}");
    }
    let last = minutes.last().unwrap();
    assert!(number(last, "changed") > number(&minutes[0], "changed"), "the shop goes on: {stdout}");
    assert!(number(last, "lag") < 3_600, "the scan has gone round: {stdout}");
}

#[test]
fn it_ends_quietly_when_nobody_reads_it_any_more() {
    let mut demo = Command::new(binaries().join("demo"))
        .args(["--payments", "60", "--rps", "5000", "--latency-ms", "0"])
        .env_clear()
        .env("PATH", path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(demo.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("Postgres"), "{line}");
    let ended = demo.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(0), ""));
}
