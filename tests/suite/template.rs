//! The SAM template, checked without AWS: by its own tools, and as the CloudFormation that it becomes.
//!
//! Each check is a function that lists faults. The template has none; and one that is spoiled on purpose has the fault that it
//! is spoiled with, so that no check passes whatever it is given.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use local::postgres::environment;
use local::python::{Tool, install};
use serde_json::Value;

pub(crate) const TEMPLATE: &str = include_str!("../../infra/template.yaml");
const INFRA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../infra");

const SAM: Tool = Tool {
    name: "sam-1.170.0",
    packages: &["aws-sam-cli==1.170.0", "aws-sam-translator==1.115.0", "cfn-lint==1.58.0"],
};

/// Apart from the other, since they want different versions of what they share.
const CHECKOV: Tool = Tool { name: "checkov-3.3.30", packages: &["checkov==3.3.30"] };

/// The tool's programs. `None` where they are not to be had, and nobody insists.
#[expect(
    clippy::explicit_write,
    reason = "the test runner keeps what eprintln says, and a check that was left out is to be seen"
)]
fn programs(tool: &Tool) -> Option<PathBuf> {
    use std::io::Write as _;
    match install(tool, environment) {
        Ok(programs) => Some(programs),
        Err(why) if environment("CI").as_deref() != Some("true") => {
            writeln!(std::io::stderr(), "SKIPPED: a check of the template. {why}").unwrap();
            None
        }
        Err(why) => panic!("{why}"),
    }
}

fn run(program: &PathBuf, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env("SAM_CLI_TELEMETRY", "0").env("AWS_DEFAULT_REGION", "eu-west-1");
    command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}

/// What a program said, and whether it was content.
fn judged(program: &PathBuf, arguments: &[&str]) -> (bool, String) {
    let output = run(program, arguments);
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    (output.status.success(), said)
}

/// A file that goes with its value.
struct Written(PathBuf);

impl Written {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("reconciler-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

/// The CloudFormation that a template becomes, or why it becomes none.
fn transform(name: &str, template: &str) -> Option<Result<Value, String>> {
    let python = programs(&SAM)?.join("python");
    let template = Written::new(name, template);
    let output = run(&python, &[&format!("{INFRA}/checks/transform.py"), template.path()]);
    Some(if output.status.success() {
        Ok(serde_json::from_slice(&output.stdout).unwrap())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    })
}

/// The template as CloudFormation sees it.
pub(crate) fn cloudformation() -> Option<&'static Value> {
    static TRANSFORMED: OnceLock<Option<Value>> = OnceLock::new();
    TRANSFORMED.get_or_init(|| transform("template.yaml", TEMPLATE).map(Result::unwrap)).as_ref()
}

/// The template with one text in place of another, which it has.
pub(crate) fn spoiled(from: &str, to: &str) -> String {
    assert!(TEMPLATE.contains(from), "the template has no {from}");
    TEMPLATE.replacen(from, to, 1)
}

#[test]
fn sam_validates_it_and_refuses_a_spoiled_one() {
    let Some(sam) = programs(&SAM).map(|programs| programs.join("sam")) else { return };
    let validate = |name: &str, template: &str| {
        let file = Written::new(name, template);
        judged(&sam, &["validate", "--lint", "--template", file.path()])
    };
    let (content, said) = validate("good.yaml", TEMPLATE);
    assert!(content, "{said}");
    for (name, from, to) in [
        ("type.yaml", "Type: AWS::Serverless::Function", "Type: AWS::Serverless::Funktion"),
        ("reference.yaml", "Role: !GetAtt SweepRole.Arn", "Role: !GetAtt SweapRole.Arn"),
        ("condition.yaml", "InVpc: !Not", "InAVpc: !Not"),
    ] {
        let (content, said) = validate(name, &spoiled(from, to));
        assert!(!content, "{to} was let through: {said}");
    }
}

#[test]
fn cfn_lint_finds_nothing_in_what_it_becomes_and_refuses_a_spoiled_one() {
    let Some(lint) = programs(&SAM).map(|programs| programs.join("cfn-lint")) else { return };
    let linted = |name: &str, template: &Value| {
        let file = Written::new(name, &template.to_string());
        judged(&lint, &["--regions", "eu-west-1", "--template", file.path()])
    };
    let (content, said) = linted("good.json", cloudformation().unwrap());
    assert!(content, "{said}");
    for (name, from, to) in [
        ("runtime.json", "Runtime: provided.al2023", "Runtime: provided.al2024"),
        ("statistic.json", "Statistic: Maximum", "Statistic: Largest"),
        ("retention.json", "RetentionInDays: !Ref LogRetentionDays", "RetentionInDays: 61"),
    ] {
        let template = transform(name, &spoiled(from, to)).unwrap().unwrap();
        let (content, said) = linted(name, &template);
        assert!(!content, "{to} was let through: {said}");
    }
}

#[test]
fn checkov_finds_nothing_but_what_is_left_out_for_a_reason() {
    let Some(checkov) = programs(&CHECKOV).map(|programs| programs.join("checkov")) else { return };
    let Some(good) = cloudformation() else { return };
    let config = format!("{INFRA}/checks/checkov.yaml");
    let checked = |name: &str, template: &Value| {
        let file = Written::new(name, &template.to_string());
        judged(&checkov, &["--config-file", &config, "--file", file.path()])
    };
    let (content, said) = checked("checkov.json", good);
    assert!(content, "{said}");
    let mut unguarded = good.clone();
    unguarded["Resources"]["Sweep"]["Properties"].as_object_mut().unwrap().remove("ReservedConcurrentExecutions");
    let (content, said) = checked("unguarded.json", &unguarded);
    assert!(!content && said.contains("CKV_AWS_115"), "{said}");
    let left_out = std::fs::read_to_string(config).unwrap();
    let lines: Vec<&str> = left_out.lines().collect();
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| line.trim_start().starts_with("- CKV")) {
        assert!(lines[number - 1].trim_start().starts_with('#'), "{line} has no reason");
    }
}
