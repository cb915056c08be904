//! The desk on a CloudWatch dashboard: what its pages call, and how they look in a real browser. The browser's pictures are in
//! `target/tmp`, to be looked at.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use local::chromium;
use local::postgres::environment;
use review::Desk;
use serde_json::{Value, json};

use crate::binaries::binaries;
use crate::lambda::Host;
use crate::world::World;

/// By which the simulated runtime invokes.
const THIS: &str = "arn:aws:lambda:us-east-1:123456789012:function:test-function";
const DECIDE: &str = "arn:aws:lambda:eu-west-1:123456789012:function:shop-review-decide";

/// Tags, quotes, an override of the direction of writing, letters from right to left, emoji.
const HOSTILE: &str = "<script>window.ran=true</script><img src=x onerror=\"window.ran=true\">'\"&lt;\u{202e}evil\u{202c} שלום مرحبا 🙂🏴‍☠️";

/// The same as it is to be read.
fn as_shown() -> String {
    HOSTILE.replace(['\u{202e}', '\u{202c}'], "\u{fffd}")
}

async fn reading(world: &World) -> Host {
    let url = world.database.url();
    let settings = [("DATABASE_URL", url.as_str()), ("REVIEW_DESK", "read"), ("REVIEW_DECIDE_ARN", DECIDE)];
    Host::new(&binaries().join("review"), &settings).await
}

async fn deciding(world: &World) -> Host {
    let url = world.database.url();
    Host::new(&binaries().join("review"), &[("DATABASE_URL", &url), ("REVIEW_DESK", "decide")]).await
}

/// What CloudWatch sends, at this theme and width.
fn asked(members: &Value, theme: &str, width: u32, forms: &Value) -> Value {
    let mut payload = members.clone();
    payload["widgetContext"] = json!({
        "dashboardName": "shop-reconciler", "widgetId": "widget-1", "accountId": "123456789012", "locale": "en",
        "timezone": {"label": "UTC", "offsetISO": "+00:00", "offsetInMinutes": 0}, "period": 300, "isAutoPeriod": true,
        "timeRange": {"mode": "relative", "start": 1, "end": 2, "relativeStart": 1}, "theme": theme, "linkCharts": true,
        "title": "Review", "forms": {"all": forms}, "params": {}, "width": width, "height": 400
    });
    payload
}

async fn html(host: &Host, payload: Value) -> String {
    let answer = host.answer(payload).await;
    answer.as_str().unwrap_or_else(|| panic!("not a page: {answer}")).to_owned()
}

/// A shop with findings of several kinds, texts that nobody would wish for, a withheld batch and a closed finding with a review.
/// Returns the open finding to show and the closed one.
async fn shop(world: &World) -> (i64, i64) {
    world.pair("pi_1", "paid", "canceled").await;
    world.pair("pi_2", "paid", "canceled").await;
    world
        .pair("pi_3_with_a_very_long_id_that_fills_its_cell_and_more_of_it", "pending", "requires_payment_method")
        .await;
    world.stripe.remove("pi_3_with_a_very_long_id_that_fills_its_cell_and_more_of_it");
    world.payment(Some("nonsense"), "pending", 60).await;
    world.cycle().await;
    let closed = world.number("select id from reconciliation.finding where external_ref = 'pi_2'").await;
    let host = deciding(world).await;
    let decide = json!({"action": "decide", "decision": "accept", "finding": closed, "revision": 0, "note": format!("{HOSTILE}\nand more"), "by": HOSTILE});
    let answer = host.answer(decide).await;
    assert_eq!(answer["outcome"], "recorded", "{answer}");
    drop(host.kill());
    let spoil = "update reconciliation.finding set evidence = evidence || jsonb_build_object(
                     'match_key', $1::text, 'metadata', jsonb_build_object($1::text, $1::text))
                 where resolved_at is null";
    world.owner.execute(spoil, &[&HOSTILE]).await.unwrap();
    let strange = "insert into reconciliation.finding (external_ref, kind, verdict, external_status, evidence, detected_at, last_seen_at)
                   values ($1, $1, 'needs_review', $1, '{\"amount_minor\": 123456789, \"currency\": \"jpy\"}', $2, $2)";
    world.owner.execute(strange, &[&HOSTILE, &world.now()]).await.unwrap();
    let withhold =
        "update reconciliation.cursor set withheld_revision = revision, withheld_at = $1, withheld_because = $2";
    world.owner.execute(withhold, &[&world.now(), &HOSTILE]).await.unwrap();
    world.pass(60 * 30);
    (world.number("select id from reconciliation.finding where external_ref = 'pi_1'").await, closed)
}

#[expect(
    clippy::explicit_write,
    reason = "the test runner keeps what eprintln says, and a check that was left out is to be seen"
)]
fn browser() -> Option<&'static PathBuf> {
    use std::io::Write as _;
    static BROWSER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let browser = BROWSER.get_or_init(|| match chromium::program(environment) {
        Ok(program) => Some(program),
        Err(why) if environment("CI").as_deref() != Some("true") => {
            writeln!(std::io::stderr(), "SKIPPED: the widget in a browser. {why}").unwrap();
            None
        }
        Err(why) => panic!("{why}"),
    });
    browser.as_ref()
}

/// What the browser makes of these pages, one under the other in widgets of this width.
fn measured(browser: &Path, name: &str, width: u32, pages: &[String]) -> Value {
    let mut widgets = String::new();
    for page in pages {
        writeln!(widgets, "<div class=\"widget\" style=\"width:{width}px\">{page}</div>").unwrap();
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (file, picture) = (folder.join(format!("{name}.html")), folder.join(format!("{name}.png")));
    std::fs::write(&file, include_str!("widget.html").replace("WIDGETS", &widgets)).unwrap();
    let document = chromium::look(browser, &file, &picture, width.max(500) + 16, 4_500).unwrap();
    assert!(std::fs::metadata(&picture).unwrap().len() > 10_000, "no picture of it");
    let (_, measured) = document.split_once("<pre id=\"measured\" hidden=\"\">").expect(&document);
    let (measured, _) = measured.split_once("</pre>").unwrap();
    serde_json::from_slice(&STANDARD.decode(measured).unwrap()).unwrap()
}

/// Each call is a button's, and a request that the function behind its endpoint takes, once a note is there.
fn calls_are_understood(widget: &Value) -> usize {
    let calls = widget["calls"].as_array().unwrap();
    for button in calls {
        let payload = asked(&button["call"], "light", 800, &json!({"note": "because", "days": "7", "sort": "oldest"}));
        let request = review::read(&payload).unwrap_or_else(|error| panic!("{button}: {error}"));
        let deciding = review::desk_of(&request) == Desk::Deciding;
        assert_eq!(button["endpoint"], if deciding { DECIDE } else { THIS }, "{button}");
        assert_eq!(button["display"], if deciding { "popup" } else { "widget" }, "{button}");
        assert_eq!(button["confirmation"].is_string(), deciding, "{button}");
        assert!(button["anchor"] == true && !button["button"].as_str().unwrap().is_empty(), "{button}");
    }
    calls.len()
}

#[tokio::test]
async fn in_a_browser_everything_from_data_is_text_and_nothing_stands_out_of_the_widget() {
    let Some(browser) = browser() else { return };
    let world = World::new().await;
    let (open, closed) = shop(&world).await;
    let (reading, deciding) = (reading(&world).await, deciding(&world).await);
    for theme in ["light", "dark"] {
        for width in [360, 780, 1580] {
            let ask = |members: &Value| asked(members, theme, width, &json!({"payment": "", "sort": "severity"}));
            let pages = [
                html(&reading, ask(&json!({}))).await,
                html(&reading, ask(&json!({"action": "show", "finding": open}))).await,
                html(&reading, ask(&json!({"action": "show", "finding": closed}))).await,
                html(&reading, ask(&json!({"action": "show", HOSTILE: HOSTILE}))).await,
                html(
                    &deciding,
                    ask(&json!({"action": "decide", "decision": "accept", "finding": open, "revision": 0})),
                )
                .await,
            ];
            let measured = measured(browser, &format!("widget-{theme}-{width}"), width, &pages);
            assert_eq!(measured["ran"], false, "a script from data ran");
            let widgets = measured["widgets"].as_array().unwrap();
            assert_eq!(widgets.len(), pages.len());
            for widget in widgets {
                for fault in ["active", "outside", "clipped"] {
                    assert_eq!(widget[fault], json!([]), "{fault}, {theme} {width}");
                }
                assert_eq!(widget["overflows"], false, "{theme} {width}: {}", widget["text"]);
                let text = widget["text"].as_str().unwrap();
                assert!(!text.contains(['\u{202e}', '\u{202c}']), "{text}");
            }
            // in the evidence, which is JSON, with JSON's escapes
            for (widget, shown) in
                widgets.iter().zip([as_shown(), as_shown().replace('"', "\\\""), as_shown(), as_shown()])
            {
                let text = widget["text"].as_str().unwrap();
                assert!(text.contains(&shown), "{theme} {width}: {text}");
            }
            // the list: filter, next to it a finding each, a withheld batch; the open finding: back and three decisions
            let calls: Vec<usize> = widgets.iter().map(calls_are_understood).collect();
            assert_eq!(calls, [1 + 4 + 1, 1 + 3, 1, 0, 0], "{theme} {width}");
        }
    }
}

#[tokio::test]
async fn the_form_filters_and_sorts_and_the_console_is_told_what_it_shows() {
    let world = World::new().await;
    shop(&world).await;
    let reading = reading(&world).await;
    let order = async |forms: Value| {
        let page = html(&reading, asked(&json!({}), "light", 780, &forms)).await;
        let ids = page.split("{\"action\":\"show\",\"finding\":").skip(1);
        ids.map(|rest| rest.split('}').next().unwrap().parse().unwrap()).collect::<Vec<i64>>()
    };
    let by = |order: &str| {
        format!(
            "select string_agg(id::text, ',' order by {order}) from reconciliation.finding where resolved_at is null"
        )
    };
    for (forms, sorted) in
        [(json!({"sort": "oldest"}), "detected_at, id"), (json!({"sort": "newest"}), "detected_at desc, id desc")]
    {
        let expected: Vec<i64> = world.texts(&by(sorted)).await[0].split(',').map(|id| id.parse().unwrap()).collect();
        assert_eq!(order(forms).await, expected, "{sorted}");
    }
    let missing = world.number("select id from reconciliation.finding where kind = 'missing_externally'").await;
    assert_eq!(
        order(json!({"kind": "missing_externally", "state": "all", "min_age_hours": "168", "payment": ""})).await,
        [missing]
    );
    assert_eq!(order(json!({"payment": "x' or 'a' = 'a"})).await, Vec::<i64>::new());
    let show = asked(
        &json!({"action": "show", "finding": missing}),
        "light",
        780,
        &json!({"payment": "o'<1>", "sort": "oldest"}),
    );
    let shown = html(&reading, show).await;
    for carried in
        ["type=\"hidden\" name=\"payment\" value=\"o'&lt;1&gt;\"", "type=\"hidden\" name=\"sort\" value=\"oldest\""]
    {
        assert!(shown.contains(carried), "the way back has lost the filter: {shown}");
    }
    let behind = asked(&json!({"action": "list", "after": "3.253402300799999999.1"}), "light", 780, &json!({}));
    let emptied = html(&reading, behind).await;
    assert!(emptied.contains("the filter leaves 4") && emptied.contains("First page"), "{emptied}");
    let described = reading.answer(json!({"describe": true})).await;
    assert!(described.as_str().unwrap().starts_with("## The reconciler's review desk\n"), "{described}");
    drop(reading.kill());
}

#[tokio::test]
async fn a_context_that_somebody_forged_changes_nothing_and_decides_nothing() {
    let world = World::new().await;
    let (open, _) = shop(&world).await;
    let before = world.written().await;
    let reviews = world.number("select count(*) from reconciliation.review").await;
    let (reading, deciding) = (reading(&world).await, deciding(&world).await);
    let accept = json!({"action": "decide", "decision": "accept", "finding": open, "revision": 0});
    let forms = |forms: Value| asked(&accept, "light", 780, &forms);
    let with = |context: Value| {
        let mut payload = accept.clone();
        payload["widgetContext"] = context;
        payload
    };
    for (host, payload, words) in [
        (&deciding, with(json!("context")), "widgetContext has to be an object"),
        (&deciding, with(json!({"forms": ["note"]})), "forms has to be an object"),
        (&deciding, forms(json!({"note": ["why"]})), "the form's note has to be a text"),
        (&deciding, forms(json!({"note": " "})), "note has to say why"),
        (&deciding, forms(json!({"note": "x".repeat(70_000)})), "it may have 65536"),
        (
            &deciding,
            asked(&json!({"finding": open}), "dark", 780, &json!({"action": "decide", "note": "n"})),
            "unknown field",
        ),
        (&deciding, asked(&json!({"action": "drop"}), "dark", 780, &json!({})), "action has to be"),
        (&deciding, asked(&json!({}), "dark", 780, &json!({})), "lists are given by the reading function"),
        (&reading, forms(json!({"note": "n"})), "decisions are taken by the deciding function"),
        (
            &reading,
            asked(&json!({}), "dark", 780, &json!({"min_age_hours": "1; drop table x"})),
            "min_age_hours has to be a number",
        ),
        (&reading, asked(&json!({}), "dark", 780, &json!({"sort": "id; drop table x"})), "unknown variant"),
    ] {
        let page = html(host, payload.clone()).await;
        assert!(page.contains("Nothing was written") && page.contains(words), "{payload}: {page}");
    }
    assert_eq!(world.written().await, before);
    // who is in the context is nobody: on record is what Lambda says, which is nothing
    let mut payload =
        forms(json!({"note": "all right", "by": "ann", "finding": "99", "decision": "snooze", "who": "root"}));
    payload["widgetContext"]["accountId"] = json!("root");
    payload["widgetContext"]["userId"] = json!("root");
    let page = html(&deciding, payload.clone()).await;
    assert!(page.contains(&format!("accept: finding {open}")) && page.contains("The difference is accepted"), "{page}");
    let again = html(&deciding, payload).await;
    assert!(again.contains("Nothing was written") && again.contains("accepted"), "{again}");
    let kept = world
        .texts("select decision, who_is, claimed_by, note from reconciliation.review order by id desc limit 1")
        .await;
    assert_eq!(kept, ["accept not_known ann all right"]);
    assert_eq!(world.number("select count(*) from reconciliation.review").await, reviews + 1);
}
