//! What of a foreign text may go into an error: bounded, on one line, and without anything that looks like a secret.

/// The longest text that is kept, in characters.
pub(super) const TEXT_MAX: usize = 300;

const PLACEHOLDER: &str = "[secret]";

/// Makes a text from the network fit for a log.
///
/// Secrets are taken out before the text is cut, since half a key is still a key. `ApiKey` accepts nothing but letters,
/// digits and underscores after its prefix, so that a whole key is one word here.
pub(super) fn scrub(text: &str) -> String {
    let mut clean = String::new();
    let mut word = String::new();
    for c in text.chars() {
        // Stripe masks the middle of a key with stars
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '*') {
            word.push(c);
        } else {
            push_word(&mut clean, &mut word);
            clean.push(if c.is_control() { ' ' } else { c });
        }
    }
    push_word(&mut clean, &mut word);
    match clean.char_indices().nth(TEXT_MAX) {
        Some((end, _)) => format!("{}…", clean.get(..end).unwrap_or_default()),
        None => clean,
    }
}

fn push_word(clean: &mut String, word: &mut String) {
    clean.push_str(if is_secret(word) { PLACEHOLDER } else { word });
    word.clear();
}

/// Keys (`sk_…`, `rk_…`), webhook secrets (`whsec_…`) and client secrets (`pi_…_secret_…`).
fn is_secret(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    // inside a word only with the mode behind it: "network_" holds "rk_", and "risk_" holds "sk_"
    word.starts_with("sk_")
        || word.starts_with("rk_")
        || ["sk_live_", "sk_test_", "sk_org_", "rk_live_", "rk_test_", "whsec_", "_secret_"]
            .iter()
            .any(|mark| word.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_looks_like_a_secret_is_taken_out() {
        for secret in [
            "sk_live_51AbC",
            "rk_test_51AbC",
            "sk_test_***********1234",
            "sk_org_live_1",
            "SK_LIVE_1",
            "whsec_abc123",
            "pi_3Mt_secret_Y9x",
            "xsk_live_1",
        ] {
            let text = format!("Invalid API Key provided: {secret}.");
            assert_eq!(scrub(&text), "Invalid API Key provided: [secret].", "{secret}");
            assert_eq!(scrub(&format!("Bearer%20{secret}")), "Bearer%[secret]", "{secret}");
        }
    }

    #[test]
    fn harmless_words_stay() {
        let text = "network_decline, risk_level and task_id: No such payment_intent: 'pi_3MtwBw'";
        assert_eq!(scrub(text), text);
    }

    #[test]
    fn a_text_is_one_line_and_bounded_and_never_ends_in_half_a_key() {
        assert_eq!(scrub("a\nb\r\0c"), "a b  c");
        let long = format!("{}sk_live_1234567890", "é ".repeat(TEXT_MAX / 2 - 3));
        let clean = scrub(&long);
        assert_eq!(clean.chars().count(), TEXT_MAX + 1);
        assert!(!clean.contains("sk_l"), "{clean}");
    }
}
