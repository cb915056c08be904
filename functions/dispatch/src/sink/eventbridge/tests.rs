use serde_json::{Value, json};

use super::*;

fn accepted() -> PutEventsResultEntry {
    PutEventsResultEntry::builder().event_id("11710aed").build()
}

fn failed(code: &str) -> PutEventsResultEntry {
    PutEventsResultEntry::builder().error_code(code).error_message("slow down").build()
}

fn output(counted: i32, entries: Vec<PutEventsResultEntry>) -> PutEventsOutput {
    PutEventsOutput::builder().failed_entry_count(counted).set_entries(Some(entries)).build()
}

#[test]
fn an_entry_is_accepted_by_its_own_answer_alone() {
    let answers = answers_of(3, &output(1, vec![accepted(), failed("ThrottlingException"), accepted()])).unwrap();
    assert_eq!(answers, [Ok(()), Err(SinkError("ThrottlingException: slow down".to_owned())), Ok(())]);
    let both = PutEventsResultEntry::builder().event_id("11710aed").error_code("InternalFailure").build();
    for neither in [PutEventsResultEntry::builder().build(), PutEventsResultEntry::builder().event_id("").build(), both]
    {
        assert!(answers_of(1, &output(0, vec![neither.clone()])).unwrap()[0].is_err(), "{neither:?}");
    }
}

#[test]
fn an_answer_that_does_not_add_up_says_nothing_of_any_entry() {
    for (sent, output) in [
        (2, output(0, vec![accepted()])),
        (1, output(0, vec![accepted(), accepted()])),
        (1, output(0, vec![])),
        (2, output(1, vec![accepted(), accepted()])),
        (2, output(-1, vec![accepted(), accepted()])),
    ] {
        assert!(answers_of(sent, &output).is_err(), "{output:?}");
    }
}

fn sink() -> EventBridgeSink {
    EventBridgeSink::at("http://127.0.0.1:1", "payments", Limits { attempts: 1, ..Limits::default() })
}

fn event(id: i64, bytes: usize) -> Event {
    Event { id, name: "PaymentCaptured".to_owned(), detail: json!({"payment_id": "7", "padding": "x".repeat(bytes)}) }
}

#[test]
fn an_entry_says_what_consumers_rely_on() {
    let webhooks = json!({"payment_id": "7", "external_ref": "pi_7", "event_id": "evt_1"});
    let entry = sink().entry_of(&Event { id: 41, name: "PaymentFailed".to_owned(), detail: webhooks }).entry;
    assert_eq!(entry.source(), Some("payment-reconciler"));
    assert_eq!(entry.detail_type(), Some("PaymentFailed"));
    assert_eq!(entry.event_bus_name(), Some("payments"));
    let detail: Value = serde_json::from_str(entry.detail().unwrap()).unwrap();
    let expected = json!({"payment_id": "7", "external_ref": "pi_7", "event_id": "41", "stripe_event_id": "evt_1"});
    assert_eq!(detail, expected);
    let odd = Event { id: 1, name: "PaymentFailed".to_owned(), detail: json!([1]) }.sent_detail();
    assert_eq!(odd, json!({"event_id": "1", "detail": [1]}), "EventBridge takes nothing but an object");
}

#[test]
fn requests_hold_ten_entries_and_no_more_bytes_than_any_region_takes() {
    let sizes = |sizes: &[usize]| {
        let entries: Vec<Entry> = sizes.iter().map(|bytes| sink().entry_of(&event(1, *bytes))).collect();
        let all: Vec<usize> = (0..entries.len()).collect();
        requests_of(&entries, &all).iter().map(Vec::len).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&[100; 25]), [10, 10, 5]);
    assert_eq!(sizes(&[100_000; 5]), [2, 2, 1]);
    assert_eq!(sizes(&[10, 900_000, 10, 10]), [1, 1, 2], "a large one goes alone");
    assert!(sizes(&[]).is_empty());
}

#[tokio::test]
async fn what_is_too_large_for_any_region_is_never_sent() {
    let large = sink().publish(&[event(1, ENTRY_BYTES_MAX)]).await;
    assert!(large[0].as_ref().unwrap_err().0.contains("more than the 1048576 of an entry"), "{large:?}");
    // nobody listens there: what is sent fails otherwise
    let mixed = sink().publish(&[event(1, 10), event(2, ENTRY_BYTES_MAX)]).await;
    assert!(mixed[0].as_ref().unwrap_err().0.contains("PutEvents failed"), "{mixed:?}");
    assert_eq!(mixed[1], large[0]);
}
