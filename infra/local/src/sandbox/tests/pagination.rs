use std::collections::BTreeSet;

use reconciler::domain::external::ExternalStatus;

use super::super::{Account, PaymentIntentSeed, Request};
use super::{TEST_KEY, answered, at, ok};

const LIST: &str = "/v1/payment_intents";

/// What the list must be: newest second first, and within a second the last inserted first.
struct Model {
    newest_first: Vec<(i64, String, &'static str)>,
}

impl Model {
    fn page(&self, ask: &Ask) -> Result<(Vec<&str>, bool), ()> {
        let matching: Vec<&str> = self
            .newest_first
            .iter()
            .filter(|(created, _, customer)| {
                ask.bounds.iter().all(|(name, bound)| match *name {
                    "created" => created == bound,
                    "created[gt]" => created > bound,
                    "created[gte]" => created >= bound,
                    "created[lt]" => created < bound,
                    "created[lte]" => created <= bound,
                    other => panic!("{other}"),
                }) && ask.customer.is_none_or(|wanted| *customer == wanted)
            })
            .map(|(_, id, _)| id.as_str())
            .collect();
        let place = |id: &str| matching.iter().position(|found| *found == id).ok_or(());
        match (&ask.after, &ask.before) {
            (Some(id), _) => {
                let rest = &matching[place(id)? + 1..];
                Ok((rest.iter().take(ask.limit).copied().collect(), rest.len() > ask.limit))
            }
            (None, Some(id)) => {
                let rest = &matching[..place(id)?];
                let skipped = rest.len().saturating_sub(ask.limit);
                Ok((rest[skipped..].to_vec(), skipped > 0))
            }
            (None, None) => Ok((matching.iter().take(ask.limit).copied().collect(), matching.len() > ask.limit)),
        }
    }
}

#[derive(Debug)]
struct Ask {
    bounds: Vec<(&'static str, i64)>,
    customer: Option<&'static str>,
    after: Option<String>,
    before: Option<String>,
    limit: usize,
}

impl Ask {
    fn request(&self) -> Request {
        let mut request = Request::get(LIST, TEST_KEY).query("limit", &self.limit.to_string());
        for (name, bound) in &self.bounds {
            request = request.query(name, &bound.to_string());
        }
        for (name, value) in [
            ("customer", self.customer),
            ("starting_after", self.after.as_deref()),
            ("ending_before", self.before.as_deref()),
        ] {
            if let Some(value) = value {
                request = request.query(name, value);
            }
        }
        request
    }
}

fn ids(page: &serde_json::Value) -> Vec<&str> {
    page["data"].as_array().unwrap().iter().map(|intent| intent["id"].as_str().unwrap()).collect()
}

/// Thousands of objects in sixty seconds, inserted in no order, with a third of them deleted or moved away again.
fn crowd(dice: &mut fastrand::Rng) -> (Account, Model) {
    let mut account = Account::new();
    let mut rows = Vec::new();
    for n in 0..4000_i64 {
        let created = dice.i64(100..160);
        let customer = if dice.bool() { "cus_a" } else { "cus_b" };
        let seed = PaymentIntentSeed { customer: Some(customer.to_owned()), ..PaymentIntentSeed::new(at(created)) };
        let id = account.insert(seed).unwrap();
        rows.push((created, n, id, customer));
    }
    rows.retain(|(_, n, id, _)| match n % 6 {
        0 => account.delete(id).is_err(),
        1 => account.set_livemode(id, true).is_err(),
        _ => true,
    });
    rows.sort_by_key(|(created, n, _, _)| std::cmp::Reverse((*created, *n)));
    (
        account,
        Model { newest_first: rows.into_iter().map(|(created, _, id, customer)| (created, id, customer)).collect() },
    )
}

#[test]
fn any_page_is_what_brute_force_says() {
    let mut dice = fastrand::Rng::with_seed(1);
    let (mut account, model) = crowd(&mut dice);
    let (mut pages, mut refusals) = (0, 0);
    for _ in 0..1500 {
        let names = ["created", "created[gt]", "created[gte]", "created[lt]", "created[lte]"];
        let mut bounds = Vec::new();
        for _ in 0..dice.usize(0..3) {
            bounds.push((names[dice.usize(0..5)], dice.i64(98..163)));
        }
        bounds.sort();
        bounds.dedup_by_key(|(name, _)| *name);
        let cursor = Some(model.newest_first[dice.usize(0..model.newest_first.len())].1.clone());
        let (after, before) = match dice.u8(0..3) {
            0 => (cursor, None),
            1 => (None, cursor),
            _ => (None, None),
        };
        let customer = [None, Some("cus_a"), Some("cus_nobody")][dice.usize(0..3)];
        let ask = Ask { bounds, customer, after, before, limit: dice.usize(1..=100) };
        match model.page(&ask) {
            Ok((expected, has_more)) => {
                let page = ok(&mut account, &ask.request());
                assert_eq!(ids(&page), expected, "{ask:?}");
                assert_eq!(page["has_more"], has_more, "{ask:?}");
                pages += 1;
            }
            Err(()) => {
                let error = &answered(&mut account, &ask.request(), 400).1["error"];
                let param = if ask.after.is_some() { "starting_after" } else { "ending_before" };
                assert_eq!((&error["code"], &error["param"]), (&"resource_missing".into(), &param.into()), "{ask:?}");
                refusals += 1;
            }
        }
    }
    assert!(pages > 300 && refusals > 300, "{pages} pages and {refusals} refusals: both kinds must be tried");
}

#[test]
fn walking_either_way_gives_every_object_once_and_in_order() {
    let mut dice = fastrand::Rng::with_seed(2);
    let (mut account, model) = crowd(&mut dice);
    let expected: Vec<&str> = model.newest_first.iter().map(|(_, id, _)| id.as_str()).collect();

    let mut forward: Vec<String> = Vec::new();
    loop {
        let after = forward.last().cloned();
        let ask = Ask { bounds: vec![], customer: None, after, before: None, limit: dice.usize(1..=100) };
        let page = ok(&mut account, &ask.request());
        forward.extend(ids(&page).into_iter().map(str::to_owned));
        if page["has_more"] == false {
            break;
        }
    }
    assert_eq!(forward, expected);

    let mut backward = vec![expected.last().unwrap().to_string()];
    loop {
        let before = backward.first().cloned();
        let ask = Ask { bounds: vec![], customer: None, after: None, before, limit: dice.usize(1..=100) };
        let page = ok(&mut account, &ask.request());
        backward.splice(0..0, ids(&page).into_iter().map(str::to_owned));
        if page["has_more"] == false {
            break;
        }
    }
    assert_eq!(backward, expected);
}

#[test]
fn inserts_during_a_walk_neither_repeat_nor_hide_an_older_object() {
    let mut account = Account::new();
    let old: Vec<String> = (0..50).map(|_| account.insert(PaymentIntentSeed::new(at(100))).unwrap()).collect();
    let mut seen = Vec::new();
    loop {
        let ask = Ask { bounds: vec![], customer: None, after: seen.last().cloned(), before: None, limit: 7 };
        let page = ok(&mut account, &ask.request());
        seen.extend(ids(&page).into_iter().map(str::to_owned));
        account.insert(PaymentIntentSeed::new(at(100))).unwrap();
        if page["has_more"] == false {
            break;
        }
    }
    assert_eq!(seen, old.iter().rev().cloned().collect::<Vec<_>>());
}

#[test]
fn ten_are_given_where_no_limit_is_asked_for_and_an_empty_account_has_an_empty_page() {
    let mut account = Account::new();
    let page = ok(&mut account, &Request::get(LIST, TEST_KEY));
    assert_eq!(page, serde_json::json!({"object": "list", "data": [], "has_more": false, "url": LIST}));
    for _ in 0..11 {
        account.insert(PaymentIntentSeed::new(at(100))).unwrap();
    }
    let page = ok(&mut account, &Request::get(LIST, TEST_KEY));
    assert_eq!((ids(&page).len(), &page["has_more"]), (10, &true.into()));
}

#[test]
fn a_page_that_is_just_full_has_no_more() {
    let mut account = Account::new();
    let oldest = account.insert(PaymentIntentSeed::new(at(100))).unwrap();
    for _ in 0..5 {
        account.insert(PaymentIntentSeed::new(at(100))).unwrap();
    }
    let newest = account.insert(PaymentIntentSeed::new(at(100))).unwrap();
    for (after, before, rest) in [(None, None, 7), (Some(newest), None, 6), (None, Some(oldest), 6)] {
        for (limit, has_more) in [(rest - 1, true), (rest, false), (rest + 1, false)] {
            let ask = Ask { bounds: vec![], customer: None, after: after.clone(), before: before.clone(), limit };
            let page = ok(&mut account, &ask.request());
            assert_eq!((ids(&page).len(), &page["has_more"]), (limit.min(rest), &has_more.into()), "{ask:?}");
        }
    }
}

#[test]
fn the_charge_comes_as_an_id_or_as_an_object() {
    let mut account = Account::new();
    let seed = PaymentIntentSeed { status: ExternalStatus::Succeeded, ..PaymentIntentSeed::new(at(100)) };
    account.insert(seed).unwrap();
    let page = ok(&mut account, &Request::get(LIST, TEST_KEY));
    assert!(page["data"][0]["latest_charge"].as_str().unwrap().starts_with("ch_"));
    for name in ["expand[]", "expand[0]"] {
        let page = ok(&mut account, &Request::get(LIST, TEST_KEY).query(name, "data.latest_charge"));
        assert_eq!(page["data"][0]["latest_charge"]["object"], "charge", "{name}");
    }
}

#[test]
fn made_up_ids_never_meet() {
    let mut account = Account::new();
    let ids: BTreeSet<String> = (0..20_000).map(|_| account.insert(PaymentIntentSeed::new(at(100))).unwrap()).collect();
    assert_eq!(ids.len(), 20_000);
    assert!(ids.iter().all(|id| reconciler::domain::id::ExternalRef::parse(id).is_some()));
}
