//! Records as CloudWatch's Embedded Metric Format: one JSON line each.

use std::borrow::Cow;
use std::time::SystemTime;

use metrique::emf::{Emf, EntryDimensions};
use metrique::writer::format::Format;
use metrique::writer::unit::NegativeScale;
use metrique::writer::{Entry, EntryWriter, IoStreamError, MetricFlags, Observation, Unit, Value, ValueWriter};
use reconciler::domain::Timestamp;

use super::Record;
use super::catalogue::{self, NAMESPACE};

/// A record cannot be written in the format.
#[derive(Debug, thiserror::Error)]
#[error("a record is not what the Embedded Metric Format allows: {record:?}")]
pub struct EmfError {
    /// The record.
    record: Record,
    /// Why not.
    #[source]
    source: IoStreamError,
}

/// One line a record, each with a line end.
pub fn lines(records: &[Record], at: Timestamp) -> Result<Vec<u8>, EmfError> {
    // no dimensions but a record's own
    let mut emf = Emf::all_validations(NAMESPACE.to_owned(), vec![vec![]]);
    let mut lines = Vec::new();
    for record in records {
        let names = record.dimensions.iter().map(|(name, _)| Cow::Borrowed(*name)).collect::<Vec<_>>();
        let dimensions = EntryDimensions::new(Cow::Owned(vec![Cow::Owned(names)]));
        let entry = Line { record, at: at.into(), dimensions };
        emf.format(&entry, &mut lines).map_err(|source| EmfError { record: record.clone(), source })?;
    }
    Ok(lines)
}

struct Line<'a> {
    record: &'a Record,
    at: SystemTime,
    dimensions: EntryDimensions,
}

impl Entry for Line<'_> {
    fn write<'a>(&'a self, writer: &mut impl EntryWriter<'a>) {
        writer.timestamp(self.at);
        writer.config(&self.dimensions);
        for (name, value) in self.record.dimensions.iter().chain(&self.record.properties) {
            writer.value(*name, value.as_str());
        }
        for (metric, value) in &self.record.values {
            writer.value(metric.name, &Figure { value: *value, unit: metric.unit });
        }
    }
}

struct Figure {
    value: u64,
    unit: catalogue::Unit,
}

impl Value for Figure {
    fn write(&self, writer: impl ValueWriter) {
        let unit = match self.unit {
            catalogue::Unit::Count => Unit::Count,
            catalogue::Unit::Milliseconds => Unit::Second(NegativeScale::Milli),
            catalogue::Unit::Seconds => Unit::Second(NegativeScale::One),
            catalogue::Unit::None => Unit::None,
        };
        writer.metric([Observation::Unsigned(self.value)], unit, [], MetricFlags::empty());
    }
}
