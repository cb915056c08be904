//! The settings of the reverse scan.

use super::{ConfigError, Lookup, malformed, number, text};

/// How the reverse scan goes about it, and which objects of the account are ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReverseSettings {
    /// `REVERSE_WINDOW_DAYS`: how far back the first window begins.
    pub window: time::Duration,
    /// `REVERSE_PAGES`: pages in one tick.
    pub pages: u32,
    /// `REVERSE_METADATA_KEY`: an object is ours when it has one of these; any object is where there is none.
    pub markers: Vec<Marker>,
    /// `REVERSE_CURRENCY`: an object is ours when it is in one of these, as Stripe writes them; any is where there is none.
    pub currencies: Vec<String>,
    /// `STRIPE_LIVEMODE`, if it is set: what every object's livemode has to be.
    pub livemode: Option<bool>,
    /// `MATCH_METADATA_KEY`: under which key an object's metadata names the payment, by the view's `match_key`.
    pub match_key: Option<String>,
}

/// A key of the metadata that marks our own objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The key.
    pub key: String,
    /// What it has to say, where that matters.
    pub value: Option<String>,
}

impl ReverseSettings {
    /// Reads the settings named at the fields.
    pub fn from_lookup(lookup: Lookup<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            window: time::Duration::days(number(lookup, "REVERSE_WINDOW_DAYS", 7, 1, 3_650)?),
            pages: number(lookup, "REVERSE_PAGES", 5, 1, 1_000)?,
            markers: markers(lookup)?,
            currencies: currencies(lookup)?,
            livemode: livemode(lookup)?,
            match_key: text(lookup, "MATCH_METADATA_KEY"),
        })
    }
}

fn markers(lookup: Lookup<'_>) -> Result<Vec<Marker>, ConfigError> {
    let Some(listed) = text(lookup, "REVERSE_METADATA_KEY") else { return Ok(Vec::new()) };
    let marker = |entry: &str| {
        let (key, value) = entry.split_once('=').map_or((entry, None), |(key, value)| (key, Some(value)));
        Marker { key: key.trim().to_owned(), value: value.map(|value| value.trim().to_owned()) }
    };
    let markers: Vec<Marker> = listed.split(',').map(marker).collect();
    if markers.iter().any(|marker| marker.key.is_empty()) {
        return Err(malformed(
            "REVERSE_METADATA_KEY",
            &listed,
            "keys of the metadata, key or key=value, with commas between",
        ));
    }
    Ok(markers)
}

fn currencies(lookup: Lookup<'_>) -> Result<Vec<String>, ConfigError> {
    let Some(listed) = text(lookup, "REVERSE_CURRENCY") else { return Ok(Vec::new()) };
    let currencies: Vec<String> = listed.split(',').map(|code| code.trim().to_ascii_lowercase()).collect();
    if currencies.iter().any(|code| code.len() != 3 || !code.bytes().all(|byte| byte.is_ascii_lowercase())) {
        return Err(malformed("REVERSE_CURRENCY", &listed, "ISO codes such as eur, with commas between"));
    }
    Ok(currencies)
}

fn livemode(lookup: Lookup<'_>) -> Result<Option<bool>, ConfigError> {
    text(lookup, "STRIPE_LIVEMODE")
        .map(|value| value.parse().map_err(|_no_bool| malformed("STRIPE_LIVEMODE", &value, "true or false")))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(key: &str, value: &str) -> Result<ReverseSettings, ConfigError> {
        ReverseSettings::from_lookup(&|asked| (asked == key).then(|| value.to_owned()))
    }

    #[test]
    fn the_defaults_are_the_documented_ones() {
        let settings = with("", "").unwrap();
        assert_eq!((settings.window, settings.pages), (time::Duration::days(7), 5));
        assert_eq!((settings.markers.len(), settings.currencies.len()), (0, 0));
        assert_eq!((settings.livemode, settings.match_key), (None, None));
    }

    #[test]
    fn lists_have_commas_between() {
        let markers = with("REVERSE_METADATA_KEY", "shop, app = checkout").unwrap().markers;
        let marker = |key: &str, value: Option<&str>| Marker { key: key.into(), value: value.map(str::to_owned) };
        assert_eq!(markers, [marker("shop", None), marker("app", Some("checkout"))]);
        assert_eq!(with("REVERSE_CURRENCY", "EUR, usd").unwrap().currencies, ["eur", "usd"]);
        for (key, value) in [
            ("REVERSE_METADATA_KEY", "shop,"),
            ("REVERSE_METADATA_KEY", "=x"),
            ("REVERSE_CURRENCY", "euro"),
            ("REVERSE_PAGES", "0"),
            ("REVERSE_WINDOW_DAYS", "0"),
            ("STRIPE_LIVEMODE", "yes"),
        ] {
            assert!(with(key, value).unwrap_err().to_string().contains(key), "{key} = {value}");
        }
    }
}
