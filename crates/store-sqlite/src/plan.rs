//! Query plans of the statements whose cost must not grow with the number of waiting jobs: each
//! walks a key or an index in order, none scans a table or sorts.

use rusqlite::Connection;

use crate::open::{self, Options};
use crate::{
    audit, change, claim, edit, family, housekeeping, queue, read, search, take, tx, type_row,
    waiting,
};

fn plan(conn: &Connection, sql: &str) -> String {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let steps = statement.raw_query().mapped(|row| row.get::<_, String>(3));
    steps.collect::<Result<Vec<_>, _>>().unwrap().join("\n")
}

fn check(sql: &str, uses: &str) {
    let directory = tempfile::TempDir::new().unwrap();
    let conn = open::writer(&Options::new(directory.path().join("plan.db"))).unwrap();
    let plan = plan(&conn, sql);
    assert!(plan.contains(uses), "{sql}\n{plan}");
    assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{sql}\n{plan}");
}

#[test]
fn s2_11_a_claim_walks_the_clustered_key_of_what_is_ready() {
    check(claim::FRONT, "ready USING PRIMARY KEY (type_id=? AND rank>?)");
    check(
        claim::TAKE_FRONT,
        "ready USING PRIMARY KEY (type_id=? AND rank>? AND (rank,run_at,tie,id)<(?,?,?,?))",
    );
    check(claim::JOB, "job USING INTEGER PRIMARY KEY (rowid=?)");
}

#[test]
fn s2_11_a_promotion_walks_the_clustered_key_of_what_is_deferred() {
    check(queue::DUE, "deferred USING PRIMARY KEY (run_at<?)");
    check(queue::REMOVE_DUE, "deferred USING PRIMARY KEY ((run_at,id)<(?,?))");
}

#[test]
fn a_take_walks_the_fronts_of_all_queues_and_then_the_queues() {
    check(
        search::FRONTS,
        "type_head (tenant=? AND (head_rank,head_run_at,head_tie,name)>(?,?,?,?))",
    );
    check(search::NAMED_FROM, "(tenant=? AND name>?)");
    let place = "USING PRIMARY KEY (type_id=? AND (rank,run_at,tie,id)>(?,?,?,?))";
    check(search::NEXT, &format!("r {place}"));
    check(search::NEXT_HIDDEN, &format!("r {place}"));
    for index in [
        "type_head (tenant=? AND (head_rank,head_run_at,head_tie,name)>(?,?,?,?))",
        "type_hidden (tenant=? AND (hidden_rank,hidden_run_at,hidden_tie,name)>(?,?,?,?))",
    ] {
        check(search::FRONTS_AND_HIDDEN, index);
    }
    check(tx::FRONT, "ready USING PRIMARY KEY (type_id=?)");
    check(tx::SET_HIDDEN_FRONT, "ready_hidden USING PRIMARY KEY (type_id=?)");
    check(queue::REMOVE_READY, "(type_id=? AND rank=? AND run_at=? AND tie=? AND id=?)");
    check(edit::FULL, "j USING INTEGER PRIMARY KEY (rowid=?)");
    check(edit::FULL, "t USING INTEGER PRIMARY KEY (rowid=?)");
}

#[test]
fn families_are_found_by_their_parent() {
    check(family::NEXT_STATE, "COVERING INDEX aside_by_parent (parent_id=? AND state>?)");
    check(edit::CHILDREN, "COVERING INDEX aside_by_parent (parent_id=? AND state=?)");
    check(family::HAS_CHILDREN, "COVERING INDEX aside_by_parent (parent_id=?)");
    check(take::ENDED_CHILDREN, "INDEX aside_by_parent (parent_id=? AND state=?)");
}

#[test]
fn the_only_one_of_a_type_is_found_by_indexes_of_those_that_count() {
    check(edit::FIRST, "job_by_type (type_id=? AND state=?)");
    check(edit::FIRST_CHILD, "COVERING INDEX aside_by_type (type_id=? AND hidden=? AND state=?)");
    check(edit::FIRST_HIDDEN, "COVERING INDEX aside_by_type (type_id=? AND hidden=? AND state=?)");
    check(edit::FIRST_HIDDEN_CHILD, "aside_by_type (type_id=? AND hidden=? AND state=?)");
}

#[test]
fn housekeeping_walks_indexes_of_what_is_due_to_go() {
    check(housekeeping::EXPIRED, "job_expiry");
    check(housekeeping::QUEUED_OLDEST, "job_by_type (type_id=? AND state=? AND id>?)");
    check(housekeeping::OUTDATED, "job_purge");
    check(housekeeping::ORPHANED, "piece_waiting_since (put_at<?)");
    check(read::LEASES_EXPIRED, "lease_expiry");
    check(read::NEXT_HOLDER, "lease_on_beat (owner>?)");
    check(read::HELD, "lease_on_beat (owner=?)");
    check(claim::LEASES_ON_BEAT, "lease_on_beat (owner=? AND id>?)");
}

#[test]
fn the_audit_is_listed_and_purged_by_its_indexes() {
    check(audit::LIST, "audit USING PRIMARY KEY (at>? AND (at,id)<(?,?))");
    check(audit::LIST_OF_TENANT, "audit_by_tenant (tenant=? AND at>? AND (at,id)<(?,?))");
    check(audit::LIST_OF_KEY, "audit_by_key (key_id=? AND at>? AND (at,id)<(?,?))");
    check(audit::OLDEST, "audit USING PRIMARY KEY (at<?)");
}

#[test]
fn lists_walk_the_index_by_type_and_state() {
    check(read::NEWEST_BEFORE, "COVERING INDEX job_by_type (type_id=? AND state=? AND id<?)");
    check(change::OLDEST, "COVERING INDEX job_by_type (type_id=? AND state=?)");
}

#[test]
fn s2_14_types_at_rest_are_not_looked_at() {
    check(waiting::CHANGED, "type USING COVERING INDEX type_changed (handled=? AND rev>?)");
    check(waiting::OPEN_BY_ID, "type USING INTEGER PRIMARY KEY (rowid=?)");
    check(waiting::NEXT_TENANT, "type USING COVERING INDEX type_open (handled=? AND tenant>?)");
    check(waiting::NEXT_OF, "type USING INDEX type_open (handled=? AND tenant=? AND name>?)");
    check(waiting::NAMED, "(tenant=? AND name=?)");
    check(waiting::HANDLED, "(tenant=? AND name=?)");
    check(waiting::LIMITED, "type USING INDEX type_limited (tenant=?)");
    check(waiting::OPEN_FROM, "COVERING INDEX type_open (handled=? AND tenant=? AND name>?)");
    let directory = tempfile::TempDir::new().unwrap();
    let conn = open::writer(&Options::new(directory.path().join("plan.db"))).unwrap();
    assert_eq!(plan(&conn, type_row::STATS_OF_ALL), "SCAN type USING INDEX type_shown");
}

#[test]
fn the_numbers_of_one_tenant_do_not_look_at_others() {
    check(type_row::STATS, "(tenant=?)");
}
