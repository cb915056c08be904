//! What came of a delivery, as a record of metrics.

use bootstrap::metrics::Record;
use bootstrap::metrics::catalogue::{
    ALREADY_WRITTEN, DUPLICATE, DURATION, FAILED, Metric, NO_SUCH_PAYMENT, NO_TRANSITION, OTHER_MODE, OTHER_TYPE,
    RECEIVED, REFUSED, SEVERAL_PAYMENTS, SUPERSEDED, WEBHOOK, WRITTEN,
};
use reconciler::writer::WriteOutcome;

use crate::Delivery;
use crate::inbox::Outcome;

/// The record of a delivery that was dealt with: one of the counters is 1.
pub fn records(delivery: Delivery, duration_ms: u64) -> Vec<Record> {
    let counted = counter_of(delivery);
    let value = |metric: Metric| match metric {
        DURATION => duration_ms,
        RECEIVED => 1,
        FAILED => 0,
        other => u64::from(other == counted),
    };
    vec![Record::of_tick(&WEBHOOK, WEBHOOK.tick.metrics.iter().map(|metric| (*metric, value(*metric))).collect())]
}

fn counter_of(delivery: Delivery) -> Metric {
    match delivery {
        Delivery::Event(Outcome::Asked(WriteOutcome::Written)) => WRITTEN,
        Delivery::Event(Outcome::Asked(WriteOutcome::AlreadyWritten)) => ALREADY_WRITTEN,
        Delivery::Event(Outcome::Asked(WriteOutcome::Superseded)) => SUPERSEDED,
        Delivery::Event(Outcome::Duplicate) => DUPLICATE,
        Delivery::Event(Outcome::NoSuchPayment) => NO_SUCH_PAYMENT,
        Delivery::Event(Outcome::SeveralPayments) => SEVERAL_PAYMENTS,
        Delivery::Event(Outcome::NoTransition) => NO_TRANSITION,
        Delivery::OtherType => OTHER_TYPE,
        Delivery::OtherMode => OTHER_MODE,
        Delivery::Refused => REFUSED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_delivery_counts_once_and_what_it_came_to() {
        let deliveries = [
            Delivery::Event(Outcome::Asked(WriteOutcome::Written)),
            Delivery::Event(Outcome::Asked(WriteOutcome::AlreadyWritten)),
            Delivery::Event(Outcome::Asked(WriteOutcome::Superseded)),
            Delivery::Event(Outcome::Duplicate),
            Delivery::Event(Outcome::NoSuchPayment),
            Delivery::Event(Outcome::SeveralPayments),
            Delivery::Event(Outcome::NoTransition),
            Delivery::OtherType,
            Delivery::OtherMode,
            Delivery::Refused,
        ];
        let mut counted = std::collections::BTreeSet::new();
        for delivery in deliveries {
            let records = records(delivery, 5);
            let ones: Vec<&str> =
                records[0].values.iter().filter(|(_, value)| *value == 1).map(|(metric, _)| metric.name).collect();
            assert_eq!((ones.len(), ones[0]), (2, "Received"), "{delivery:?}: {ones:?}");
            assert!(counted.insert(ones[1]), "{delivery:?}");
        }
        assert_eq!(counted.len() + 3, WEBHOOK.tick.metrics.len(), "every counter has a delivery");
    }
}
