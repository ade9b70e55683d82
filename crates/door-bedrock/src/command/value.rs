//! Validation of headers that several commands share, with their error replies.

use windlass_core::calendar::Modifiers;
use windlass_core::repeat::Repeat;
use windlass_core::{JobId, Priority, TypeName};

use crate::number::leading_integer;
use crate::wire::Request;

use super::Refusal;

/// Maximum length of a job's name, and of a list of names or a pattern.
const NAME_BYTES_MAX: usize = 255;
const NAMES_BYTES_MAX: usize = 12_750;
/// Largest data of an update.
const DATA_BYTES_MAX: usize = 1_048_576;
const PRIORITIES: [i64; 6] = [0, 250, 500, 750, 850, 1000];

/// A header that is not empty.
pub(super) fn filled<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    request.header(name).filter(|value| !value.is_empty())
}

pub(super) fn job_id(request: &Request) -> Result<JobId, Refusal> {
    let text = filled(request, "jobID").ok_or((402, "Missing jobID"))?;
    let number = canonical(text).ok_or((402, "Malformed jobID"))?;
    // Any other number is valid, but belongs to no job.
    JobId::new(number).ok_or_else(|| (404, "No job with this jobID").into())
}

/// A number in canonical form.
fn canonical(text: &str) -> Option<i64> {
    text.parse().ok().filter(|number: &i64| number.to_string() == text)
}

/// The name of a job that is created or renamed.
pub(super) fn type_name(text: &str) -> Result<TypeName, Refusal> {
    if text.is_empty() {
        return Err((402, "Missing name").into());
    }
    if text.len() > NAME_BYTES_MAX {
        return Err((402, "Malformed name").into());
    }
    TypeName::new(text).map_err(|_| (402, "Malformed name").into())
}

/// A pattern or a list of names.
pub(super) fn names(request: &Request) -> Result<&str, Refusal> {
    let names = filled(request, "name").ok_or((402, "Missing name"))?;
    if names.len() > NAMES_BYTES_MAX {
        return Err((402, "Malformed name").into());
    }
    Ok(names)
}

pub(super) fn update_data(request: &Request) -> Result<&str, Refusal> {
    let data = filled(request, "data").ok_or((402, "Missing data"))?;
    if data.len() > DATA_BYTES_MAX {
        return Err((402, "Malformed data").into());
    }
    Ok(data)
}

pub(super) fn priority(text: &str) -> Result<Priority, Refusal> {
    let number = leading_integer(text);
    let known = Some(number).filter(|number| PRIORITIES.contains(number));
    known.and_then(|n| Priority::new(n).ok()).ok_or_else(|| (402, "Invalid priority value").into())
}

pub(super) fn job_priority(request: &Request) -> Result<Option<Priority>, Refusal> {
    request.header("jobPriority").map(priority).transpose()
}

/// An empty text means no repeat.
pub(super) fn repeat(text: &str) -> Result<Option<Repeat>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    Repeat::parse_bedrock(text).map(Some).map_err(|_| (402, "Malformed repeat").into())
}

pub(super) fn retry_after(text: &str) -> Result<Option<Modifiers>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    Modifiers::parse("retryAfter", text).map(Some).map_err(|_| (402, "Malformed retryAfter").into())
}

/// `true` in any case, or a number that is not 0.
pub(super) fn test(request: &Request, name: &str) -> bool {
    let value = request.header(name).unwrap_or_default();
    value.eq_ignore_ascii_case("true") || leading_integer(value) != 0
}

/// The items of a comma list.
pub(super) fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(|item| item.trim_start_matches(' ')).filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_form_of_a_number_is_an_id() {
        for text in ["1a", "01", "+1", "", " 1", "1 ", "9223372036854775808", "-0"] {
            assert_eq!(canonical(text), None, "{text}");
        }
        assert_eq!(canonical("9223372036854775807"), Some(i64::MAX));
    }

    #[test]
    fn lists_lose_leading_spaces_and_empty_items() {
        assert_eq!(list("a,  b ,,c").collect::<Vec<_>>(), ["a", "b ", "c"]);
        assert_eq!(list(" , ").count(), 0);
    }

    #[test]
    fn six_priorities_are_known() {
        for text in ["0", "250", "500", "750", "850", "1000"] {
            assert!(priority(text).is_ok(), "{text}");
        }
        for text in ["1", "-1", "501", "1001"] {
            assert_eq!(priority(text), Err((402, "Invalid priority value").into()), "{text}");
        }
    }
}
