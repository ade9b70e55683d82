//! Plans of queries: by id and by name they use keys and indexes.

use windlass_core::name::Tenant;

use crate::open::{self, Options};

use super::view::{self, RecordedWrites};

fn plan(sql: &str) -> String {
    let directory = tempfile::TempDir::new().unwrap();
    let options = Options::new(directory.path().join("plan.db"));
    let _writer = open::writer(&options).unwrap();
    let conn = open::query(&options).unwrap();
    view::make(&conn, &Tenant::new("acme").unwrap(), "inner", &RecordedWrites::default()).unwrap();
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let steps = statement.raw_query().mapped(|row| row.get::<_, String>(3));
    steps.collect::<Result<Vec<_>, _>>().unwrap().join("\n")
}

#[track_caller]
fn check(sql: &str, uses: &[&str]) {
    let plan = plan(sql);
    for used in uses {
        assert!(plan.contains(used), "{sql}\n{plan}");
    }
    for wasteful in ["SCAN", "MATERIALIZE", "CO-ROUTINE"] {
        assert!(!plan.contains(wasteful), "{sql}\n{plan}");
    }
}

const BY_ID: &str = "SEARCH j USING INTEGER PRIMARY KEY (rowid=?)";
const BY_NAME: &[&str] = &["(tenant=? AND name=?)", "SEARCH j USING INDEX job_by_type (type_id=?)"];

#[test]
fn jobs_are_found_by_their_id() {
    check("SELECT * FROM jobs WHERE jobID = 5", &[BY_ID]);
    check("SELECT data FROM jobs WHERE jobID IN (5, 6)", &[BY_ID]);
    check("SELECT COUNT(*) FROM jobs WHERE jobID = 5 AND state = 'QUEUED'", &[BY_ID]);
}

#[test]
fn jobs_are_found_by_their_name() {
    check("SELECT * FROM jobs WHERE name = 'x'", BY_NAME);
    check("SELECT jobID FROM jobs WHERE name IN ('x', 'y') AND state = 'FAILED'", BY_NAME);
}

#[test]
fn the_jobs_of_a_tenant_are_found_without_those_of_others() {
    check("SELECT jobID FROM jobs", &["(tenant=?)", "job_by_type (type_id=?)"]);
}
