//! The statements, in the dialect of the database. Numbers are part of the text; texts are
//! parameters, except for our own.

use std::fmt::Write as _;
use std::time::Duration;

use super::super::session::Dialect;
use super::super::{Origin, Owner};

/// Maximum length of an owner's name in its column.
const OWNER_CHARS_MAX: usize = 255;

/// The tables and the dialect.
pub(super) struct Names {
    pub dialect: Dialect,
    /// Quoted.
    pub table: String,
    pub marks: String,
    /// Unquoted.
    pub schema: Option<String>,
    pub bare: String,
}

impl Names {
    /// `table` may be `schema.table` and already quoted: the original inserts it into its SQL
    /// unchanged.
    pub(super) fn new(table: &str, dialect: Dialect) -> Self {
        let parts: Vec<&str> = table.split('.').map(|part| part.trim_matches(['`', '"'])).collect();
        let (bare, schema) = match parts.split_last() {
            Some((bare, schema)) => (*bare, schema.join(".")),
            None => (table, String::new()),
        };
        let schema = Some(schema).filter(|schema| !schema.is_empty());
        let q = dialect.quote;
        let quoted = |name: &str| {
            let name = name.replace(q, &format!("{q}{q}"));
            match &schema {
                Some(schema) => format!("{q}{schema}{q}.{q}{name}{q}"),
                None => format!("{q}{name}{q}"),
            }
        };
        let (table, marks) = (quoted(bare), quoted(&format!("{bare}_windlass")));
        Self { dialect, table, marks, bare: bare.to_owned(), schema }
    }

    fn text(&self, column: &str) -> String {
        self.dialect.as_text.replace("{}", column)
    }

    /// Fails if a column is missing.
    pub(super) fn probe(&self) -> String {
        format!(
            "SELECT id, target, status, result, return_code, sig, stdout, stderr, time_started, \
             time_finished FROM {} WHERE 1 = 0",
            self.table
        )
    }

    /// Fail if rights on the marks are missing; change nothing.
    pub(super) fn probe_marks(&self) -> [String; 3] {
        let (marks, columns) = (&self.marks, "id, owner, boot, lease_until, was");
        [
            format!("INSERT INTO {marks} ({columns}) SELECT {columns} FROM {marks} WHERE 1 = 0"),
            format!("UPDATE {marks} SET owner = owner WHERE 1 = 0"),
            format!("DELETE FROM {marks} WHERE 1 = 0"),
        ]
    }

    pub(super) fn make_marks(&self) -> String {
        let Dialect { number, name, .. } = self.dialect;
        format!(
            "CREATE TABLE IF NOT EXISTS {} (id {number} NOT NULL PRIMARY KEY, \
             owner {name} NOT NULL, boot {number} NOT NULL, lease_until {number} NOT NULL, \
             was {name} NOT NULL)",
            self.marks
        )
    }

    /// Waiting rows of this many targets. Each target is looked up separately, so that an index on
    /// status, target and id is read in order. The values are, for each target, its name and the
    /// last id.
    pub(super) fn waiting(&self, targets: usize, limit: usize) -> String {
        let one = format!(
            "SELECT id FROM (SELECT id FROM {} WHERE status = 'waiting' AND target = ? AND id > ? \
             ORDER BY id LIMIT {limit}) AS part",
            self.table
        );
        let all = vec![one; targets].join(" UNION ALL ");
        format!("{all} ORDER BY id LIMIT {limit}")
    }

    pub(super) fn lock_rows(&self, ids: &[u64], lock: &str) -> String {
        let (status, target) = (self.text("status"), self.text("target"));
        let (table, ids) = (&self.table, list(ids));
        format!(
            "SELECT id, {status}, {target}, time_finished FROM {table} WHERE id IN ({ids}) \
             ORDER BY id{lock}"
        )
    }

    pub(super) fn existing(&self, ids: &[u64]) -> String {
        format!("SELECT id FROM {} WHERE id IN ({})", self.table, list(ids))
    }

    pub(super) fn update(&self, ids: &[u64], set: &str) -> String {
        format!("UPDATE {} SET {set} WHERE id IN ({})", self.table, list(ids))
    }

    /// With placeholders for the ids.
    pub(super) fn update_by_placeholders(&self, ids: usize, set: &str) -> String {
        let placeholders = vec!["?"; ids].join(", ");
        format!("UPDATE {} SET {set} WHERE id IN ({placeholders})", self.table)
    }

    pub(super) fn our_marks(&self, ids: &[u64], owner: &Owner) -> String {
        let (marks, lock) = (&self.marks, self.dialect.lock);
        let (boot, ids) = (owner.boot, list(ids));
        format!("SELECT id FROM {marks} WHERE id IN ({ids}) AND boot = {boot} ORDER BY id{lock}")
    }

    pub(super) fn mark(
        &self,
        ids: &[u64],
        owner: &Owner,
        origin: Origin,
        lease: Duration,
    ) -> String {
        let (name, boot, was) = (literal(&owner.name), owner.boot, origin.status());
        let until = self.until(lease);
        let mut rows = String::new();
        for id in ids {
            let comma = if rows.is_empty() { "" } else { ", " };
            let _ = write!(rows, "{comma}({id}, {name}, {boot}, {until}, '{was}')");
        }
        let or_replace = self.dialect.or_replace;
        format!(
            "INSERT INTO {} (id, owner, boot, lease_until, was) VALUES {rows} {or_replace}",
            self.marks
        )
    }

    pub(super) fn unmark(&self, ids: &[u64]) -> String {
        format!("DELETE FROM {} WHERE id IN ({})", self.marks, list(ids))
    }

    pub(super) fn renew(&self, ids: &[u64], owner: &Owner, lease: Duration) -> String {
        format!(
            "UPDATE {} SET lease_until = {} WHERE id IN ({}) AND boot = {}",
            self.marks,
            self.until(lease),
            list(ids),
            owner.boot
        )
    }

    /// Without locks.
    pub(super) fn run_out(&self, limit: usize) -> String {
        let (marks, now) = (&self.marks, self.dialect.now);
        format!("SELECT id, boot FROM {marks} WHERE lease_until <= {now} ORDER BY id LIMIT {limit}")
    }

    pub(super) fn lock_run_out(&self, ids: &[u64]) -> String {
        let Dialect { now, lock, .. } = self.dialect;
        let (marks, ids) = (&self.marks, list(ids));
        format!(
            "SELECT id, was FROM {marks} WHERE id IN ({ids}) AND lease_until <= {now} \
             ORDER BY id{lock}"
        )
    }

    fn until(&self, lease: Duration) -> String {
        format!("{} + {}", self.dialect.now, lease.as_millis())
    }
}

fn list(ids: &[u64]) -> String {
    let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
    ids.join(", ")
}

/// Quotes a text of ours; special characters are replaced.
fn literal(name: &str) -> String {
    let plain = |c: char| if c == '\'' || c == '\\' || c.is_control() { '_' } else { c };
    let name: String = name.chars().take(OWNER_CHARS_MAX).map(plain).collect();
    format!("'{name}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_once_and_schemas_are_kept() {
        let dialect = Dialect {
            quote: '`',
            lock: "",
            now: "0",
            as_text: "{}",
            or_replace: "",
            number: "INT",
            name: "TEXT",
        };
        let names = |table: &str| {
            let names = Names::new(table, dialect);
            (names.table, names.marks)
        };
        assert_eq!(names("jobs"), ("`jobs`".into(), "`jobs_windlass`".into()));
        assert_eq!(names("`jobs`"), ("`jobs`".into(), "`jobs_windlass`".into()));
        assert_eq!(names("shop.jobs"), ("`shop`.`jobs`".into(), "`shop`.`jobs_windlass`".into()));
    }

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        assert_eq!(literal("o'neill\\"), "'o_neill_'");
        assert_eq!(literal(&"x".repeat(300)).len(), OWNER_CHARS_MAX + 2);
    }
}
