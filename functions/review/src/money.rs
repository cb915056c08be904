//! Amounts for people. Inside they are whole minor units; which part of them is behind the point is the currency's.

/// Currencies of which Stripe's amounts have no minor unit.
const NO_DECIMALS: [&str; 15] =
    ["bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "vnd", "vuv", "xaf", "xof", "xpf"];

/// Currencies with a thousandth.
const THREE_DECIMALS: [&str; 5] = ["bhd", "jod", "kwd", "omr", "tnd"];

/// `12.34 EUR`; of a currency that is not known the two decimals that most have.
pub fn amount(minor: i128, currency: &str) -> String {
    let decimals: usize = match currency {
        currency if NO_DECIMALS.contains(&currency) => 0,
        currency if THREE_DECIMALS.contains(&currency) => 3,
        _ => 2,
    };
    let digits = format!("{:0>width$}", minor.unsigned_abs(), width = decimals + 1);
    let (whole, part) = digits.split_at(digits.len() - decimals);
    let sign = if minor < 0 { "-" } else { "" };
    let point = if decimals > 0 { "." } else { "" };
    format!("{sign}{whole}{point}{part} {}", currency.to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_point_stands_where_the_currency_has_it() {
        for (minor, currency, expected) in [
            (1_234, "eur", "12.34 EUR"),
            (5, "usd", "0.05 USD"),
            (-250, "usd", "-2.50 USD"),
            (1_234, "jpy", "1234 JPY"),
            (1_234, "kwd", "1.234 KWD"),
            (0, "jpy", "0 JPY"),
        ] {
            assert_eq!(amount(minor, currency), expected);
        }
    }
}
