//! The README names a test for each promise and lists every setting; both have to be true.

use std::collections::BTreeSet;

const README: &str = include_str!("../../README.md");

fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("no {begin}"));
    rest.split_once(end).map_or(rest, |(part, _)| part)
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_promise_names_tests_that_exist() {
    let promises = between(README, "## Promises", "\n## ");
    let mut named = 0;
    for promise in 1..=12 {
        let text = between(promises, &format!("\n{promise}. "), &format!("\n{}. ", promise + 1));
        let tests: Vec<(&str, &str)> = quoted(text).filter_map(|name| name.split_once("::")).collect();
        assert!(!tests.is_empty(), "promise {promise} names no test");
        for (module, test) in tests {
            let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
            let places = [format!("{root}/tests/suite/{module}.rs"), format!("{root}/shared/src/domain/{module}.rs")];
            let source = places.iter().find_map(|place| std::fs::read_to_string(place).ok());
            let source = source.unwrap_or_else(|| panic!("promise {promise}: no module {module}"));
            let found = test == "*" || source.contains(&format!("fn {test}("));
            assert!(found, "promise {promise}: {module} has no test {test}");
            named += 1;
        }
    }
    assert!(named >= 20, "{named}");
}

#[test]
fn the_table_of_settings_is_the_settings() {
    let table = between(README, "### Settings", "\n## ");
    let cells = table.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split('|').nth(1));
    let listed: BTreeSet<&str> = cells.flat_map(quoted).collect();
    let sources = [
        include_str!("../../shared/src/config.rs"),
        include_str!("../../shared/src/config/database.rs"),
        include_str!("../../shared/src/config/reverse.rs"),
        include_str!("../../shared/src/config/review.rs"),
        include_str!("../../shared/src/config/stripe.rs"),
    ];
    let read: BTreeSet<&str> = sources
        .iter()
        .map(|source| source.split("#[cfg(test)]").next().unwrap())
        .flat_map(|config| config.split('"').skip(1).step_by(2))
        .filter(|text| text.len() > 3 && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'))
        .collect();
    assert_eq!(listed, read);
}

#[test]
fn the_table_of_the_dispatchers_report_is_the_report() {
    let table = between(README, "| its field |", "\n\n");
    let cells = table.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split('|').nth(1));
    let listed: BTreeSet<&str> = cells.flat_map(quoted).collect();
    let report = serde_json::to_value(dispatch::DispatchReport::default()).unwrap();
    assert_eq!(listed, report.as_object().unwrap().keys().map(String::as_str).collect());
}
