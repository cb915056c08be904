//! Retrieve and list.

use super::account::{Account, Space};
use super::error::{ApiError, no_such_intent};
use super::intent::PaymentIntent;
use super::ledger::{Cursor, CursorGone, Filter, Page};
use super::params::{Accepts, Params};
use super::render::{self, ListJson};
use super::wire::Request;

const LIST: Accepts = Accepts {
    plain: &[
        "created",
        "created[gt]",
        "created[gte]",
        "created[lt]",
        "created[lte]",
        "customer",
        "customer_account",
        "ending_before",
        "limit",
        "starting_after",
    ],
    lists: &["expand"],
    maps: &[],
};

const RETRIEVE: Accepts = Accepts { plain: &["client_secret"], lists: &["expand"], maps: &[] };

/// `may_expand` is the 403 of a key that may not read charges.
pub(super) fn list(
    account: &Account,
    request: &Request,
    space: &Space,
    may_expand: Result<(), ApiError>,
) -> Result<Vec<u8>, ApiError> {
    let params = Params::read(request, &LIST)?;
    let filter = filter(&params)?;
    let limit = params.integer_within("limit", 1, 100)?.unwrap_or(10);
    let (after, before) = (params.text("starting_after")?, params.text("ending_before")?);
    let cursor = match (after, before) {
        (Some(_), Some(_)) => {
            let message = "Received both starting_after and ending_before parameters. Please pass in only one.";
            return Err(ApiError::invalid(400, message));
        }
        (Some(id), None) => Cursor::OlderThan(id),
        (None, Some(id)) => Cursor::NewerThan(id),
        (None, None) => Cursor::Newest,
    };
    let expand = expands_charge(&params, "data.latest_charge")?;
    if expand {
        may_expand?;
    }
    let limit = usize::try_from(limit).unwrap_or(10);
    let page = match account.ledger(space) {
        Some(ledger) => ledger.page(&filter, cursor, limit),
        None if cursor == Cursor::Newest => Ok(Page { intents: Vec::new(), has_more: false }),
        None => Err(CursorGone),
    };
    let page = page.map_err(|CursorGone| {
        let (param, id) =
            if let Some(id) = after { ("starting_after", id) } else { ("ending_before", before.unwrap_or_default()) };
        no_such_intent(400, id, param, space.livemode, account.other_mode_has(space, id))
    })?;
    let data = page.intents.into_iter().map(|intent| render::intent(intent, expand)).collect();
    encode(&ListJson { object: "list", data, has_more: page.has_more, url: "/v1/payment_intents" })
}

/// `may_expand` as in [`list`].
pub(super) fn retrieve(
    account: &Account,
    request: &Request,
    space: &Space,
    id: &str,
    may_expand: Result<(), ApiError>,
) -> Result<Vec<u8>, ApiError> {
    let params = Params::read(request, &RETRIEVE)?;
    let expand = expands_charge(&params, "latest_charge")?;
    if expand {
        may_expand?;
    }
    let intent = account.ledger(space).and_then(|ledger| ledger.get(id));
    encode(&render::intent(intent.ok_or_else(|| missing(account, space, id))?, expand))
}

/// The 404 of an id in the path.
pub(super) fn missing(account: &Account, space: &Space, id: &str) -> ApiError {
    no_such_intent(404, id, "intent", space.livemode, account.other_mode_has(space, id))
}

/// The answer to a write.
pub(super) fn rendered(intent: &PaymentIntent, params: &Params<'_>) -> Result<Vec<u8>, ApiError> {
    encode(&render::intent(intent, expands_charge(params, "latest_charge")?))
}

/// Whether the charge is to be expanded; `allowed` is what it is called here.
pub(super) fn expands_charge(params: &Params<'_>, allowed: &str) -> Result<bool, ApiError> {
    let mut expand = false;
    for path in params.list("expand") {
        if path == allowed {
            expand = true;
            continue;
        }
        let message = if path.split('.').count() > 4 {
            format!("You cannot expand more than 4 levels of a property. Property: {path}.")
        } else if format!("data.{path}") == allowed {
            format!("This property cannot be expanded ({path}). You may want to try expanding '{allowed}' instead.")
        } else {
            // Stripe names the first segment that it cannot follow.
            let first = path.split('.').next().unwrap_or_default();
            let named = if first == "data" && allowed.starts_with("data.") { path } else { first };
            format!("This property cannot be expanded ({named}).")
        };
        return Err(ApiError::invalid(400, message));
    }
    Ok(expand)
}

fn filter<'a>(params: &Params<'a>) -> Result<Filter<'a>, ApiError> {
    let (mut from, mut to) = (i64::MIN, i64::MAX);
    if let Some(exact) = params.integer("created")? {
        (from, to) = (exact, exact);
    }
    if let Some(gte) = params.integer("created[gte]")? {
        from = from.max(gte);
    }
    if let Some(gt) = params.integer("created[gt]")? {
        from = from.max(gt.saturating_add(1));
    }
    if let Some(lte) = params.integer("created[lte]")? {
        to = to.min(lte);
    }
    if let Some(lt) = params.integer("created[lt]")? {
        to = to.min(lt.saturating_sub(1));
    }
    Ok(Filter { from, to, customer: params.text("customer")?, customer_account: params.text("customer_account")? })
}

fn encode(json: &impl serde::Serialize) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(json).map_err(|error| ApiError::invalid(500, format!("the sandbox cannot write this: {error}")))
}
