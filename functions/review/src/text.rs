//! How texts and spans of time are shown to a person, on a terminal and on a dashboard.

use reconciler::domain::Timestamp;
use time::Duration;

/// A text without control characters and without marks that turn the direction of writing around: these would steer a terminal,
/// and make one id look like another.
pub fn plain(text: &str) -> String {
    let steers = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|letter| if steers(letter) { '\u{fffd}' } else { letter }).collect()
}

/// The two largest units of the time from `since` to `now`.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    span(now - since)
}

/// The two largest units.
fn span(span: Duration) -> String {
    let minutes = span.whole_minutes().max(0);
    match (minutes / 1_440, minutes / 60 % 24, minutes % 60) {
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// A time to the minute, in UTC.
pub fn minute(time: Timestamp) -> String {
    let time = time.to_offset(time::UtcOffset::UTC);
    format!("{} {:02}:{:02} UTC", time.date(), time.hour(), time.minute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_steer_a_terminal_is_replaced() {
        assert_eq!(plain("a\u{1b}[2Jb\nc\u{202e}d <b>\"é🙂 שלום"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d <b>\"é🙂 שלום");
    }

    #[test]
    fn an_age_has_its_two_largest_units() {
        let age = |seconds| age(Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH + Duration::seconds(seconds));
        assert_eq!([age(59), age(3_700), age(200_000)], ["0 min", "1 h 1 min", "2 d 7 h"]);
    }

    #[test]
    fn a_time_is_shown_to_the_minute() {
        assert_eq!(minute(Timestamp::UNIX_EPOCH + Duration::seconds(3_723)), "1970-01-01 01:02 UTC");
    }
}
