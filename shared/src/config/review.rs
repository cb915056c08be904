//! The settings of the review desk.

use super::{ConfigError, Lookup, malformed, text};

/// Which of the two functions of the review desk it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewDesk {
    /// Lists and shows.
    Reading,
    /// Decides, and announces the daily summary.
    Deciding,
}

impl ReviewDesk {
    /// Reads `REVIEW_DECIDE_ARN`: the deciding function's ARN, which the buttons of the reading one's widget call. Without it
    /// the widget has no buttons for decisions.
    pub fn decide_arn(lookup: Lookup<'_>) -> Option<String> {
        text(lookup, "REVIEW_DECIDE_ARN")
    }

    /// Reads `REVIEW_DESK`: `read`, which it is where nothing is set, or `decide`.
    pub fn from_lookup(lookup: Lookup<'_>) -> Result<Self, ConfigError> {
        match text(lookup, "REVIEW_DESK").as_deref() {
            None | Some("read") => Ok(Self::Reading),
            Some("decide") => Ok(Self::Deciding),
            Some(other) => Err(malformed("REVIEW_DESK", other, "read or decide")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_desk_that_nobody_named_reads() {
        let read = |set: &'static str| ReviewDesk::from_lookup(&move |_| Some(set.to_owned()));
        assert_eq!(read(" "), Ok(ReviewDesk::Reading));
        assert_eq!(read("decide"), Ok(ReviewDesk::Deciding));
        assert!(read("Decide").unwrap_err().to_string().contains("REVIEW_DESK = \"Decide\""));
    }
}
