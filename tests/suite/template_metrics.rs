//! The template's alarms and dashboard: every metric and dimension is one that the code emits, by the catalogue that the golden
//! records of `telemetry.rs` are compared with, and every alarm tells somebody, who finds its page in the runbook.

use std::collections::BTreeSet;

use bootstrap::metrics::catalogue::{FUNCTIONS, Function, JOB, NAMESPACE, RecordKind};
use serde_json::{Value, json};

use crate::template::cloudformation;

const RUNBOOK: &str = include_str!("../../infra/README.md");

/// What AWS emits of itself, and by which dimension.
const OF_AWS: [(&str, &str, &str); 5] = [
    ("AWS/Lambda", "Errors", "FunctionName"),
    ("AWS/Lambda", "Throttles", "FunctionName"),
    ("AWS/Lambda", "Duration", "FunctionName"),
    ("AWS/Lambda", "Invocations", "FunctionName"),
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName"),
];

/// What there has to be an alarm for.
const ALARMS: [&str; 18] = [
    "Lag",
    "LagSilent",
    "Unverifiable",
    "OldestFinding",
    "DriftFloor",
    "DriftBand",
    "DriftSurge",
    "Inflow",
    "Capacity",
    "Withheld",
    "DeadLetters",
    "OutboxAge",
    "NoCycle",
    "ReverseWindow",
    "Errors",
    "Throttles",
    "Desk",
    "Reads",
];

fn kinds(function: &Function) -> impl Iterator<Item = &RecordKind> {
    std::iter::once(&function.tick).chain(function.further)
}

/// Whether somebody emits a metric with these dimensions, of which the values may be a stack's own names.
fn is_emitted(namespace: &str, metric: &str, dimensions: &[(String, String)]) -> bool {
    if namespace != NAMESPACE {
        let [(dimension, _)] = dimensions else { return false };
        return OF_AWS.contains(&(namespace, metric, dimension));
    }
    let names: BTreeSet<&str> = dimensions.iter().map(|(name, _)| name.as_str()).collect();
    let jobs_are_known = dimensions
        .iter()
        .filter(|(name, _)| name == JOB)
        .all(|(_, job)| lag_metric::JOBS.contains(&job.as_str()) || job == forward_scan::unfinished::JOB);
    let of = |function: &Function| dimensions.iter().any(|(_, value)| value == function.name);
    let has = |kind: &RecordKind| {
        kind.dimensions.iter().copied().collect::<BTreeSet<_>>() == names
            && kind.metrics.iter().any(|known| known.name == metric)
    };
    jobs_are_known && FUNCTIONS.iter().filter(|function| of(function)).any(|function| kinds(function).any(has))
}

/// The same of `SEARCH('{Namespace,Dimension,…} MetricName="…"', …)`, and of an expression without a search.
fn search_is_emitted(expression: &str) -> bool {
    let Some((_, rest)) = expression.split_once("SEARCH('{") else { return true };
    let (schema, rest) = rest.split_once('}').unwrap();
    let metric = rest.split('"').nth(1).unwrap_or_default();
    let mut schema = schema.split(',');
    let names: BTreeSet<&str> = schema.by_ref().skip(1).collect();
    let has = |kind: &RecordKind| {
        kind.dimensions.iter().copied().collect::<BTreeSet<_>>() == names
            && kind.metrics.iter().any(|known| known.name == metric)
    };
    expression.contains(&format!("{{{NAMESPACE},")) && FUNCTIONS.iter().any(|function| kinds(function).any(has))
}

fn dimensions_of(metric: &Value) -> Vec<(String, String)> {
    let pairs = metric["Dimensions"].as_array().into_iter().flatten();
    pairs
        .map(|pair| (pair["Name"].as_str().unwrap().to_owned(), pair["Value"].as_str().unwrap_or_default().to_owned()))
        .collect()
}

fn alarms(template: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let all = template["Resources"].as_object().unwrap().iter();
    let kinds = ["AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm"];
    all.filter(move |(_, resource)| kinds.iter().any(|kind| resource["Type"] == *kind))
        .map(|(name, resource)| (name.strip_suffix("Alarm").unwrap(), &resource["Properties"]))
}

fn alarm_faults(template: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, alarm) in alarms(template) {
        let in_math = alarm["Metrics"].as_array().into_iter().flatten();
        let single = (!alarm["MetricName"].is_null()).then_some(alarm);
        for metric in
            in_math.map(|query| &query["MetricStat"]["Metric"]).filter(|metric| !metric.is_null()).chain(single)
        {
            let (namespace, metric_name) = (&metric["Namespace"], &metric["MetricName"]);
            let dimensions = dimensions_of(metric);
            if !is_emitted(namespace.as_str().unwrap(), metric_name.as_str().unwrap(), &dimensions) {
                faults.push(format!("{name}: nobody emits {metric_name} of {dimensions:?}"));
            }
        }
        if !alarm["Metrics"].is_null() {
            let queries = alarm["Metrics"].as_array().unwrap();
            let results =
                queries.iter().filter(|query| query["ReturnData"] == true && query.get("Expression").is_some());
            if results.count() != 1 || queries.len() > 10 {
                faults.push(format!("{name}: its expression has no result, or more than ten parts"));
            }
        }
        let told = alarm["AlarmActions"] == json!([{"Ref": "AlarmTopic"}]);
        let is_a_part = alarm["AlarmDescription"].as_str().unwrap().starts_with("Part of DriftSurge");
        if told == is_a_part {
            faults.push(format!("{name} tells somebody: {told}"));
        }
        let page = alarm["AlarmDescription"].as_str().unwrap().rsplit_once("Runbook: infra/README.md, \"");
        let page = page.and_then(|(_, page)| page.strip_suffix("\"."));
        if !page.is_some_and(|page| RUNBOOK.contains(&format!("\n### {page}\n"))) {
            faults.push(format!("{name}: the runbook has no page {page:?}"));
        }
    }
    faults
}

/// The body of the dashboard, with the stack's own values made up.
fn dashboard(template: &Value) -> Value {
    let body = template["Resources"]["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"].as_str().unwrap();
    serde_json::from_str(&body.replace("\"value\": ${LagSloSeconds}", "\"value\": 1")).unwrap()
}

fn dashboard_faults(dashboard: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let widgets = dashboard["widgets"].as_array().unwrap();
    for properties in widgets.iter().filter(|widget| widget["type"] == "metric").map(|widget| &widget["properties"]) {
        for row in properties["metrics"].as_array().unwrap() {
            let row = row.as_array().unwrap();
            let words: Vec<String> = row.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            let expression = row.last().and_then(|options| options["expression"].as_str());
            let emitted = match (words.as_slice(), expression) {
                ([], Some(expression)) => search_is_emitted(expression),
                ([namespace, metric, dimensions @ ..], _) => {
                    let pairs: Vec<(String, String)> = dimensions
                        .chunks(2)
                        .map(|pair| (pair[0].clone(), pair.get(1).cloned().unwrap_or_default()))
                        .collect();
                    is_emitted(namespace, metric, &pairs)
                }
                (_, _) => false,
            };
            if !emitted {
                faults.push(format!("{}: nobody emits {row:?}", properties["title"]));
            }
        }
    }
    faults
}

#[test]
fn every_alarm_is_of_metrics_that_are_emitted_and_tells_somebody_who_finds_its_page() {
    let Some(template) = cloudformation() else { return };
    assert_eq!(alarm_faults(template), Vec::<String>::new());
    let names: BTreeSet<&str> = alarms(template).map(|(name, _)| name).collect();
    assert_eq!(names, ALARMS.into());
    for (pointer, value) in [
        ("LagAlarm/Properties/MetricName", json!("Lags")),
        ("LagAlarm/Properties/Namespace", json!("PaymentsReconciler")),
        ("LagAlarm/Properties/Dimensions/0/Name", json!("FunctionName")),
        ("LagAlarm/Properties/Dimensions/0/Value", json!("sweep")),
        ("NoCycleAlarm/Properties/Dimensions/1/Value", json!("payment-vs-stripe")),
        ("WithheldAlarm/Properties/Metrics/0/MetricStat/Metric/MetricName", json!("Withhold")),
        ("WithheldAlarm/Properties/Metrics/4/ReturnData", json!(false)),
        ("ErrorsAlarm/Properties/Metrics/0/MetricStat/Metric/MetricName", json!("Error")),
        ("LagAlarm/Properties/AlarmActions", json!([])),
        ("LagAlarm/Properties/AlarmDescription", json!("No page. Runbook: infra/README.md, \"Nothing\".")),
    ] {
        let mut spoiled = template.clone();
        *spoiled.pointer_mut(&format!("/Resources/{pointer}")).unwrap_or_else(|| panic!("no {pointer}")) = value;
        assert_eq!(alarm_faults(&spoiled).len(), 1, "{pointer}: {:?}", alarm_faults(&spoiled));
    }
}

#[test]
fn everything_on_the_dashboard_is_emitted() {
    let Some(template) = cloudformation() else { return };
    let dashboard = dashboard(template);
    assert_eq!(dashboard_faults(&dashboard), Vec::<String>::new());
    let titles: Vec<&str> =
        dashboard["widgets"].as_array().unwrap().iter().filter_map(|w| w["properties"]["title"].as_str()).collect();
    for word in ["SLO", "Cycle", "Verdicts", "findings by kind", "Outbox", "Budget", "Cost"] {
        assert!(titles.iter().any(|title| title.contains(word)), "nothing of {word}: {titles:?}");
    }
    let desks: Vec<&Value> =
        dashboard["widgets"].as_array().unwrap().iter().filter(|w| w["type"] == "custom").collect();
    assert_eq!(desks.len(), 1);
    // read by the function as it is sent: the members, and the context beside them
    let mut payload = desks[0]["properties"]["params"].clone();
    payload["widgetContext"] = json!({"params": payload.clone(), "forms": {"all": {}}});
    let list = review::read(&payload).map(|request| review::desk_of(&request));
    assert_eq!((&desks[0]["properties"]["endpoint"], list), (&json!("${Review.Arn}"), Ok(review::Desk::Reading)));
    for (from, to) in [
        ("\"Lag\"", "\"Lagging\""),
        ("MetricName=\\\"OpenFindings\\\"", "MetricName=\\\"Findings\\\""),
        ("{PaymentReconciler,Function,Kind,Verdict}", "{PaymentReconciler,Function,Kind}"),
        ("\"Duration\"", "\"Durations\""),
    ] {
        let text = dashboard.to_string();
        assert!(text.contains(from), "no {from}");
        let spoiled = serde_json::from_str(&text.replacen(from, to, 1)).unwrap();
        assert_eq!(dashboard_faults(&spoiled).len(), 1, "{to}");
    }
}
