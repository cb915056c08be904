//! An error and its causes in one line, for logs and for those who are told.

use std::error::Error;

/// The error and all its causes. A cause that its effect already quotes is not said twice.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}
