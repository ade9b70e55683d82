//! When a repeating job runs next: the bases, SQLite's date arithmetic, missed windows.

use serde_json::json;

use crate::harness::{Door, JobId, Random, sqlite, sqlite_text};

/// Creates a job, claims it, sets its last run and finishes it; returns its next run. Only the
/// embedded store lets a last run be set.
#[track_caller]
fn next_run(door: &Door, repeat: &str, first: &str, last: Option<&str>) -> String {
    let id = door.create(&[("name", "n"), ("repeat", repeat), ("firstRun", first)]);
    door.take(id, "n");
    if let Some(last) = last {
        door.set(id, &format!("lastRun = '{last}'"));
    }
    finished(door, id)
}

/// Finishes a running job; returns its next run. The job is deleted.
#[track_caller]
fn finished(door: &Door, id: JobId) -> String {
    door.about("FinishJob", id).done();
    let row = door.row(id);
    assert_eq!(row["state"], "QUEUED");
    door.about("DeleteJob", id).done();
    row["nextRun"].as_str().unwrap_or_else(|| panic!("no next run in {row}")).to_owned()
}

#[track_caller]
fn scheduled(door: &Door, modifiers: &str, first: &str) -> String {
    next_run(door, &format!("SCHEDULED, {modifiers}"), first, None)
}

/// SQLite's own answer: each modifier applies to the result of the previous one, in seconds.
fn in_steps(base: &str, modifiers: &[&str]) -> String {
    let mut expression = format!("'{base}'");
    for modifier in modifiers {
        expression = format!("DATETIME({expression}, '{modifier}')");
    }
    sqlite_text(&expression)
}

#[test]
fn the_three_bases_of_the_seed() {
    let door = Door::embedded();
    // Scheduled for 1:00 pm, started at 1:15 pm.
    let (one, quarter) = ("2024-05-06 13:00:00", "2024-05-06 13:15:00");
    assert_eq!(next_run(&door, "STARTED, +1 HOUR", one, Some(quarter)), "2024-05-06 14:15:00");
    // The time of the end is now.
    let before = sqlite_text("DATETIME('now', '+1 HOUR')");
    let next = next_run(&door, "FINISHED, +1 HOUR", one, Some(quarter));
    let after = sqlite_text("DATETIME('now', '+1 HOUR')");
    assert!(before <= next && next <= after, "{before} {next} {after}");
    // Scheduled in steps of a day, which are never made up for.
    assert_eq!(next_run(&door, "SCHEDULED, +1 DAY", one, Some(quarter)), "2024-05-07 13:00:00");
}

#[test]
fn scheduled_in_the_future_is_one_step_further() {
    let door = Door::start();
    let id = door.create(&[("name", "n"), ("repeat", "SCHEDULED, +1 HOUR")]);
    door.take(id, "n");
    door.set_next_run(id, "2999-05-06 13:00:00");
    assert_eq!(finished(&door, id), "2999-05-06 14:00:00");
}

#[test]
fn started_is_not_made_up_for() {
    let door = Door::embedded();
    let last = Some("2024-05-06 13:15:59");
    let next = next_run(&door, "STARTED, +10 MINUTES", "2024-01-01", last);
    assert_eq!(next, "2024-05-06 13:25:59", "also when it lies in the past");
}

#[test]
fn canned_words_are_from_the_end() {
    let door = Door::embedded();
    for (word, step) in [("HOURLY", "+1 HOUR"), ("daily", "+1 DAY"), ("Weekly", "+7 DAYS")] {
        let moment = format!("DATETIME('now', '{step}')");
        let before = sqlite_text(&moment);
        let next = next_run(&door, word, "2024-01-01", Some("2024-01-01 10:00:00"));
        let after = sqlite_text(&moment);
        assert!(before <= next && next <= after, "{word}: {before} {next} {after}");
    }
}

#[test]
fn days_months_and_years_are_added_as_sqlite_adds_them() {
    let door = Door::start();
    let cases = [
        ("+1 MONTH", "2024-01-31 10:00:00", "2024-03-02 10:00:00"),
        ("+1 MONTH", "2023-01-31 10:00:00", "2023-03-03 10:00:00"),
        ("+1 YEAR", "2024-02-29 10:00:00", "2025-03-01 10:00:00"),
        ("-1 MONTH", "2024-03-31 10:00:00", "2024-03-02 10:00:00"),
        ("+12 MONTHS", "2023-02-28 10:00:00", "2024-02-28 10:00:00"),
        ("+1 DAY", "2024-02-28 23:59:59", "2024-02-29 23:59:59"),
        ("+36 HOURS", "2024-02-28 13:00:00", "2024-03-01 01:00:00"),
        ("+999 MINUTES", "2023-12-31 23:00:00", "2024-01-01 15:39:00"),
        ("+86400 SECONDS", "2023-12-31 23:00:01", "2024-01-01 23:00:01"),
        ("+13 MONTHS", "2022-12-31 00:00:00", "2024-01-31 00:00:00"),
    ];
    for (modifier, base, wanted) in cases {
        assert_eq!(scheduled(&door, modifier, base), wanted, "{base} {modifier}");
    }
}

#[test]
fn starts_and_weekdays() {
    let door = Door::embedded();
    // A Wednesday.
    let base = "2024-05-15 13:14:15";
    let cases = [
        ("START OF HOUR", "2024-05-15 13:00:00"),
        ("START OF DAY", "2024-05-15 00:00:00"),
        ("START OF MONTH", "2024-05-01 00:00:00"),
        ("START OF YEAR", "2024-01-01 00:00:00"),
        ("WEEKDAY 3", "2024-05-15 13:14:15"),
        ("WEEKDAY 4", "2024-05-16 13:14:15"),
        ("WEEKDAY 2", "2024-05-21 13:14:15"),
        ("WEEKDAY 0", "2024-05-19 13:14:15"),
        ("+1 DAY, START OF DAY, +4 HOURS", "2024-05-16 04:00:00"),
        ("+1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS", "2024-05-20 06:00:00"),
        ("START OF MONTH, +1 MONTH, -1 DAY", "2024-05-31 00:00:00"),
        ("+1 HOUR, START OF HOUR", "2024-05-15 14:00:00"),
        ("+10 MINUTES, START OF HOUR, +5 MINUTES", "2024-05-15 13:05:00"),
    ];
    for (modifiers, wanted) in cases {
        assert_eq!(scheduled(&door, modifiers, base), wanted, "{modifiers}");
        let last = Some(base);
        let started = next_run(&door, &format!("STARTED, {modifiers}"), "2024-01-01", last);
        assert_eq!(started, wanted, "{modifiers}");
    }
}

#[test]
fn the_seeds_example_of_every_monday() {
    let door = Door::start();
    let repeat = "FINISHED, +1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS";
    let moment = "DATETIME('now', '+1 DAY', 'WEEKDAY 1', 'START OF DAY', '+6 HOURS')";
    let before = sqlite_text(moment);
    let next = next_run(&door, repeat, "2024-01-01", None);
    let after = sqlite_text(moment);
    assert!(next == before || next == after, "{before} {next} {after}");
}

#[test]
fn fractions_of_a_base_are_cut_off() {
    let door = Door::start();
    assert_eq!(scheduled(&door, "+1 DAY", "2024-05-15 13:14:15.999"), "2024-05-16 13:14:15");
    assert_eq!(scheduled(&door, "+1 DAY", "2024-05-15"), "2024-05-16 00:00:00");
    assert_eq!(scheduled(&door, "+1 DAY", "2024-05-15 13:14"), "2024-05-16 13:14:00");
}

/// Random modifiers, compared with SQLite itself.
#[test]
fn random_modifiers_mean_what_sqlite_means() {
    const ROUNDS: usize = 80;
    let door = Door::embedded();
    let mut random = Random::new(4);
    for _ in 0..ROUNDS {
        let mut below = |end: u64| random.below(end);
        let base = format!(
            "20{:02}-{:02}-{:02} {:02}:{:02}:{:02}",
            10 + below(14),
            1 + below(12),
            1 + below(28),
            below(24),
            below(60),
            below(60)
        );
        // The first part moves by at least a day, so that no missed window is made up for.
        let mut parts = vec![format!("+{} DAYS", 1 + below(400))];
        for _ in 0..below(4) {
            let sign = if below(2) == 0 { '+' } else { '-' };
            parts.push(match below(8) {
                0 => format!("{sign}{} SECONDS", below(100_000)),
                1 => format!("{sign}{} MINUTES", below(1000)),
                2 => format!("{sign}{} HOURS", below(4)),
                3 => format!("{sign}{} MONTHS", below(30)),
                4 => format!("{sign}{} YEARS", below(3)),
                5 => format!("WEEKDAY {}", below(7)),
                6 => ["START OF DAY", "START OF MONTH", "START OF YEAR"][below(3) as usize].into(),
                _ => format!("{sign}{} DAYS", below(40)),
            });
        }
        let modifiers: Vec<&str> = parts.iter().map(String::as_str).collect();
        let started = format!("STARTED, {}", modifiers.join(", "));
        let next = next_run(&door, &started, "2024-01-01", Some(&base));
        assert_eq!(next, in_steps(&base, &modifiers), "{base} {modifiers:?}");
    }
}

#[test]
fn missed_windows_are_skipped_and_the_phase_is_kept() {
    let door = Door::start();
    for (modifiers, seconds) in [
        ("+10 MINUTES", 600),
        ("+1 HOUR", 3600),
        ("+3 HOURS, +59 MINUTES, +59 SECONDS", 14_399),
        ("+1 DAY, -22 HOURS", 7200),
        ("+7 SECONDS", 7),
    ] {
        let base = sqlite_text("DATETIME('now', '-100000 SECONDS')");
        let before = sqlite_text("DATETIME('now')");
        let next = scheduled(&door, modifiers, &base);
        let after = sqlite_text("DATETIME('now')");
        let in_seconds =
            |text: &str| sqlite::<i64>(&format!("CAST(STRFTIME('%s', '{text}') AS INTEGER)"));
        let (base, next) = (in_seconds(&base), in_seconds(&next));
        assert_eq!((next - base) % seconds, 0, "{modifiers}: the phase is kept");
        assert!(next > in_seconds(&before), "{modifiers}: after now");
        assert!(next <= in_seconds(&after) + seconds, "{modifiers}: the first slot after now");
    }
}

#[test]
fn windows_of_four_hours_and_more_are_not_skipped() {
    let door = Door::start();
    let base = "2024-05-15 13:14:15";
    assert_eq!(scheduled(&door, "+4 HOURS", base), "2024-05-15 17:14:15");
    assert_eq!(scheduled(&door, "+14400 SECONDS", base), "2024-05-15 17:14:15");
    assert_eq!(scheduled(&door, "+1 MONTH", base), "2024-06-15 13:14:15");
}

#[test]
fn windows_that_snap_are_not_skipped() {
    let door = Door::start();
    let base = "2024-05-15 13:14:15";
    assert_eq!(scheduled(&door, "+1 HOUR, START OF HOUR", base), "2024-05-15 14:00:00");
    assert_eq!(scheduled(&door, "WEEKDAY 3, +1 HOUR", base), "2024-05-15 14:14:15");
}

#[test]
fn windows_that_go_nowhere_or_back_are_not_skipped() {
    let door = Door::start();
    let base = "2024-05-15 13:14:15";
    assert_eq!(scheduled(&door, "-1 HOUR", base), "2024-05-15 12:14:15");
    assert_eq!(scheduled(&door, "+1 HOUR, -1 HOUR", base), "2024-05-15 13:14:15");
}

#[test]
fn a_retry_of_a_job_that_repeats_is_its_next_run() {
    let door = Door::start();
    let headers =
        [("name", "n"), ("repeat", "SCHEDULED, +1 DAY"), ("firstRun", "2024-05-15 13:14:15")];
    let id = door.create(&headers);
    door.take(id, "n");
    door.about("RetryJob", id).done();
    assert_eq!(door.row(id)["nextRun"], "2024-05-16 13:14:15");
}

#[test]
fn a_lent_job_is_scheduled_from_its_original_time() {
    let door = Door::start();
    let headers = [
        ("name", "n"),
        ("repeat", "SCHEDULED, +1 DAY"),
        ("retryAfter", "+1 MINUTE"),
        ("firstRun", "2024-05-15 13:14:15"),
    ];
    let id = door.create(&headers);
    for day in ["16", "17", "18"] {
        door.take(id, "n");
        door.about("FinishJob", id).done();
        let row = door.row(id);
        assert_eq!(row["nextRun"], format!("2024-05-{day} 13:14:15"));
        assert_eq!(row["retryAfter"], "+1 MINUTE");
    }
}

#[test]
fn a_job_repeats_again_and_again_with_its_last_data() {
    let door = Door::start();
    let headers =
        [("name", "n"), ("repeat", "SCHEDULED, +1 DAY"), ("firstRun", "2024-01-01 00:00:00")];
    let id = door.create(&headers);
    for round in 1..=5 {
        let job = door.take(id, "n");
        let wanted = if round == 1 { json!({}) } else { json!({"round": round - 1}) };
        assert_eq!(job["data"], wanted);
        assert_eq!(job["nextRun"], format!("2024-01-{round:02} 00:00:00"));
        let data = format!("{{\"round\":{round}}}");
        door.about_with("FinishJob", id, &[("data", &data)]).done();
    }
}
