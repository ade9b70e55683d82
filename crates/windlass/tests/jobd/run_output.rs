//! What jobs write, and that every row can hold it: sections 5 and 9 of the contract.

use serde_json::{Value, json};

use crate::harness::{Conf, Daemon, Home, Row};

fn ran(home: &Home, worker: &Daemon, script: &str) -> (u64, Row) {
    let id = home.waiting("low", script);
    worker.client().ok("poll", Value::Null);
    (id, home.done(id))
}

fn with(change: impl Fn(Conf) -> Conf) -> (Home, Daemon) {
    let home = Home::new();
    let worker = home.worker(&change(home.conf()));
    (home, worker)
}

#[test]
fn the_limit_of_output_limits_each_stream_and_the_row_says_so() {
    let (home, worker) = with(|conf| conf.set("max_output_buffer", 1000));
    let script = "head -c 300000 /dev/zero | tr '\\0' a; head -c 2000 /dev/zero | tr '\\0' b >&2";
    let (_, row) = ran(&home, &worker, script);
    assert_eq!(row.result.as_deref(), Some("ok"));
    for (text, letter, written) in
        [(row.stdout.unwrap(), 'a', 300_000), (row.stderr.unwrap(), 'b', 2000)]
    {
        assert!(text.starts_with(&letter.to_string().repeat(1000)), "{text:.80}");
        assert!(!text.contains(&letter.to_string().repeat(1001)));
        assert!(text.len() < 1300, "{}", text.len());
        let note: String = text.chars().skip_while(|c| *c == letter).collect();
        let number: String = note.chars().filter(char::is_ascii_digit).collect();
        assert!(number.contains(&(written - 1000).to_string()), "how much is left out: {note}");
    }
}

#[test]
fn output_within_the_limit_is_whole_and_nothing_is_added() {
    let (home, worker) = with(|conf| conf.set("max_output_buffer", 1000));
    let (_, row) = ran(&home, &worker, "head -c 1000 /dev/zero | tr '\\0' a");
    assert_eq!(row.stdout, Some("a".repeat(1000)));
    assert_eq!(row.stderr.as_deref(), Some(""));
}

#[test]
fn the_limit_holds_for_the_answer_of_a_manual_job_too() {
    let (home, worker) = with(|conf| conf.set("max_output_buffer", 1000));
    let id = home.manual("low", "head -c 300000 /dev/zero | tr '\\0' a");
    let told = worker.client().ask("run-manual", json!({"ids": [id]}));
    let text = told["jobs"][id.to_string()]["stdout"].as_str().unwrap().to_owned();
    assert!(text.starts_with(&"a".repeat(1000)) && text.len() < 1300, "{}", text.len());
}

#[test]
fn bytes_that_are_no_text_are_replaced() {
    let (home, worker) = with(|conf| conf);
    let (_, row) = ran(&home, &worker, r"printf 'a\377b\303(c\n'");
    assert_eq!(row.stdout.as_deref(), Some("a\u{fffd}b\u{fffd}(c\n"));
}

#[test]
fn zero_bytes_are_kept() {
    let (home, worker) = with(|conf| conf);
    let (id, _) = ran(&home, &worker, r"printf 'a\000b'");
    let told = home.base.sql(&format!("SELECT HEX(stdout) FROM jobs WHERE id = {id}"));
    assert_eq!(told.trim(), "610062");
}

#[test]
fn a_character_that_comes_in_pieces_is_whole() {
    let (home, worker) = with(|conf| conf);
    let gate = home.gated("half");
    let script = format!("printf '\\303'\n{gate}\nprintf '\\244'");
    let id = home.waiting("low", &script);
    worker.client().ok("poll", Value::Null);
    home.began("half");
    home.open("half");
    assert_eq!(home.done(id).stdout.as_deref(), Some("ä"));
}

#[test]
fn four_byte_characters_fit_the_tables_three_byte_columns() {
    let (home, worker) = with(|conf| conf);
    let (_, row) = ran(&home, &worker, "printf 'é€ before 😀 after'");
    assert_eq!((row.status.as_str(), row.result.as_deref()), ("done", Some("ok")));
    let text = row.stdout.unwrap();
    assert!(text.starts_with("é€ before ") && text.contains(" after"), "{text}");
}

#[test]
fn four_byte_characters_are_whole_where_the_table_can_hold_them() {
    let home = Home::new();
    home.base.sql("ALTER TABLE jobs CONVERT TO CHARACTER SET utf8mb4");
    let worker = home.worker(&home.conf());
    let (_, row) = ran(&home, &worker, "printf '😀'");
    assert_eq!(row.stdout.as_deref(), Some("😀"));
}

#[test]
fn a_table_of_latin_letters_takes_every_output() {
    let home = Home::new();
    home.base.sql("ALTER TABLE jobs CONVERT TO CHARACTER SET latin1");
    let worker = home.worker(&home.conf());
    let (_, row) = ran(&home, &worker, "printf 'é漢😀 end'");
    assert_eq!((row.status.as_str(), row.result.as_deref()), ("done", Some("ok")));
    let text = row.stdout.unwrap();
    assert!(text.starts_with('é') && text.contains(" end"), "{text}");
}

/// 40 MB in both streams; the server accepts 16 MB in one statement.
#[test]
fn output_above_what_the_server_takes_at_once_is_cut_and_the_row_says_so() {
    let (home, worker) = with(|conf| conf.set("max_output_buffer", 40_000_000));
    let flood = "head -c 20000000 /dev/zero | tr '\\0'";
    let id = home.waiting("low", &format!("{flood} a; {flood} b >&2"));
    worker.client().ok("poll", Value::Null);
    home.reaches(id, "done");
    let told = home.base.sql(&format!(
        "SELECT result, LENGTH(stdout) > 1000000, LENGTH(stdout) < 16777216, \
         RIGHT(stdout, 1) <> 'a', LENGTH(stderr) > 1000000, RIGHT(stderr, 1) <> 'b' \
         FROM jobs WHERE id = {id}"
    ));
    assert_eq!(told.trim(), "ok\t1\t1\t1\t1\t1");
}

#[test]
fn a_column_of_64_kilobytes_takes_its_share() {
    let home = Home::new();
    home.base.sql("ALTER TABLE jobs MODIFY stdout text, MODIFY stderr varchar(100)");
    let worker = home.worker(&home.conf());
    let flood = "head -c 200000 /dev/zero | tr '\\0'";
    let (_, row) = ran(&home, &worker, &format!("{flood} a; {flood} b >&2"));
    assert_eq!(row.result.as_deref(), Some("ok"));
    assert!(row.stdout.unwrap().starts_with(&"a".repeat(60_000)));
    assert!(row.stderr.unwrap().starts_with('b'));
}

#[test]
fn many_jobs_with_much_output_all_end() {
    let (home, worker) = with(|conf| conf.targets(&[("low", "8")]));
    home.many("low", 40, "head -c 1000000 /dev/zero | tr '\\0' a");
    worker.client().ok("poll", Value::Null);
    crate::harness::until("all end", || home.base.count("done") == 40);
    let whole = "SELECT COUNT(*) FROM jobs WHERE LENGTH(stdout) = 1000000 AND result = 'ok'";
    assert_eq!(home.base.number(whole), 40);
}
