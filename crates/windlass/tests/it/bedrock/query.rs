//! Query over Bedrock: SQL on `jobs`, in three forms, for one tenant, and nothing else.

use std::thread;

use serde_json::{Value, json};

use crate::harness::{Config, Door, JobId, Link, python};

const COLUMNS: &str =
    "created|jobID|state|name|nextRun|lastRun|repeat|data|priority|parentJobID|retryAfter";
const BAD: &str = "402 Bad query";

#[track_caller]
fn list(door: &Door, query: &str) -> String {
    door.call("Query", &[("query", query)]).ok().text()
}

/// A forbidden statement: any refusal will do.
#[track_caller]
fn refused(door: &Door, query: &str) -> String {
    let reply = door.call("Query", &[("query", query)]);
    let known = ["402 Bad query", "502 Query failed", "502 Query aborted", "555 Timeout"];
    assert!(known.contains(&reply.line.as_str()), "{query}: {} {}", reply.line, reply.text());
    reply.line
}

#[track_caller]
fn count(door: &Door) -> Value {
    door.value("(SELECT COUNT(*) FROM jobs)")
}

#[test]
fn the_statement_is_in_the_method_line_or_in_a_header() {
    let door = Door::embedded();
    let wanted = "one|two\n1|x\n";
    assert_eq!(list(&door, "SELECT 1 AS one, 'x' AS two;"), wanted);
    let reply = door.call("Query: SELECT 1 AS one, 'x' AS two;", &[]).ok();
    assert_eq!(reply.text(), wanted);
    let reply = door.call("query: SELECT 1 AS one, 'x' AS two;", &[]).ok();
    assert_eq!(reply.text(), wanted);
}

#[test]
fn the_list_form_has_a_row_of_names() {
    let door = Door::embedded();
    assert_eq!(list(&door, "SELECT 1 AS a, 'x' AS b, NULL AS c;"), "a|b|c\n1|x|\n");
    assert_eq!(list(&door, "SELECT 'a/b' AS s, 1.5 AS r;"), "s|r\na/b|1.5\n");
}

#[test]
fn the_json_form_of_the_shell_keeps_the_order_of_columns() {
    let door = Door::embedded();
    let json =
        |query: &str| door.call("Query", &[("query", query), ("ReadDBFlags", "-json")]).ok().text();
    assert_eq!(json("SELECT 1 AS a, 'x' AS b, NULL AS c;"), "[{\"a\":1,\"b\":\"x\",\"c\":null}]\n");
    assert_eq!(json("SELECT 'a/b' AS z, 2 AS a;"), "[{\"z\":\"a/b\",\"a\":2}]\n");
    assert_eq!(json("SELECT 1 AS a WHERE 1 = 0;"), "", "nothing when there are no rows");
    let rows = json("SELECT 1 AS a UNION ALL SELECT 2;");
    assert_eq!(serde_json::from_str::<Value>(&rows).unwrap(), json!([{"a": 1}, {"a": 2}]));
}

#[test]
fn the_other_json_form_has_names_and_rows() {
    let door = Door::embedded();
    let json =
        |query: &str| door.call("Query", &[("query", query), ("Format", "json")]).ok().text();
    assert_eq!(
        json("SELECT 1 AS a, 'x' AS b UNION ALL SELECT 2, 'y';"),
        "{\"headers\":[\"a\",\"b\"],\"rows\":[[1,\"x\"],[2,\"y\"]]}"
    );
    let id = door.create(&[("name", "n"), ("data", "{\"v\":1}")]);
    let seen: Value = serde_json::from_str(&json("SELECT jobID, name, data FROM jobs;")).unwrap();
    assert_eq!(seen["rows"], json!([[id, "n", {"v": 1}]]));
}

#[test]
fn all_columns_come_in_their_order() {
    let door = Door::embedded();
    let id = door.create(&[("name", "n"), ("firstRun", "2031-01-01 00:00:00")]);
    let created = door.row(id)["created"].as_str().unwrap().to_owned();
    let row = format!("{created}|{id}|QUEUED|n|2031-01-01 00:00:00|||{{}}|500|0|");
    assert_eq!(list(&door, "SELECT * FROM jobs;"), format!("{COLUMNS}\n{row}\n"));
}

#[test]
fn any_column_can_be_selected_and_searched() {
    let door = Door::embedded();
    let a = door.create(&[("name", "www/a"), ("data", "{\"x\":1}"), ("jobPriority", "1000")]);
    let b = door.create(&[("name", "www/b"), ("data", "{\"x\":2}"), ("repeat", "HOURLY")]);
    let c = door.create(&[("name", "c"), ("retryAfter", "+1 HOUR"), ("firstRun", "2031-01-01")]);
    let parent = door.named("p");
    door.take(parent, "p");
    let child = door.child(parent, "child");
    let cases: [(String, Vec<JobId>); 14] = [
        (format!("jobID = {a}"), vec![a]),
        (format!("jobID IN ({a}, {c})"), vec![a, c]),
        ("name = 'www/b'".into(), vec![b]),
        ("name GLOB 'www/*'".into(), vec![a, b]),
        ("name LIKE 'WWW/%'".into(), vec![a, b]),
        ("state = 'RUNNING'".into(), vec![parent]),
        ("state IN ('RUNNING', 'PAUSED')".into(), vec![parent, child]),
        ("priority > 500".into(), vec![a]),
        ("JSON_EXTRACT(data, '$.x') = 2".into(), vec![b]),
        ("repeat != ''".into(), vec![b]),
        ("retryAfter = '+1 HOUR'".into(), vec![c]),
        (format!("parentJobID = {parent}"), vec![child]),
        ("nextRun > DATETIME('now', '+1 HOUR')".into(), vec![c]),
        ("lastRun IS NOT NULL AND created <= DATETIME('now')".into(), vec![parent]),
    ];
    for (condition, mut wanted) in cases {
        let rows = door.sql(&format!("SELECT jobID FROM jobs WHERE {condition};"));
        let mut seen: Vec<JobId> = rows.iter().map(|row| row["jobID"].as_i64().unwrap()).collect();
        seen.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(seen, wanted, "{condition}");
    }
}

#[test]
fn rows_can_be_counted_grouped_and_ordered() {
    let door = Door::embedded();
    for name in ["b", "a", "b", "c"] {
        door.named(name);
    }
    assert_eq!(count(&door), 4);
    assert_eq!(list(&door, "SELECT COUNT(*) AS n FROM jobs WHERE name = 'b';"), "n\n2\n");
    assert_eq!(list(&door, "SELECT DISTINCT name FROM jobs ORDER BY name;"), "name\na\nb\nc\n");
    let grouped = "SELECT name, COUNT(*) AS n FROM jobs GROUP BY name HAVING n > 1;";
    assert_eq!(list(&door, grouped), "name|n\nb|2\n");
    let limited = "SELECT name FROM jobs ORDER BY name DESC LIMIT 1;";
    assert_eq!(list(&door, limited), "name\nc\n");
    let joined = "SELECT COUNT(*) AS n FROM jobs a JOIN jobs b ON a.name = b.name;";
    assert_eq!(list(&door, joined), "n\n6\n");
    let with = "WITH x AS (SELECT name FROM jobs) SELECT COUNT(*) AS n FROM x;";
    assert_eq!(list(&door, with), "n\n4\n");
}

#[test]
fn a_statement_ends_with_a_semicolon() {
    let door = Door::embedded();
    for query in ["SELECT 1", "SELECT 1; --", "UPDATE jobs SET name = 'x' WHERE 1"] {
        let reply = door.call("Query", &[("query", query)]);
        assert_eq!(reply.line, "502 Query Missing Semicolon", "{query}");
    }
}

#[test]
fn a_statement_is_needed_and_has_up_to_a_mebibyte() {
    let door = Door::embedded();
    assert_eq!(door.call("Query", &[]).line, "402 Missing query");
    assert_eq!(door.call("Query", &[("query", "")]).line, "402 Missing query");
    let of_size = |bytes: usize| format!("SELECT '{}' AS x;", "a".repeat(bytes - 15));
    let too_large = of_size(1_048_577);
    assert_eq!(door.call("Query", &[("query", &too_large)]).line, "402 Missing query");
    let largest = of_size(1_048_576);
    assert_eq!(list(&door, &largest).len(), 2 + 1_048_561 + 1);
}

#[test]
fn wrong_sql_is_a_bad_query_that_says_where() {
    let door = Door::embedded();
    let bad = [
        "SELEC 1;",
        "SELECT nosuch FROM jobs;",
        "SELECT * FROM nosuch;",
        "SELECT FROM WHERE;",
        "SELECT nosuch(1);",
    ];
    for query in bad {
        let reply = door.call("Query", &[("query", query)]);
        assert_eq!(reply.line, BAD, "{query}");
        assert!(reply.header("error").is_some_and(|error| !error.is_empty()), "{reply:?}");
        assert!(!reply.body.is_empty(), "{query}");
    }
    let body = door.call("Query", &[("query", "SELEC 1;")]).text();
    assert!(body.contains("syntax error") && body.contains('^'), "{body}");
    assert_eq!(body.trim_end_matches('\n').lines().count(), 3, "{body}");
}

#[test]
fn writes_without_a_condition_are_aborted() {
    let door = Door::embedded();
    let id = door.named("n");
    for query in ["UPDATE jobs SET name = 'x';", "DELETE FROM jobs;", "delete from jobs;"] {
        let reply = door.call("Query", &[("query", query)]);
        assert_eq!(reply.line, "502 Query aborted", "{query}");
    }
    assert_eq!(door.job(id)["name"], "n");
    let all = "UPDATE jobs SET name = 'x';";
    for no in ["false", ""] {
        let reply = door.call("Query", &[("query", all), ("nowhere", no)]);
        assert_eq!(reply.line, "502 Query aborted", "{no:?}");
    }
    door.call("Query", &[("query", all), ("nowhere", "true")]).done();
    assert_eq!(door.job(id)["name"], "x");
    door.call("Query", &[("query", "DELETE FROM jobs;"), ("nowhere", "true")]).done();
    assert_eq!(count(&door), 0);
}

#[test]
fn columns_are_updated_and_the_queue_follows() {
    let door = Door::embedded();
    let id = door.named("n");
    door.set(id, "nextRun = '2999-01-01 00:00:00'");
    door.no_job("n");
    door.set(id, "nextRun = '2024-01-01 00:00:00', name = 'm', priority = 1000");
    door.no_job("n");
    let job = door.take(id, "m");
    assert_eq!((&job["priority"], &job["nextRun"]), (&json!(1000), &json!("2024-01-01 00:00:00")));
    door.set(id, "state = 'QUEUED', data = '{\"a\":1}', repeat = 'HOURLY', lastRun = NULL");
    let job = door.take(id, "m");
    assert_eq!((&job["data"], &job["repeat"]), (&json!({"a": 1}), &json!("HOURLY")));
    assert_eq!(job["lastRun"], "");
    door.set(id, "state = 'FAILED'");
    door.about("FinishJob", id).fails("405 Can only retry/finish RUNNING and RUNQUEUED jobs");
    door.set(id, "retryAfter = '+1 HOUR', created = '2024-02-03 04:05:06'");
    let row = door.row(id);
    assert_eq!((&row["state"], &row["retryAfter"]), (&json!("FAILED"), &json!("+1 HOUR")));
    assert_eq!(row["created"], "2024-02-03 04:05:06");
}

#[test]
fn an_update_reaches_every_row_of_its_condition() {
    let door = Door::embedded();
    for n in 0..20 {
        door.create(&[("name", "n"), ("data", &format!("{{\"n\":{n}}}"))]);
    }
    let query = "UPDATE jobs SET state = 'FAILED', data = JSON_SET(data, '$.why', 'x') \
                 WHERE JSON_EXTRACT(data, '$.n') < 5;";
    door.call("Query", &[("query", query)]).done();
    let failed = "(SELECT COUNT(*) FROM jobs WHERE state = 'FAILED' \
                  AND JSON_EXTRACT(data, '$.why') = 'x')";
    assert_eq!(door.value(failed), 5);
    assert_eq!(door.get_jobs("n", 100).len(), 15);
}

#[test]
fn rows_are_deleted() {
    let door = Door::embedded();
    let (a, b) = (door.named("a"), door.named("b"));
    door.call("Query", &[("query", "DELETE FROM jobs WHERE name = 'a';")]).done();
    door.assert_gone(a);
    door.no_job("a");
    door.take(b, "b");
    let query = format!("DELETE FROM jobs WHERE jobID = {b};");
    door.call("Query", &[("query", &query)]).done();
    door.about("FinishJob", b).fails("404 No job with this jobID");
}

/// Ids belong to the store, so a given one is refused.
#[test]
fn rows_are_inserted_with_their_id_in_a_header() {
    let door = Door::embedded();
    let query = "INSERT INTO jobs (created, state, name, nextRun, repeat, data) VALUES \
                 ('2024-01-01 00:00:00', 'QUEUED', 'n', '2024-01-02 00:00:00', '', '{\"a\":1}');";
    let reply = door.call("Query", &[("query", query)]).ok();
    assert_eq!(reply.text(), "");
    let id: JobId = reply.header("lastInsertRowID").unwrap().parse().unwrap();
    let row = door.row(id);
    assert_eq!((&row["priority"], &row["parentJobID"]), (&json!(500), &json!(0)));
    assert_eq!((&row["created"], &row["retryAfter"]), (&json!("2024-01-01 00:00:00"), &json!("")));
    let job = door.take(id, "n");
    assert_eq!((&job["data"], &job["nextRun"]), (&json!({"a": 1}), &json!("2024-01-02 00:00:00")));
    let given =
        query.replace("(created,", "(jobID, created,").replace("('2024-01-01", "(7, '2024-01-01");
    assert_eq!(door.call("Query", &[("query", &given)]).line, "502 Query failed");
    door.assert_gone(7);
}

#[test]
fn a_write_that_fails_changes_nothing() {
    let door = Door::embedded();
    let id = door.named("n");
    let before = door.row(id);
    let bad = [
        format!("UPDATE jobs SET name = NULL WHERE jobID = {id};"),
        format!("UPDATE jobs SET state = NULL, name = 'x' WHERE jobID = {id};"),
        format!(
            "INSERT INTO jobs (created, jobID, state, name, nextRun, repeat, data) VALUES \
             ('2024-01-01', {id}, 'QUEUED', 'n', '2024-01-01', '', '{{}}');"
        ),
    ];
    for query in bad {
        assert_eq!(door.call("Query", &[("query", &query)]).line, "502 Query failed", "{query}");
    }
    refused(&door, &format!("UPDATE jobs SET state = 'DREAMING', name = 'x' WHERE jobID = {id};"));
    refused(&door, &format!("UPDATE jobs SET nosuch = 1 WHERE jobID = {id};"));
    refused(&door, &format!("UPDATE jobs SET = 1 WHERE jobID = {id};"));
    assert_eq!(door.row(id), before);
    assert_eq!(count(&door), 1);
}

#[test]
fn jobs_of_other_tenants_are_not_there() {
    let door = Door::embedded();
    let own = door.named("n");
    let other = door.tenant("other");
    let ids = other.add("n", &["a", "b", "c"]);
    other.until_count("n", "queued", 3);
    assert_eq!(count(&door), 1);
    assert!(door.sql(&format!("SELECT * FROM jobs WHERE jobID = {};", ids[0])).is_empty());
    for query in ["UPDATE jobs SET name = 'x', priority = 0;", "UPDATE jobs SET state = 'FAILED';"]
    {
        door.call("Query", &[("query", query), ("nowhere", "true")]).done();
    }
    let query = format!("UPDATE jobs SET name = 'x' WHERE jobID = {};", ids[0]);
    door.call("Query", &[("query", &query)]);
    let query = format!("DELETE FROM jobs WHERE jobID = {};", ids[0]);
    door.call("Query", &[("query", &query)]);
    door.call("Query", &[("query", "DELETE FROM jobs;"), ("nowhere", "true")]).done();
    door.assert_gone(own);
    for job in other.until_count("n", "queued", 3) {
        assert_eq!((&job["type"], &job["priority"]), (&json!("n"), &json!(500)));
    }
    for id in ids {
        for verb in ["QueryJob", "DeleteJob", "FailJob", "FinishJob", "RetryJob", "CancelJob"] {
            door.call(verb, &[("jobID", &id)]).fails("404 No job with this jobID");
        }
        door.call("RequeueJobs", &[("jobIDs", &id), ("name", "x")]).done();
        door.call("CreateJob", &[("name", "c"), ("parentJobID", &id)])
            .fails("404 parentJobID does not exist");
    }
    door.no_job("*");
    assert_eq!(other.list("type=n&state=queued").len(), 3);
}

#[test]
fn the_door_belongs_to_the_tenant_that_is_configured() {
    let door = Door::start_with(Config::embedded().set("bedrock.tenant", "\"acme\""));
    let id = door.named("n");
    assert_eq!(door.tenant("acme").job(&id.to_string())["type"], "n");
    door.tenant("default").get(&format!("jobs/{id}")).expect(404);
    assert_eq!(count(&door), 1);
}

/// Whatever tables the store has, none can be read or written.
#[test]
fn no_other_table_can_be_reached() {
    let door = Door::embedded();
    door.named("n");
    door.tenant("other").add_one("secret", "payload");
    let names = python(
        "import sqlite3, sys\n\
         store = sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True)\n\
         for (name,) in store.execute('SELECT name FROM sqlite_master'): print(name)\n",
        &[door.home().store().to_str().unwrap()],
    );
    let mut names: Vec<&str> = names.lines().filter(|name| *name != "jobs").collect();
    assert!(!names.is_empty());
    names.extend(["sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_sequence"]);
    names.extend(["sqlite_temp_schema", "sqlite_stat1", "dbstat", "sqlite_dbpage"]);
    for name in names {
        for table in [format!("\"{name}\""), format!("main.\"{name}\""), format!("temp.\"{name}\"")]
        {
            refused(&door, &format!("SELECT * FROM {table};"));
            refused(&door, &format!("SELECT COUNT(*) FROM {table};"));
            refused(&door, &format!("DELETE FROM {table} WHERE 1 = 1;"));
            refused(&door, &format!("SELECT (SELECT 1 FROM {table}) FROM jobs;"));
            let update = format!("UPDATE jobs SET name = (SELECT 1 FROM {table}) WHERE 1 = 1;");
            refused(&door, &update);
        }
    }
    assert_eq!(count(&door), 1);
    assert_eq!(door.tenant("other").list("type=secret").len(), 1);
}

#[test]
fn nothing_but_reads_and_writes_of_jobs_is_done() {
    let door = Door::embedded();
    let id = door.named("n");
    let attach = door.home().path("stolen.db");
    let bad = [
        format!("ATTACH DATABASE '{}' AS stolen;", attach.display()),
        format!("VACUUM INTO '{}';", attach.display()),
        "PRAGMA table_info(jobs);".into(),
        "PRAGMA journal_mode = DELETE;".into(),
        "PRAGMA writable_schema = 1;".into(),
        "SELECT * FROM pragma_table_list;".into(),
        "SELECT * FROM pragma_database_list;".into(),
        "SELECT * FROM pragma_table_info('jobs');".into(),
        "CREATE TABLE stolen (x);".into(),
        "CREATE TEMP TABLE stolen (x);".into(),
        "CREATE TEMP TRIGGER t AFTER UPDATE ON jobs BEGIN SELECT 1; END;".into(),
        "CREATE VIEW stolen AS SELECT 1;".into(),
        "CREATE INDEX i ON jobs (name);".into(),
        "DROP TABLE jobs;".into(),
        "DROP VIEW jobs;".into(),
        "ALTER TABLE jobs ADD COLUMN x;".into(),
        "REINDEX;".into(),
        "ANALYZE;".into(),
        "BEGIN;".into(),
        "BEGIN EXCLUSIVE;".into(),
        "COMMIT;".into(),
        "ROLLBACK;".into(),
        "SAVEPOINT x;".into(),
        "DETACH DATABASE main;".into(),
        "SELECT load_extension('x');".into(),
        "SELECT readfile('/etc/passwd');".into(),
        format!("SELECT writefile('{}', 'x');", attach.display()),
    ];
    for query in bad {
        refused(&door, &query);
    }
    assert!(!attach.exists());
    assert_eq!(door.take(id, "n")["name"], "n");
    door.about("FinishJob", id).done();
}

#[test]
fn a_second_statement_behind_the_first_slips_past_no_rule() {
    let door = Door::embedded();
    let id = door.named("n");
    for second in ["DELETE FROM jobs;", "ATTACH DATABASE ':memory:' AS x;", "DROP VIEW jobs;"] {
        refused(&door, &format!("SELECT 1; {second}"));
        assert_eq!(count(&door), 1, "{second}");
    }
    let query = format!("SELECT 1; DELETE FROM jobs WHERE jobID = {id};");
    let done = door.call("Query", &[("query", &query)]).line == "200 OK";
    assert_eq!(count(&door), i32::from(!done), "either all of it or nothing");
}

/// It may work for a while, but it ends, and no other client waits for it.
#[test]
fn an_endless_statement_is_ended_and_others_go_on() {
    let door = Door::embedded();
    let parked = door.create(&[("name", "parked"), ("firstRun", "2999-01-01")]);
    let endless = [
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) \
         SELECT COUNT(*) AS n FROM c;",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c;",
        "SELECT LENGTH(HEX(ZEROBLOB(1000000000))) AS n;",
        "UPDATE jobs SET name = (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) \
         SELECT COUNT(*) FROM c) WHERE 1 = 1;",
        "DELETE FROM jobs WHERE 0 = (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 \
         FROM c) SELECT COUNT(*) FROM c);",
    ];
    let address = door.address;
    let clients: Vec<_> = endless
        .into_iter()
        .map(|query| {
            thread::spawn(move || {
                let mut link = Link::open(address).unwrap();
                let reply = link.call("Query", &[("query", query), ("timeout", "3000")]);
                assert_ne!(reply.line, "200 OK", "{query}");
            })
        })
        .collect();
    for _ in 0..20 {
        let id = door.named("n");
        door.take(id, "n");
        door.about("FinishJob", id).done();
    }
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(count(&door), 1);
    assert_eq!(door.job(parked)["name"], "parked");
}

#[test]
fn changes_made_by_query_are_seen_over_http() {
    let door = Door::embedded();
    let id = door.named("n");
    door.set(id, "name = 'm', priority = 750, data = '{\"a\":1}'");
    let tenant = door.tenant("default");
    let job = tenant.job(&id.to_string());
    assert_eq!((&job["type"], &job["priority"]), (&json!("m"), &json!(750)));
    let payload = tenant.get(&format!("jobs/{id}/payload")).expect(200).text();
    assert_eq!(payload, "{\"a\":1}");
    let taken = tenant.until_claimed("m", "60s");
    assert_eq!(taken["id"], id.to_string());
}

#[test]
fn texts_of_the_shells_json_are_escaped() {
    let door = Door::embedded();
    let query = "SELECT 'a\"b' || CHAR(10, 9, 13, 8, 12, 1) || '\\é€' AS x, 1.5 AS r, -3 AS n;";
    let rows = door.sql(query);
    let wanted = json!([{"x": "a\"b\n\t\r\u{8}\u{c}\u{1}\\é€", "r": 1.5, "n": -3}]);
    assert_eq!(json!(rows), wanted);
}
