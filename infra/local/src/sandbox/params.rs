//! Parameters as Stripe reads them: an unknown one is refused, never ignored.

use super::error::ApiError;
use super::wire::Request;

/// What an endpoint takes.
pub(super) struct Accepts {
    /// Whole names, `created[gt]` among them.
    pub(super) plain: &'static [&'static str],
    /// Lists: `expand[]`, `expand[0]`.
    pub(super) lists: &'static [&'static str],
    /// Maps with free keys: `metadata[order]`.
    pub(super) maps: &'static [&'static str],
}

/// Query and form together, as Stripe merges them.
pub(super) struct Params<'a> {
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Params<'a> {
    /// Refuses a name that the endpoint does not take.
    pub(super) fn read(request: &'a Request, accepts: &Accepts) -> Result<Self, ApiError> {
        let pairs: Vec<_> =
            request.query.iter().chain(&request.form).map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let mut unknown: Vec<&str> = Vec::new();
        for &(name, value) in &pairs {
            let (base, key) = match name.split_once('[') {
                Some((base, rest)) => (base, rest.strip_suffix(']')),
                None => (name, None),
            };
            if accepts.plain.contains(&name) {
                continue;
            }
            match key {
                Some(key) if accepts.lists.contains(&base) && key.bytes().all(|b| b.is_ascii_digit()) => {}
                Some(key) if accepts.maps.contains(&base) && !key.is_empty() => {}
                None if accepts.lists.contains(&name) => {
                    return Err(ApiError::invalid(400, "Invalid array").param(name));
                }
                // `metadata=` unsets the whole map.
                None if accepts.maps.contains(&name) && value.is_empty() => {}
                None if accepts.maps.contains(&name) => {
                    return Err(ApiError::invalid(400, "Invalid hash").param(name));
                }
                Some(_) | None => {
                    if !unknown.contains(&name) {
                        unknown.push(name);
                    }
                }
            }
        }
        let Some(first) = unknown.first() else { return Ok(Self { pairs }) };
        let plural = if unknown.len() > 1 { "s" } else { "" };
        let message = format!("Received unknown parameter{plural}: {}", unknown.join(", "));
        Err(ApiError::invalid(400, message).code("parameter_unknown").param(first))
    }

    /// Whether the name was sent at all, with or without a value.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.pairs.iter().any(|(given, _)| *given == name)
    }

    /// The last value of that name; an empty one is refused.
    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        let value = self.pairs.iter().rev().find(|(given, _)| *given == name).map(|(_, value)| *value);
        if value == Some("") {
            let message = format!(
                "You passed an empty string for '{name}'. We assume empty values are an attempt to unset a parameter; \
                 however '{name}' cannot be unset. You should remove '{name}' from your request or supply a non-empty \
                 value."
            );
            return Err(ApiError::invalid(400, message).code("parameter_invalid_empty").param(name));
        }
        Ok(value)
    }

    /// As [`text`](Self::text), and required.
    pub(super) fn required(&self, name: &str) -> Result<&'a str, ApiError> {
        self.text(name)?.ok_or_else(|| {
            ApiError::invalid(400, format!("Missing required param: {name}.")).code("parameter_missing").param(name)
        })
    }

    /// A whole number.
    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(invalid_integer(format!("Invalid integer: {text}"), name)),
        }
    }

    /// A whole number from `least` to `most`.
    pub(super) fn integer_within(&self, name: &str, least: i64, most: i64) -> Result<Option<i64>, ApiError> {
        let number = self.integer(name)?;
        match number {
            Some(n) if n < least => {
                Err(invalid_integer(format!("This value must be greater than or equal to {least}."), name))
            }
            Some(n) if n > most => Err(invalid_integer(
                format!("This value must be less than or equal to {most} (it currently is '{n}')."),
                name,
            )),
            Some(_) | None => Ok(number),
        }
    }

    /// `true` or `false`.
    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.text(name)? {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => Err(ApiError::invalid(400, format!("Invalid boolean: {other}")).param(name)),
        }
    }

    /// One of a closed set.
    pub(super) fn choice(&self, name: &str, known: &[&str]) -> Result<Option<&'a str>, ApiError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        if known.contains(&text) {
            return Ok(Some(text));
        }
        let list = match known {
            [all @ .., last] => format!("{}, or {last}", all.join(", ")),
            [] => String::new(),
        };
        Err(ApiError::invalid(400, format!("Invalid {name}: must be one of {list}")).param(name))
    }

    /// The values of a list, in order.
    pub(super) fn list(&self, name: &str) -> Vec<&'a str> {
        self.entries(name).map(|(_, value)| value).collect()
    }

    /// The pairs of a map, in order; an empty value unsets its key.
    pub(super) fn entries(&self, name: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.pairs.iter().filter_map(move |(given, value)| {
            let key = given.strip_prefix(name)?.strip_prefix('[')?.strip_suffix(']')?;
            Some((key, *value))
        })
    }
}

fn invalid_integer(message: String, name: &str) -> ApiError {
    ApiError::invalid(400, message).code("parameter_invalid_integer").param(name)
}
