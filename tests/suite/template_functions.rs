//! The template's functions: schedules, rights, settings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use bootstrap::ScanHost;
use reconciler::config::MigrateSettings;
use serde_json::{Value, json};

use crate::template::cloudformation;

/// Settings that the template does not set, and why.
const NOT_DEPLOYED: [(&str, &str); 6] = [
    ("DATABASE_URL", "holds a password: the template names a secret"),
    ("STRIPE_API_KEY", "holds a key: the template names a secret"),
    ("STRIPE_WEBHOOK_SECRETS", "holds secrets: the template names one"),
    ("DATABASE_CA", "longer than Lambda's environment may be: the template names a file"),
    ("STRIPE_API_BASE", "for a sandbox on a laptop"),
    ("TICK_SECONDS", "in Lambda a tick ends with the function's timeout"),
];

/// Variables that are read by others than us, and by whom.
const NOT_OURS: [(&str, &str); 1] = [("MALLOC_MMAP_THRESHOLD_", "glibc")];

/// Statements that may name everything, and why.
const WILDCARDS: [(&str, &str); 2] = [
    ("Traces", "X-Ray knows no resources"),
    ("NetworkInterfaces", "Lambda makes the interfaces before anybody could name them"),
];

fn resources<'a>(template: &'a Value, of_type: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let all = template["Resources"].as_object().unwrap();
    all.iter()
        .filter(move |(_, resource)| resource["Type"] == of_type)
        .map(|(name, resource)| (name.as_str(), &resource["Properties"]))
}

/// The program that a function runs, by its package.
fn program(function: &Value) -> &str {
    function["Code"]["S3Key"].as_str().unwrap().rsplit('/').next().unwrap()
}

/// What a value comes to with the parameters' defaults; those without one are given.
fn resolved(template: &Value, value: &Value) -> String {
    let Some(name) = value["Ref"].as_str() else { return value.as_str().unwrap_or_default().to_owned() };
    match (&template["Parameters"][name]["Default"], name) {
        (Value::Null, "Livemode") => "true".to_owned(),
        (Value::Null, secret) => format!("arn:aws:secretsmanager:eu-west-1:123456789012:secret:{secret}"),
        (default, _) => default.as_str().map_or_else(|| default.to_string(), str::to_owned),
    }
}

/// What a function reads of an environment, and whether it can work with it.
fn read_by(program: &str, set: &BTreeMap<String, String>) -> (BTreeSet<String>, Result<(), String>) {
    let read = Mutex::new(BTreeSet::new());
    let lookup = |key: &str| {
        read.lock().unwrap().insert(key.to_owned());
        set.get(key).cloned()
    };
    let ended = match program {
        "forward-scan" | "unfinished-scan" | "sweep" | "reverse-scan" => {
            ScanHost::from_lookup(&lookup, None).map(drop).map_err(|error| error.chain())
        }
        "dispatch" => {
            dispatch::Host::from_lookup(&lookup, dispatch::sink::LogSink).map(drop).map_err(|error| error.to_string())
        }
        "webhook" => webhook::Host::from_lookup(&lookup).map(drop).map_err(|error| error.to_string()),
        "lag-metric" => lag_metric::Host::from_lookup(&lookup).map(drop).map_err(|error| error.to_string()),
        "review" => review::Desk::from_lookup(&lookup)
            .map_err(review::ReviewError::from)
            .and_then(|desk| review::Host::from_lookup(&lookup, desk))
            .map(drop)
            .map_err(|error| error.to_string()),
        "migrate" => MigrateSettings::from_lookup(&lookup).map(drop).map_err(|error| error.to_string()),
        other => Err(format!("there is no function {other}")),
    };
    (read.into_inner().unwrap(), ended)
}

/// Settings that nobody reads, that are not set, that a function cannot start with; and secrets that it may not read, or may
/// read and does not name.
fn settings_faults(template: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut read_somewhere = BTreeSet::new();
    for (name, function) in resources(template, "AWS::Lambda::Function") {
        let variables = function["Environment"]["Variables"].as_object().unwrap();
        let set: BTreeMap<String, String> =
            variables.iter().map(|(key, value)| (key.clone(), resolved(template, value))).collect();
        let (read, ended) = read_by(program(function), &set);
        faults.extend(ended.err().map(|why| format!("{name} cannot start: {why}")));
        let ours = |key: &&String| !NOT_OURS.iter().any(|(name, _)| name == key);
        faults.extend(
            set.keys().filter(ours).filter(|key| !read.contains(*key)).map(|key| format!("{name} does not read {key}")),
        );
        let left_out = |key: &&String| NOT_DEPLOYED.iter().any(|(name, _)| name == key);
        faults.extend(
            read.iter()
                .filter(|key| !left_out(key) && !set.contains_key(*key))
                .map(|key| format!("{name} lacks {key}")),
        );
        read_somewhere.extend(read);

        let named: BTreeSet<String> =
            variables.iter().filter(|(key, _)| key.contains("SECRET")).map(|(_, value)| value.to_string()).collect();
        let role = function["Role"]["Fn::GetAtt"][0].as_str().unwrap();
        let may_read: BTreeSet<String> = statements(&template["Resources"][role]["Properties"])
            .into_iter()
            .filter(|statement| statement["Action"] == "secretsmanager:GetSecretValue")
            .flat_map(|statement| statement["Resource"].as_array().cloned().unwrap())
            .map(|resource| resource.to_string())
            .collect();
        if named != may_read {
            faults.push(format!("{name} names the secrets {named:?} and may read {may_read:?}"));
        }
    }
    faults.extend(
        NOT_DEPLOYED
            .iter()
            .filter(|(key, _)| !read_somewhere.contains(*key))
            .map(|(key, _)| format!("nobody reads {key}")),
    );
    faults
}

/// All statements of a role or a policy, those behind a condition included.
fn statements(properties: &Value) -> Vec<&Value> {
    let inline = properties["Policies"].as_array().into_iter().flatten().map(|policy| &policy["PolicyDocument"]);
    let documents = inline.chain(std::iter::once(&properties["PolicyDocument"]));
    let each = documents.flat_map(|document| document["Statement"].as_array().into_iter().flatten());
    each.map(|statement| statement["Fn::If"].get(1).unwrap_or(statement)).collect()
}

fn wildcard_faults(template: &Value) -> Vec<String> {
    let policies = ["AWS::IAM::Role", "AWS::IAM::ManagedPolicy", "AWS::IAM::Policy"];
    let all = policies.into_iter().flat_map(|of_type| resources(template, of_type));
    let mut faults = Vec::new();
    for (name, properties) in all {
        for statement in statements(properties) {
            let actions = statement["Action"].to_string();
            let resource = &statement["Resource"];
            let everything = *resource == "*" || resource.as_array().is_some_and(|each| each.contains(&json!("*")));
            let for_a_reason = WILDCARDS.iter().any(|(sid, _)| statement["Sid"] == *sid);
            if actions.contains('*') || (everything && !for_a_reason) {
                faults.push(format!("{name}: {statement}"));
            }
        }
    }
    faults
}

/// `rate(1 minute)`, `rate(5 minutes)`, or a cron expression of six fields of which one of the days is `?`.
fn is_an_expression(text: &str) -> bool {
    let inside = |kind: &str| text.strip_prefix(kind)?.strip_prefix('(')?.strip_suffix(')');
    if let Some(rate) = inside("rate") {
        let Some((number, unit)) = rate.split_once(' ') else { return false };
        let units = if number == "1" { ["minute", "hour", "day"] } else { ["minutes", "hours", "days"] };
        return number.parse::<u32>().is_ok_and(|number| number > 0) && units.contains(&unit);
    }
    let Some(cron) = inside("cron") else { return false };
    let fields: Vec<&str> = cron.split(' ').collect();
    let known = |field: &str| {
        !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"*?,-/#".contains(&byte))
    };
    fields.len() == 6 && fields.iter().all(|field| known(field)) && (fields[2] == "?") != (fields[4] == "?")
}

/// Schedules that are none, whose input their function does not take, that repeat, and functions that have none.
fn schedule_faults(template: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut scheduled = BTreeSet::new();
    for (name, schedule) in resources(template, "AWS::Scheduler::Schedule") {
        let expression = schedule["ScheduleExpression"].as_str().unwrap_or_default();
        if !is_an_expression(expression) {
            faults.push(format!("{name}: {expression} is no expression"));
        }
        let target = &schedule["Target"];
        let function = &template["Resources"][target["Arn"]["Fn::GetAtt"][0].as_str().unwrap()]["Properties"];
        let input: Option<Value> = target["Input"].as_str().and_then(|input| serde_json::from_str(input).ok());
        let taken = match (program(function), &input) {
            (_, None) => false,
            ("reverse-scan", Some(input)) => {
                // a schedule walks on, and does not begin anew each time
                reverse_scan::Input::parse(input) == Ok(reverse_scan::Input::default())
            }
            ("review", Some(input)) => {
                let decides = function["Environment"]["Variables"]["REVIEW_DESK"] == "decide";
                decides && review::read(input) == Ok(review::request::Request::Digest)
            }
            ("webhook" | "migrate", Some(_)) => false,
            (_, Some(input)) => input.as_object().is_some_and(serde_json::Map::is_empty),
        };
        if !taken {
            faults.push(format!("{name}: {} does not take {}", program(function), target["Input"]));
        }
        if target["RetryPolicy"]["MaximumRetryAttempts"] != 0 {
            faults.push(format!("{name} repeats a tick"));
        }
        scheduled.insert(program(function).to_owned());
    }
    for (name, function) in resources(template, "AWS::Lambda::Function") {
        let invoked = matches!(program(function), "webhook" | "migrate");
        if invoked == scheduled.contains(program(function)) {
            faults.push(format!("{name} is scheduled: {}", !invoked));
        }
    }
    faults
}

/// Functions that lack something which each has to have.
fn function_faults(template: &Value) -> Vec<String> {
    let repeats: BTreeMap<&str, &Value> = resources(template, "AWS::Lambda::EventInvokeConfig")
        .map(|(_, config)| (config["FunctionName"]["Ref"].as_str().unwrap(), &config["MaximumRetryAttempts"]))
        .collect();
    let mut faults = Vec::new();
    for (name, function) in resources(template, "AWS::Lambda::Function") {
        let log = function["LoggingConfig"]["LogGroup"]["Ref"].as_str().unwrap_or_default();
        let log = &template["Resources"][log]["Properties"];
        for (what, there) in [
            ("the runtime", function["Runtime"] == "provided.al2023"),
            ("a log group with an end", log.get("RetentionInDays").is_some()),
            (
                "JSON logs at INFO",
                function["LoggingConfig"]["LogFormat"] == "JSON"
                    && function["LoggingConfig"]["ApplicationLogLevel"] == "INFO",
            ),
            ("a dead letter queue", function["DeadLetterConfig"].get("TargetArn").is_some()),
            ("traces", function["TracingConfig"]["Mode"] == "Active"),
            ("a guard of its concurrency", function["ReservedConcurrentExecutions"].is_number()),
            ("a role of its own", function["Role"]["Fn::GetAtt"][0] == format!("{name}Role")),
            ("no second try", repeats.get(name).is_some_and(|repeats| **repeats == 0)),
        ] {
            if !there {
                faults.push(format!("{name} lacks {what}"));
            }
        }
    }
    faults
}

/// The template with one value in place of another.
fn spoiled(pointer: &str, value: Value) -> Value {
    let mut template = cloudformation().unwrap().clone();
    *template.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}")) = value;
    template
}

#[test]
fn every_function_starts_with_the_templates_settings_reads_all_of_them_and_lacks_none() {
    let Some(template) = cloudformation() else { return };
    assert_eq!(settings_faults(template), Vec::<String>::new());
    assert_eq!(resources(template, "AWS::Lambda::Function").count(), 10);
    let sweep = "/Resources/Sweep/Properties/Environment/Variables";
    for (spoiled, fault) in [
        (spoiled(&format!("{sweep}/BATCH_SIZE"), json!("many")), "Sweep cannot start: the setting BATCH_SIZE"),
        (spoiled(&format!("{sweep}/DATABASE_SECRET_ARN"), json!({"Ref": "OwnerSecretArn"})), "Sweep names the secrets"),
        (spoiled("/Resources/Webhook/Properties/Environment/Variables", json!({})), "Webhook cannot start"),
    ] {
        assert!(
            settings_faults(&spoiled).iter().any(|said| said.starts_with(fault)),
            "{:?}",
            settings_faults(&spoiled)
        );
    }
    let mut misspelt = template.clone();
    let variables = misspelt.pointer_mut(sweep).unwrap().as_object_mut().unwrap();
    let value = variables.remove("SWEEP_AFTER_SECONDS").unwrap();
    variables.insert("SWEEP_AFTER_SECOND".to_owned(), value);
    assert_eq!(
        settings_faults(&misspelt),
        ["Sweep does not read SWEEP_AFTER_SECOND", "Sweep lacks SWEEP_AFTER_SECONDS"]
    );
}

#[test]
fn no_role_may_do_everything_or_something_to_everything_without_a_reason() {
    let Some(template) = cloudformation() else { return };
    assert_eq!(wildcard_faults(template), Vec::<String>::new());
    let statement = "/Resources/SweepRole/Properties/Policies/0/PolicyDocument/Statement/1";
    for (member, value) in [("Action", json!("secretsmanager:*")), ("Resource", json!("*")), ("Resource", json!(["*"]))]
    {
        let spoiled = spoiled(&format!("{statement}/{member}"), value);
        assert_eq!(wildcard_faults(&spoiled).len(), 1, "{member}");
    }
}

/// Whom a policy lets invoke which function.
fn may_invoke(template: &Value, policy: &str) -> Vec<String> {
    let statements = statements(&template["Resources"][policy]["Properties"]);
    let invokes = statements.iter().filter(|statement| statement["Action"] == "lambda:InvokeFunction");
    let resources = invokes.map(|statement| &statement["Resource"]);
    let resources =
        resources.flat_map(|resource| resource.as_array().cloned().unwrap_or_else(|| vec![resource.clone()]));
    resources.map(|resource| resource["Fn::GetAtt"][0].as_str().unwrap_or("?").to_owned()).collect()
}

#[test]
fn many_may_look_and_few_may_decide() {
    let Some(template) = cloudformation() else { return };
    assert_eq!(may_invoke(template, "MayLook"), ["Review"]);
    assert_eq!(may_invoke(template, "MayDecide"), ["Review", "ReviewDecide"]);
    let desk =
        |function: &str| &template["Resources"][function]["Properties"]["Environment"]["Variables"]["REVIEW_DESK"];
    assert_eq!((desk("Review"), desk("ReviewDecide")), (&json!("read"), &json!("decide")));
}

#[test]
fn every_schedule_is_one_whose_input_its_function_takes() {
    let Some(template) = cloudformation() else { return };
    assert_eq!(schedule_faults(template), Vec::<String>::new());
    let tick = "/Resources/ReverseScanTick/Properties";
    for (pointer, value) in [
        ("ScheduleExpression", json!("rate(5 minute)")),
        ("Target/Input", json!("{\"from\": \"yesterday\"}")),
        ("Target/Input", json!("{\"from\": \"2026-01-01\"}")),
        ("Target/RetryPolicy/MaximumRetryAttempts", json!(1)),
    ] {
        assert_eq!(schedule_faults(&spoiled(&format!("{tick}/{pointer}"), value)).len(), 1, "{pointer}");
    }
    for (pointer, value) in [
        ("Target/Input", json!("{}")),
        ("Target/Input", json!("{\"action\": \"list\"}")),
        ("Target/Arn/Fn::GetAtt/0", json!("Review")),
    ] {
        let spoiled = spoiled(&format!("/Resources/ReviewDecideDigest/Properties/{pointer}"), value);
        assert_eq!(schedule_faults(&spoiled).len(), 1, "{pointer}");
    }
    let expressions = ["rate(1 minute)", "rate(12 hours)", "cron(0 6 * * ? *)", "cron(0/15 8-17 ? * MON-FRI *)"];
    assert!(expressions.into_iter().all(is_an_expression));
    let none = [
        "rate(1 minutes)",
        "rate(0 minutes)",
        "rate(5)",
        "cron(0 6 * * *)",
        "cron(0 6 * * * *)",
        "cron(0 6 ? * ? *)",
        "at(now)",
    ];
    assert!(!none.into_iter().any(is_an_expression));
}

#[test]
fn every_function_has_what_each_has_to_have() {
    let Some(template) = cloudformation() else { return };
    assert_eq!(function_faults(template), Vec::<String>::new());
    for (pointer, fault) in [
        ("Dispatch/Properties/TracingConfig/Mode", "Dispatch lacks traces"),
        ("Dispatch/Properties/LoggingConfig/LogGroup/Ref", "Dispatch lacks a log group with an end"),
        ("DispatchEventInvokeConfig/Properties/MaximumRetryAttempts", "Dispatch lacks no second try"),
    ] {
        assert_eq!(function_faults(&spoiled(&format!("/Resources/{pointer}"), json!("PassThrough"))), [fault]);
    }
}
