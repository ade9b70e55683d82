//! The document in `balance`: groups of queues, how many tasks may run when, and whether all of it
//! is off for a while.

use mongodb::bson::{Bson, Document};

use super::schedule::Schedule;
use crate::doc::whole;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Names of queues.
    pub groups: Vec<Vec<String>>,
    pub schedule: Schedule,
    /// Seconds since 1970.
    pub disabled_until: Option<i64>,
}

impl Plan {
    /// The error is a complete sentence.
    pub(crate) fn read(document: &Document) -> Result<Self, String> {
        Ok(Self {
            groups: groups(present(document, "queues")?)?,
            schedule: schedule(present(document, "max_tasks")?)?,
            disabled_until: match document.get("disabled") {
                None | Some(Bson::Null | Bson::Undefined) => None,
                Some(value) => Some(whole(value).ok_or("'disabled' is not a time in seconds")?),
            },
        })
    }
}

fn present<'a>(document: &'a Document, key: &str) -> Result<&'a Bson, String> {
    let value = document.get(key).filter(|value| **value != Bson::Null);
    value.ok_or_else(|| format!("balance collection does not contain key '{key}'"))
}

fn groups(value: &Bson) -> Result<Vec<Vec<String>>, String> {
    const WRONG: &str = "balance collection value for 'queues' is not a list of lists of names";
    let name = |name: &Bson| name.as_str().map(str::to_owned);
    let group = |group: &Bson| group.as_array()?.iter().map(name).collect::<Option<Vec<_>>>();
    let groups = value.as_array().and_then(|all| all.iter().map(group).collect::<Option<Vec<_>>>());
    groups.ok_or_else(|| WRONG.to_owned())
}

fn schedule(value: &Bson) -> Result<Schedule, String> {
    const WRONG: &str = "balance collection value for 'max_tasks' is not an object of numbers";
    let entries = value.as_document().ok_or(WRONG)?;
    let number = |value: &Bson| whole(value).and_then(|number| u64::try_from(number).ok());
    let entries: Option<Vec<(&str, u64)>> =
        entries.iter().map(|(key, value)| Some((key.as_str(), number(value)?))).collect();
    Schedule::new(entries.ok_or(WRONG)?)
        .map_err(|key| format!("'{key}' in 'max_tasks' is not a day and a time such as '* 07:00'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;

    #[test]
    fn a_document_is_read() {
        let document = doc! {
            "queues": [["bulk"], ["api", "web"]], "disabled": 17.0, "status": "OK",
            "max_tasks": { "* 07:00": 1, "5 19:00": "5", "0 00:00": 3_i64 },
        };
        let plan = Plan::read(&document).unwrap();
        let entries = [("* 07:00", 1), ("5 19:00", 5), ("0 00:00", 3)];
        assert_eq!(plan.groups, [vec!["bulk"], vec!["api", "web"]]);
        assert_eq!(plan.schedule, Schedule::new(entries).unwrap());
        assert_eq!(plan.disabled_until, Some(17));
        let empty = Plan::read(&doc! { "queues": [], "max_tasks": {}, "disabled": null }).unwrap();
        assert_eq!(empty, Plan::default());
    }

    #[test]
    fn what_is_odd_is_told() {
        let with = |key: &str, value: Bson| {
            let mut document = doc! { "queues": [], "max_tasks": {} };
            document.insert(key, value);
            Plan::read(&document).unwrap_err()
        };
        let missing = "balance collection does not contain key 'queues'";
        assert_eq!(with("queues", Bson::Null), missing);
        assert_eq!(Plan::read(&doc! { "max_tasks": {} }).unwrap_err(), missing);
        for odd in [Bson::from(5), Bson::from(vec!["a"]), Bson::from(vec![Bson::from(vec![5])])] {
            assert!(with("queues", odd).ends_with("is not a list of lists of names"));
        }
        for odd in [
            Bson::from("x"),
            Bson::from(doc! { "* 07:00": -1 }),
            Bson::from(doc! { "* 07:00": 1.5 }),
        ] {
            assert!(with("max_tasks", odd).ends_with("is not an object of numbers"));
        }
        let key = with("max_tasks", Bson::from(doc! { "* 7:00": 1 }));
        assert_eq!(key, "'* 7:00' in 'max_tasks' is not a day and a time such as '* 07:00'");
        assert_eq!(with("disabled", Bson::from("x")), "'disabled' is not a time in seconds");
    }
}
