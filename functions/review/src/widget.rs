//! A dashboard's payload: the members of a request at its top, and beside them `widgetContext`, which CloudWatch adds.
//!
//! Nothing in the context is trusted. Of it are read the theme and the width, which only change how a page looks, and the forms'
//! fields that belong to the action: a person's filter, note and name, and never which finding, which revision or which decision.
//! Members that nobody here knows are passed over, for AWS may add some.

use serde_json::{Map, Value};

use crate::request::RequestError;

/// Narrower than this, in pixels, a row of the list is a block.
const NARROW: u64 = 700;

/// What a form may say, by action. Text, as forms send it.
const LIST_FIELDS: [&str; 5] = ["kind", "state", "min_age_hours", "payment", "sort"];
const DECIDE_FIELDS: [&str; 2] = ["note", "by"];

/// How a page is to look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The console's dark theme.
    pub dark: bool,
    /// The widget is narrow.
    pub narrow: bool,
    /// The list's filter as the form has it, to be carried on: names and texts.
    pub filter: Vec<(&'static str, String)>,
    /// Whether it is a page behind the first.
    pub behind: bool,
}

impl Page {
    /// The filter's text of this name, or an empty one.
    pub fn filter(&self, name: &str) -> &str {
        self.filter.iter().find(|(of, _)| *of == name).map_or("", |(_, text)| text)
    }
}

/// Whether the console asks for the widget's documentation.
pub fn describes(payload: &Value) -> bool {
    payload["describe"] == true
}

/// The page that a dashboard wants; `None` where it is not a dashboard that asks. A context that makes no sense gives a light and
/// wide one, on which the refusal can be read.
pub fn page(payload: &Value) -> Option<Page> {
    let context = payload.get("widgetContext")?;
    let text = |name: &'static str| {
        let field = context.pointer("/forms/all").and_then(|fields| fields.get(name));
        let text = match field.or_else(|| payload.get(name))? {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
        };
        (!text.trim().is_empty()).then_some((name, text))
    };
    Some(Page {
        dark: context["theme"] == "dark",
        narrow: context["width"].as_u64().is_some_and(|width| width < NARROW),
        filter: LIST_FIELDS.into_iter().filter_map(text).collect(),
        behind: payload.get("after").is_some(),
    })
}

/// The request of a payload: the payload itself, or what a dashboard's members and forms come to. A dashboard that says no action
/// lists.
pub fn request(payload: &Value) -> Result<Value, RequestError> {
    let Some(context) = payload.get("widgetContext") else { return Ok(payload.clone()) };
    let mut members = payload.as_object().cloned().unwrap_or_default();
    members.remove("widgetContext");
    let action = members.entry("action").or_insert_with(|| "list".into()).clone();
    let of_action: &[&str] = match action.as_str() {
        Some("list") => &LIST_FIELDS,
        Some("decide") if members.get("decision").is_some_and(|decision| decision == "snooze") => {
            &["note", "by", "days"]
        }
        Some("decide") => &DECIDE_FIELDS,
        _ => &[],
    };
    let context = context.as_object().ok_or_else(|| wrong("widgetContext has to be an object"))?;
    for (name, text) in fields(context)? {
        if let Some(name) = of_action.iter().find(|of| *of == name) {
            members.remove(*name);
            if let Some(value) = value(name, text)? {
                members.insert((*name).to_owned(), value);
            }
        }
    }
    Ok(Value::Object(members))
}

/// The forms' fields, whatever their names.
fn fields(context: &Map<String, Value>) -> Result<impl Iterator<Item = (&String, &Value)>, RequestError> {
    let object = |value: &Value, name: &str| match value {
        Value::Null | Value::Object(_) => Ok(()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(wrong(format!("widgetContext's {name} has to be an object")))
        }
    };
    let forms = context.get("forms").unwrap_or(&Value::Null);
    object(forms, "forms")?;
    let all = forms.get("all").unwrap_or(&Value::Null);
    object(all, "forms.all")?;
    Ok(all.as_object().into_iter().flatten())
}

/// What a form's text means as a request's member; none where it was left blank.
fn value(name: &str, text: &Value) -> Result<Option<Value>, RequestError> {
    let text = text.as_str().ok_or_else(|| wrong(format!("the form's {name} has to be a text")))?.trim();
    Ok(match name {
        _ if text.is_empty() => None,
        "min_age_hours" | "days" => Some(
            text.parse::<i64>()
                .map_err(|error| wrong(format!("the form's {name} has to be a number: {error}")))?
                .into(),
        ),
        _ => Some(text.into()),
    })
}

fn wrong(why: impl Into<String>) -> RequestError {
    RequestError(why.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::Request;

    fn context(forms: &Value) -> Value {
        json!({"dashboardName": "d", "theme": "dark", "width": 480, "forms": {"all": forms}, "a_new_member": [1]})
    }

    #[test]
    fn a_forms_fields_are_the_actions_and_its_numbers_are_numbers() {
        let forms = json!({"kind": "missed_success", "min_age_hours": " 24 ", "payment": "", "note": "n", "other": 7});
        let read = request(&json!({"payment": "o_1", "after": "0.1.2", "widgetContext": context(&forms)})).unwrap();
        assert_eq!(
            read,
            json!({"action": "list", "kind": "missed_success", "min_age_hours": 24, "after": "0.1.2"}),
            "a person who empties the field wants all payments"
        );
        let page = page(&json!({"after": "0.1.2", "widgetContext": context(&forms)})).unwrap();
        assert!(page.dark && page.narrow && page.behind);
        assert_eq!((page.filter("kind"), page.filter("payment")), ("missed_success", ""));

        let shown = request(&json!({"action": "show", "finding": 7, "widgetContext": context(&forms)})).unwrap();
        assert_eq!(shown, json!({"action": "show", "finding": 7}));
    }

    #[test]
    fn a_context_cannot_say_what_is_decided() {
        let forms = json!({"note": "because", "by": "me", "days": "7", "finding": "9", "revision": "9", "decision": "apply",
            "transition": "reverse_paid", "action": "digest", "job": "j"});
        let payload = json!({"action": "decide", "decision": "accept", "finding": 1, "revision": 2, "widgetContext": context(&forms)});
        let read = request(&payload).unwrap();
        assert_eq!(
            read,
            json!({"action": "decide", "decision": "accept", "finding": 1, "revision": 2, "note": "because", "by": "me"})
        );
        assert!(Request::parse(&read).is_ok());
        let snoozed = json!({"action": "decide", "decision": "snooze", "widgetContext": context(&forms)});
        assert_eq!(request(&snoozed).unwrap()["days"], 7);
    }

    #[test]
    fn a_context_of_another_shape_is_refused_by_name() {
        for (context, words) in [
            (json!("light"), "widgetContext has to be"),
            (json!([]), "widgetContext has to be"),
            (json!({"forms": 1}), "forms has to be"),
            (json!({"forms": {"all": ["kind"]}}), "forms.all has to be"),
            (json!({"forms": {"all": {"kind": {"$ne": 1}}}}), "the form's kind has to be a text"),
            (json!({"forms": {"all": {"min_age_hours": "1 or 1=1"}}}), "the form's min_age_hours has to be a number"),
        ] {
            let payload = json!({"widgetContext": context});
            let error = request(&payload).unwrap_err().to_string();
            assert!(error.contains(words), "{payload}: {error}");
            assert!(page(&payload).is_some_and(|page| !page.dark && !page.narrow), "{payload}");
        }
        assert_eq!(request(&json!({"widgetContext": {}})), Ok(json!({"action": "list"})));
        assert_eq!(request(&json!("a text")), Ok(json!("a text")), "which the request's reader refuses");
    }

    #[test]
    fn only_the_word_true_describes() {
        assert!(describes(&json!({"describe": true})));
        assert!(!describes(&json!({"describe": "true"})) && !describes(&json!([])));
    }
}
