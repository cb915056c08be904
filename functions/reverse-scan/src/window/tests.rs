use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH.saturating_add(Duration::seconds(1_795_000_000));
const POLICY: Policy =
    Policy { grace: Duration::minutes(10), retry_window: Duration::days(1), in_flight_max: Duration::days(30) };

fn settings(match_key: &str) -> ReverseSettings {
    ReverseSettings::from_lookup(&|key| (key == "MATCH_METADATA_KEY").then(|| match_key.to_owned())).unwrap()
}

fn id(text: &str) -> ExternalRef {
    ExternalRef::parse(text).unwrap()
}

fn begun(window: &Window, now: Timestamp, asked: Option<Timestamp>) -> Option<Window> {
    begin(window, &settings("order"), &POLICY, now, asked)
}

fn edges(window: &Window) -> (Duration, Duration) {
    let under_way = window.under_way.as_ref().unwrap();
    (NOW - under_way.from, NOW - under_way.to)
}

fn completed(window: &Window, met: &Met) -> Window {
    turn(window, met, Way::Complete, NOW)
}

#[test]
fn the_first_window_and_the_next_one() {
    let first = begun(&Window::default(), NOW + Duration::milliseconds(300), None).unwrap();
    assert_eq!(edges(&first), (Duration::days(7) + POLICY.grace, POLICY.grace), "whole seconds");
    assert_eq!(begun(&first, NOW, None), None, "it goes on");
    let done = completed(&first, &Met::default());
    assert_eq!((done.completed, &done.under_way), (Some((NOW - POLICY.grace, NOW)), &None));
    assert_eq!(begun(&done, NOW, None), None, "nothing newer");
    let next = begun(&done, NOW + Duration::SECOND, None).unwrap();
    assert_eq!(edges(&next), (POLICY.grace * 2, POLICY.grace - Duration::SECOND));
    let no_grace = Policy { grace: Duration::ZERO, ..POLICY };
    let next = begin(&done, &settings("order"), &no_grace, NOW, None).unwrap();
    assert_eq!(edges(&next), (POLICY.grace + OVERLAP, EDGE));
}

#[test]
fn what_is_asked_for_only_ever_reaches_further_back() {
    let year = Some(NOW - Duration::days(365));
    let hour = Some(NOW - Duration::hours(1));
    let first = begun(&Window::default(), NOW, hour).unwrap();
    assert_eq!(edges(&first).0, Duration::days(7) + POLICY.grace, "never less than what is due");
    assert_eq!(begun(&first, NOW, hour), None);
    let mut walked = first;
    walked.under_way.as_mut().unwrap().page_after = Some(id("pi_1"));
    let wider = begun(&walked, NOW, year).unwrap();
    assert_eq!(edges(&wider), (Duration::days(365), POLICY.grace));
    assert_eq!(wider.under_way.unwrap().page_after, Some(id("pi_1")), "older ones simply follow");
    let done = completed(&walked, &Met::default());
    assert_eq!(edges(&begun(&done, NOW, year).unwrap()).0, Duration::days(365), "between two windows it begins one");
    assert_eq!(begun(&done, NOW, Some(NOW + Duration::days(1))).map(|window| edges(&window).0), Some(POLICY.grace * 2));
}

#[test]
fn other_terms_begin_the_window_anew_and_prove_nothing_about_the_past() {
    let met = Met { objects: 9, known: 5, matched: 3, unread: 0 };
    let first = begun(&Window::default(), NOW, None).unwrap();
    let done = completed(&first, &met);
    assert_eq!((done.proven_from, done.proven_matched), (Some(first.under_way.as_ref().unwrap().from), 3));
    let later = NOW + Duration::hours(1);
    let second = begun(&done, later, None).unwrap();
    let cut = turn(&second, &met, Way::Next(id("pi_1")), later);
    assert_eq!(cut.under_way.as_ref().unwrap().pages, 1);
    let anew = begin(&cut, &settings("cart"), &POLICY, later, None).unwrap();
    let under_way = anew.under_way.as_ref().unwrap();
    assert_eq!((under_way.page_after.as_ref(), under_way.objects, under_way.matched), (None, 0, 0));
    assert_eq!((anew.proven_from, anew.proven_matched, anew.known), (None, 0, 10));
    assert_eq!(begin(&anew, &settings("cart"), &POLICY, later, None), None);
}

#[test]
fn a_proof_grows_with_every_complete_window_and_ends_at_one_that_could_not_be_read() {
    let met = Met { objects: 9, known: 5, matched: 3, unread: 0 };
    let first = begun(&Window::default(), NOW, None).unwrap();
    let cut = turn(&first, &met, Way::Cut(Some(id("pi_1"))), NOW);
    assert_eq!((cut.under_way.as_ref().unwrap().page_after.clone(), cut.proven_from), (Some(id("pi_1")), None));
    assert_eq!(turn(&cut, &met, Way::Cut(None), NOW).under_way.unwrap().page_after, Some(id("pi_1")));
    assert_eq!(proof(&cut, &POLICY, NOW), None, "not before it is complete");
    let done = completed(&cut, &met);
    let from = first.under_way.as_ref().unwrap().from;
    assert_eq!(done.proven_matched, 6);
    let expected =
        Proof { from: from + OLDER, to: NOW - POLICY.grace - YOUNGER, changed_since: NOW - Duration::days(30) };
    assert_eq!(proof(&done, &POLICY, NOW), Some(expected));
    assert_eq!(proof(&Window { proven_matched: 0, ..done.clone() }, &POLICY, NOW), None, "a wrong key, or account");

    let later = NOW + Duration::days(2);
    let second = completed(&begun(&done, later, None).unwrap(), &Met::default());
    assert_eq!((second.proven_from, second.proven_matched), (Some(from), 6));
    let third = begun(&second, later + Duration::days(1), None).unwrap();
    let blind = completed(&third, &Met { unread: 1, ..met });
    assert_eq!((blind.proven_from, blind.proven_matched), (None, 0));
    assert!(blind.completed.unwrap().0 > second.completed.unwrap().0, "it was walked all the same");
}
