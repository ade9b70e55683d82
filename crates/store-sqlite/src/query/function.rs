//! Functions that a query calls instead of SQLite's own of the same name. SQLite checks a query's
//! time only between the steps of its program, and one call of its own functions, with long
//! operands, may take hours: they compare everything with everything. These are bounded.

use std::borrow::Cow;
use std::collections::HashSet;

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error, Result, ffi};
use windlass_core::glob::Pattern;

use super::guard::VALUE_BYTES_MAX;

/// Comparisons of one call; far more than a sensible pattern takes on the longest value.
const COMPARISONS_MAX: u64 = 50_000_000;
/// Longest pattern of LIKE and GLOB.
const PATTERN_BYTES_MAX: usize = 10_000;

pub(super) fn replace_slow(conn: &Connection) -> Result<()> {
    let add = |name: &str, operands: i32, call: fn(&Operands<'_>) -> Result<Value>| {
        let pure = FunctionFlags::SQLITE_UTF8
            | FunctionFlags::SQLITE_DETERMINISTIC
            | FunctionFlags::SQLITE_INNOCUOUS;
        conn.create_scalar_function(name, operands, pure, move |context| {
            let operands = Operands(context);
            // All of these functions are NULL if one of their first two operands is.
            if operands.is_null(0) || operands.is_null(1) {
                return Ok(Value::Null);
            }
            call(&operands)
        })
    };
    add("like", 2, |of| like(of, None))?;
    add("like", 3, |of| match of.is_null(2) {
        true => Ok(Value::Null),
        false => like(of, Some(escape(&of.text(2))?)),
    })?;
    add("glob", 2, |of| matches(&of.pattern()?, of.text(1).chars(), Pattern::new))?;
    add("instr", 2, instr)?;
    add("replace", 3, replace)?;
    add("trim", 2, |of| trimmed(of, |text, is_one| text.trim_matches(is_one)))?;
    add("ltrim", 2, |of| trimmed(of, |text, is_one| text.trim_start_matches(is_one)))?;
    add("rtrim", 2, |of| trimmed(of, |text, is_one| text.trim_end_matches(is_one)))?;
    add("unhex", 2, |_| Err(refused("unhex has one operand in a query")))
}

struct Operands<'a>(&'a Context<'a>);

impl Operands<'_> {
    fn is_null(&self, index: usize) -> bool {
        self.0.get_raw(index) == ValueRef::Null
    }

    fn text(&self, index: usize) -> Cow<'_, str> {
        match self.0.get_raw(index) {
            ValueRef::Null => "".into(),
            ValueRef::Integer(number) => number.to_string().into(),
            ValueRef::Real(number) => format!("{number:?}").into(),
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes),
        }
    }

    /// The first operand of LIKE and GLOB.
    fn pattern(&self) -> Result<Cow<'_, str>> {
        let pattern = self.text(0);
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(refused("LIKE or GLOB pattern too complex"));
        }
        Ok(pattern)
    }
}

fn escape(text: &str) -> Result<char> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(escape), None) => Ok(escape),
        _ => Err(refused("ESCAPE expression must be a single character")),
    }
}

fn like(of: &Operands<'_>, escape: Option<char>) -> Result<Value> {
    let text = of.text(1);
    let lower = text.chars().map(|c| c.to_ascii_lowercase());
    matches(&of.pattern()?, lower, |pattern| Pattern::of_like(pattern, escape))
}

fn matches(
    pattern: &str,
    text: impl Iterator<Item = char> + Clone,
    parse: impl Fn(&str) -> Pattern,
) -> Result<Value> {
    let matched = parse(pattern).matches_within(text, COMPARISONS_MAX);
    let matched = matched.ok_or_else(|| refused("LIKE or GLOB takes too many comparisons"))?;
    Ok(Value::Integer(i64::from(matched)))
}

/// The position counts bytes if both are blobs, and characters otherwise. Searching in a text is
/// linear in its length.
fn instr(of: &Operands<'_>) -> Result<Value> {
    if let (ValueRef::Blob(whole), ValueRef::Blob(part)) = (of.0.get_raw(0), of.0.get_raw(1)) {
        if whole.len() as u64 * part.len() as u64 > COMPARISONS_MAX {
            return Err(refused("instr has shorter blobs in a query"));
        }
        let found = match part {
            [] => Some(0),
            part => whole.windows(part.len()).position(|window| window == part),
        };
        return Ok(Value::Integer(found.map_or(0, |at| at as i64 + 1)));
    }
    let (whole, part) = (of.text(0), of.text(1));
    let found = whole.find(part.as_ref());
    Ok(Value::Integer(found.map_or(0, |at| whole[..at].chars().count() as i64 + 1)))
}

fn replace(of: &Operands<'_>) -> Result<Value> {
    let (text, from, to) = (of.text(0), of.text(1), of.text(2));
    if from.is_empty() {
        return Ok(Value::Text(text.into_owned()));
    }
    if of.is_null(2) {
        return Ok(Value::Null);
    }
    let found = text.matches(from.as_ref()).count();
    let bytes = text.len() - found * from.len() + found.saturating_mul(to.len());
    if bytes > VALUE_BYTES_MAX as usize {
        return Err(Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_TOOBIG), None));
    }
    Ok(Value::Text(text.replace(from.as_ref(), &to)))
}

fn trimmed(
    of: &Operands<'_>,
    trim: for<'t> fn(&'t str, &dyn Fn(char) -> bool) -> &'t str,
) -> Result<Value> {
    let (text, set) = (of.text(0), of.text(1));
    let set: HashSet<char> = set.chars().collect();
    Ok(Value::Text(trim(&text, &|c| set.contains(&c)).to_owned()))
}

fn refused(words: &str) -> Error {
    Error::UserFunctionError(words.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sql: &str) {
        let value = |conn: &Connection| {
            conn.query_row(&format!("SELECT {sql}"), [], |row| row.get::<_, Value>(0)).unwrap()
        };
        let [theirs, ours] = [(); 2].map(|()| Connection::open_in_memory().unwrap());
        replace_slow(&ours).unwrap();
        assert_eq!(value(&ours), value(&theirs), "{sql}");
    }

    #[test]
    fn the_answers_are_those_of_sqlite() {
        let operands = ["'abcäbc'", "'b'", "'ä'", "''", "NULL", "12", "1.5", "x'6263'", "'%B_'"];
        for (left, right) in operands.iter().flat_map(|left| operands.map(|right| (left, right))) {
            for call in ["instr", "like", "glob", "trim", "ltrim", "rtrim"] {
                check(&format!("{call}({left}, {right})"));
            }
            for third in operands {
                check(&format!("replace({left}, {right}, {third})"));
            }
        }
        check("'a%b' LIKE 'a!%B' ESCAPE '!'");
        check("x'00ff00' LIKE '%'");
        check("instr(x'0102ff', x'ff')");
        check("trim('  a ')");
    }
}
