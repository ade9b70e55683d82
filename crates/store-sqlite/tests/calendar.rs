//! Compares core's date arithmetic with SQLite's, and the edits of JSON text too: thousands of
//! random cases, the same in every run, in which both must agree.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

use fastrand::Rng;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use windlass_bedrock_rules::merge::{json_get_top, json_remove_top, json_set_top, merge_patch};
use windlass_core::calendar::{Civil, Modifier};

const CASES: usize = 20_000;

struct Sqlite(Connection);

impl Sqlite {
    fn new() -> Sqlite {
        Sqlite(Connection::open_in_memory().unwrap())
    }

    fn ask(&self, sql: &str, arguments: &[&str]) -> Option<String> {
        let mut statement = self.0.prepare_cached(sql).unwrap();
        let value = statement.query_row(params_from_iter(arguments), |row| row.get(0)).unwrap();
        match value {
            Value::Null => None,
            Value::Text(text) => Some(text),
            other => panic!("{sql} {arguments:?}: {other:?}"),
        }
    }

    /// Years before 0000 have a minus sign; core does not support them.
    fn date(&self, sql: &str, arguments: &[&str]) -> Option<String> {
        self.ask(sql, arguments).filter(|date| !date.starts_with('-'))
    }
}

fn pick<'a>(random: &mut Rng, from: &[&'a str]) -> &'a str {
    from[random.usize(..from.len())]
}

/// Often near the end of a month, of a year, or of the supported range.
fn random_date(random: &mut Rng) -> String {
    let year = match random.u8(..6) {
        0 => random.u32(..=1),
        1 => random.u32(9998..=9999),
        2 => random.u32(..=9999),
        3 => random.u32(..100) * 100,
        _ => random.u32(1960..2060),
    };
    let day = if random.bool() { random.u32(28..=31) } else { random.u32(1..=31) };
    format!("{year:04}-{:02}-{day:02}", random.u32(1..=12))
}

fn random_time(random: &mut Rng) -> String {
    let (hour, minute) = match random.u8(..8) {
        0 => (24, 0),
        1 => (0, 0),
        _ => (random.u32(..24), random.u32(..60)),
    };
    let mut time = format!("{hour:02}:{minute:02}");
    if random.bool() {
        time += &format!(":{:02}", if hour == 24 { 0 } else { random.u32(..60) });
        time += pick(random, &["", "", ".0", ".000", ".001", ".5", ".999", ".9999999", "."]);
    }
    time += pick(random, &["", "", "", "Z", " z ", "+00:00", "-14:59", " +05:30", "+15:00", "-1"]);
    time
}

fn random_text(random: &mut Rng) -> String {
    let date = random_date(random);
    let space = pick(random, &["", " ", "T", " T ", "\t\n", "t", "-"]);
    let text = match random.u8(..8) {
        0 => date,
        1 => random_time(random),
        _ => date + space + &random_time(random),
    };
    if random.u8(..4) > 0 {
        return text;
    }
    // One character is replaced or missing.
    let mut chars: Vec<char> = text.chars().collect();
    let place = random.usize(..chars.len());
    let other = pick(random, &["0", "9", "-", ":", " ", "T", "x", ".", "+", "é", ""]);
    chars.splice(place..=place, other.chars());
    chars.into_iter().collect()
}

fn random_modifier(random: &mut Rng) -> String {
    let sign = pick(random, &["+", "-"]);
    let plural = pick(random, &["", "S"]);
    let digits = pick(random, &["1", "2", "03", "12", "31", "99", "365", "999", "0"]);
    match random.u8(..10) {
        0 => format!("START OF {}", pick(random, &["DAY", "MONTH", "YEAR"])),
        1 => format!("WEEKDAY {}", random.u8(..7)),
        2 => format!("{sign}{} SECOND{plural}", random.u32(..100_000_000)),
        3..=5 => format!("{sign}{digits} MONTH{plural}"),
        _ => {
            let unit = pick(random, &["YEAR", "DAY", "HOUR", "MINUTE", "SECOND"]);
            format!("{sign}{digits} {unit}{plural}")
        }
    }
}

#[test]
fn texts_are_the_dates_that_sqlite_reads() {
    let sqlite = Sqlite::new();
    let mut random = Rng::with_seed(4);
    let mut dates = 0;
    for _ in 0..CASES {
        let text = random_text(&mut random);
        // Core does not accept years before 0000 and day numbers.
        if text.starts_with('-') || text.trim().parse::<f64>().is_ok() {
            continue;
        }
        // Adds nothing, which makes SQLite resolve a day past the end of its month.
        let expected = sqlite.date("SELECT DATETIME(?1, '+0 DAYS')", &[&text]);
        let read = Civil::parse(&text).and_then(|date| Modifier::Seconds(0).apply(date));
        assert_eq!(read.map(|date| date.to_string()), expected, "{text:?}");
        dates += usize::from(read.is_some());
    }
    assert!((CASES / 4..CASES * 3 / 4).contains(&dates), "{dates} of {CASES} are dates");
}

#[test]
fn modifiers_move_dates_as_in_sqlite() {
    let sqlite = Sqlite::new();
    let mut random = Rng::with_seed(4);
    let (mut moved, mut lost) = (0, 0);
    for _ in 0..CASES {
        let start = format!("{} {:02}:07:08", random_date(&mut random), random.u32(..24));
        let mut text = Some(start.clone());
        let mut date = Civil::parse(&start);
        let mut steps = vec![start];
        for _ in 0..random.usize(1..5) {
            let modifier = random_modifier(&mut random);
            // Each result is text that the next step parses again.
            text = text.and_then(|t| sqlite.date("SELECT DATETIME(?1, ?2)", &[&t, &modifier]));
            date = date.and_then(|date| Modifier::parse(&modifier).unwrap().apply(date));
            steps.push(modifier);
            assert_eq!(date.map(|date| date.to_string()), text, "{steps:?}");
        }
        moved += usize::from(text.is_some());
        lost += usize::from(text.is_none());
    }
    assert!(moved > CASES / 2 && lost > CASES / 20, "{moved} moved, {lost} lost");
}

#[test]
fn the_start_of_an_hour_is_the_one_that_sqlite_writes() {
    let sqlite = Sqlite::new();
    let mut random = Rng::with_seed(4);
    for _ in 0..CASES / 10 {
        let text = format!("{} {:02}:59:59", random_date(&mut random), random.u32(..24));
        let expected = sqlite.date("SELECT STRFTIME('%Y-%m-%d %H:00:00', ?1)", &[&text]);
        let start = Modifier::parse("START OF HOUR").unwrap().apply(Civil::parse(&text).unwrap());
        assert_eq!(start.map(|date| date.to_string()), expected, "{text}");
    }
}

const KEYS: [&str; 6] = ["a", "b", "mockRequest", "a b", "é", "x.y"];

/// White space between the tokens of a text.
fn gap(random: &mut Rng) -> &'static str {
    pick(random, &["", "", "", " ", "\n\t"])
}

fn random_object(random: &mut Rng, depth: usize) -> String {
    let mut keys = KEYS;
    random.shuffle(&mut keys);
    let mut text = String::from("{");
    for (n, key) in keys[..random.usize(..=keys.len())].iter().enumerate() {
        let comma = if n > 0 { "," } else { "" };
        let value = random_value(random, depth);
        let (before, after) = (gap(random), gap(random));
        text += &format!("{comma}{before}\"{key}\"{after}:{before}{value}{after}");
    }
    text + gap(random) + "}"
}

fn random_value(random: &mut Rng, depth: usize) -> String {
    match random.u8(..10) {
        0..=3 if depth > 0 => random_object(random, depth - 1),
        4 if depth > 0 => {
            let (first, second) = (random_object(random, depth - 1), random_value(random, 0));
            format!("[{}{first}{},{second}]", gap(random), gap(random))
        }
        5..=6 => "null".into(),
        _ => {
            let texts = ["1", "-0.50", "1E+05", "true", "\"\"", "\"a b\"", "\"\\u00e9\\\"\\\\{\""];
            pick(random, &texts).into()
        }
    }
}

#[test]
fn json_texts_change_as_in_sqlite() {
    let sqlite = Sqlite::new();
    let mut random = Rng::with_seed(4);
    for _ in 0..CASES / 4 {
        let (old, patch) = (random_object(&mut random, 3), random_object(&mut random, 3));
        let merged = sqlite.ask("SELECT JSON_PATCH(?1, ?2)", &[&old, &patch]);
        assert_eq!(merge_patch(&old, &patch), merged, "{old} {patch}");

        let key = pick(&mut random, &KEYS);
        let value = random_value(&mut random, 1);
        let path = format!("$.\"{key}\"");
        let set = sqlite.ask("SELECT JSON_SET(?1, ?2, JSON(?3))", &[&old, &path, &value]);
        assert_eq!(Some(json_set_top(&old, key, &value)), set, "{old} {key} {value}");

        let removed = sqlite.ask("SELECT JSON_REMOVE(?1, ?2)", &[&old, &path]);
        assert_eq!(Some(json_remove_top(&old, key)), removed, "{old} {key}");

        let got = sqlite.ask("SELECT ?1 -> ?2", &[&old, &path]);
        let minified = |value: &str| json_remove_top(&format!("{{\"v\":{value}}}"), "");
        let ours = json_get_top(&old, key).map(minified);
        assert_eq!(ours, got.map(|value| format!("{{\"v\":{value}}}")), "{old} {key}");
    }
}
