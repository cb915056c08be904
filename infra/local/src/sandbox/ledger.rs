//! The PaymentIntents of one account in one mode, in the order in which lists give them.
//!
//! Lists are newest first. Many objects share a second, so the order within a second is that of insertion: the
//! later one counts as newer. One ordered map by (second, sequence) answers every page with a range, from either
//! end, without looking at the rest.

use std::collections::{BTreeMap, HashMap};

use super::intent::PaymentIntent;

/// Where an object stands; the greater is the newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    created: i64,
    sequence: u64,
}

/// The objects of one account in one mode.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    by_age: BTreeMap<Position, PaymentIntent>,
    positions: HashMap<String, Position>,
}

/// What a list asks for, its cursor aside. Both ends are inclusive unix seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filter<'a> {
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) customer: Option<&'a str>,
    pub(super) customer_account: Option<&'a str>,
}

impl Filter<'_> {
    fn matches(&self, intent: &PaymentIntent) -> bool {
        (self.from..=self.to).contains(&intent.created)
            && self.customer.is_none_or(|wanted| intent.customer.as_deref() == Some(wanted))
            && self.customer_account.is_none_or(|wanted| intent.customer_account.as_deref() == Some(wanted))
    }
}

/// Where a page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cursor<'a> {
    /// At the newest.
    Newest,
    /// `starting_after`: only older ones.
    OlderThan(&'a str),
    /// `ending_before`: only newer ones, the nearest first to be found.
    NewerThan(&'a str),
}

/// One page, newest first.
#[derive(Debug)]
pub(super) struct Page<'a> {
    pub(super) intents: Vec<&'a PaymentIntent>,
    /// Whether there is more in the direction of the cursor.
    pub(super) has_more: bool,
}

/// The cursor names nothing, or nothing that the filter lets through.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CursorGone;

impl Ledger {
    /// `sequence` must be greater than every earlier one.
    pub(super) fn insert(&mut self, sequence: u64, intent: PaymentIntent) {
        let position = Position { created: intent.created, sequence };
        self.positions.insert(intent.id.clone(), position);
        self.by_age.insert(position, intent);
    }

    pub(super) fn get(&self, id: &str) -> Option<&PaymentIntent> {
        self.by_age.get(self.positions.get(id)?)
    }

    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut PaymentIntent> {
        self.by_age.get_mut(self.positions.get(id)?)
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<PaymentIntent> {
        let position = self.positions.remove(id)?;
        self.by_age.remove(&position)
    }

    pub(super) fn len(&self) -> usize {
        self.by_age.len()
    }

    pub(super) fn newest_first(&self) -> impl Iterator<Item = &PaymentIntent> {
        self.by_age.values().rev()
    }

    pub(super) fn page(&self, filter: &Filter<'_>, cursor: Cursor<'_>, limit: usize) -> Result<Page<'_>, CursorGone> {
        use std::ops::Bound::{Excluded, Included};
        let oldest = Included(Position { created: filter.from, sequence: 0 });
        let newest = Included(Position { created: filter.to, sequence: u64::MAX });
        let range = match cursor {
            Cursor::Newest => (oldest, newest),
            Cursor::OlderThan(id) => (oldest, Excluded(self.cursor(filter, id)?)),
            Cursor::NewerThan(id) => (Excluded(self.cursor(filter, id)?), newest),
        };
        if filter.from > filter.to {
            return Ok(Page { intents: Vec::new(), has_more: false });
        }
        let found = self.by_age.range(range).map(|(_, intent)| intent);
        let mut intents: Vec<_> = match cursor {
            Cursor::Newest | Cursor::OlderThan(_) => {
                found.rev().filter(|intent| filter.matches(intent)).take(limit + 1).collect()
            }
            Cursor::NewerThan(_) => found.filter(|intent| filter.matches(intent)).take(limit + 1).collect(),
        };
        let has_more = intents.len() > limit;
        intents.truncate(limit);
        if let Cursor::NewerThan(_) = cursor {
            intents.reverse();
        }
        Ok(Page { intents, has_more })
    }

    fn cursor(&self, filter: &Filter<'_>, id: &str) -> Result<Position, CursorGone> {
        let position = self.positions.get(id).ok_or(CursorGone)?;
        let matches = self.by_age.get(position).is_some_and(|intent| filter.matches(intent));
        if matches { Ok(*position) } else { Err(CursorGone) }
    }
}
