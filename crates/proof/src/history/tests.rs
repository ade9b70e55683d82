//! Writing, reading and merging.

use std::io::{BufRead, Cursor};

use super::*;

fn listed(tenant: &str) -> Event {
    Event::Listed { tenant: tenant.into() }
}

fn file(times: &[u64], name: &str) -> Vec<u8> {
    let mut recorder = Recorder::new(Vec::new());
    times.iter().for_each(|at| recorder.record(*at, &listed(name)).unwrap());
    recorder.into_inner()
}

/// Times, files and lines.
type Places = Vec<(u64, u32, u32)>;

/// The merged places, and the number of torn files.
fn merge(files: Vec<(&str, Vec<u8>)>) -> Result<(Places, usize), ReadError> {
    let inputs = files.into_iter().map(|(name, text)| {
        let input: Box<dyn BufRead> = Box::new(Cursor::new(text));
        (name.to_owned(), input)
    });
    let mut merge = Merge::new(inputs)?;
    let mut places = Vec::new();
    while let Some(record) = merge.next_record()? {
        places.push((record.at, record.source, record.line));
    }
    Ok((places, merge.torn()))
}

fn error(text: &[u8]) -> String {
    merge(vec![("w.jsonl", text.to_vec())]).unwrap_err().to_string()
}

#[test]
fn files_are_merged_by_time_then_file_then_line() {
    let files = vec![("x", file(&[10, 30, 30], "x")), ("y", file(&[5, 30, 40], "y"))];
    let places = merge(files).unwrap().0;
    assert_eq!(places, [(5, 1, 1), (10, 0, 1), (30, 0, 2), (30, 0, 3), (30, 1, 2), (40, 1, 3)]);
}

#[test]
fn neighbours_out_of_order_are_put_right() {
    let places = merge(vec![("x", file(&[20, 10, 30], "x"))]).unwrap().0;
    assert_eq!(places, [(10, 0, 2), (20, 0, 1), (30, 0, 3)]);
}

#[test]
fn a_line_far_behind_its_time_is_an_error() {
    let mut times: Vec<u64> = (100..100 + WINDOW_LINES_MAX as u64).collect();
    times.extend([5000, 1]);
    let text = error(&file(&times, "x"));
    assert!(text.starts_with("w.jsonl:1026: more than 1024 lines behind"), "{text}");
}

#[test]
fn a_torn_last_line_is_dropped_and_counted_wherever_it_is_torn() {
    let whole = file(&[1, 2], "x");
    let first = file(&[1], "x").len();
    for cut in first + 1..whole.len() - 1 {
        let (places, torn) = merge(vec![("x", whole[..cut].to_vec())]).unwrap();
        assert_eq!((places.len(), torn), (1, 1), "cut at {cut}");
    }
    let (places, torn) = merge(vec![("x", whole[..whole.len() - 1].to_vec())]).unwrap();
    assert_eq!((places.len(), torn), (2, 0), "only the end of the line is missing");
    assert_eq!(merge(vec![("x", Vec::new())]).unwrap(), (vec![], 0));
}

#[test]
fn anything_else_malformed_is_an_error_with_its_place() {
    let mut text = file(&[1], "x");
    text.extend(b"{\"at\":2,\"eve\n");
    text.extend(file(&[3], "x"));
    assert!(error(&text).starts_with("w.jsonl:2: not an event:"), "{}", error(&text));
    for line in [
        "\n",
        "{\"at\":1,\"event\":{\"listed\":{\"tenant\":\"a\",\"more\":1}}}\n",
        "{\"at\":-1,\"event\":{\"listed\":{\"tenant\":\"a\"}}}\n",
        "{\"at\":1,\"event\":{\"unheard\":{}}}\n",
        "\u{0}\n",
    ] {
        assert!(error(line.as_bytes()).starts_with("w.jsonl:1: not an event:"), "{line}");
    }
}

#[test]
fn every_event_is_read_as_it_was_written() {
    let form = Form {
        payload_bytes: 3,
        priority: Some(7),
        delay_ns: Some(9),
        expires_ns: Some(10),
        retry_after_ns: Some(11),
        unique: Some("u".into()),
        parent: Some(JobId(u64::MAX >> 1)),
        then: Some("next".into()),
        repeat: Some("cron: 0 4 * * *".into()),
        plan: Plan { statuses: vec![500, 200], emits: 2, children: 1, progress: true, run_ms: 5 },
    };
    let (tenant, type_name) = ("a".to_owned(), "t".to_owned());
    let idempotency_key = Some("k".into());
    let add = Add { tenant, type_name, count: 2, mark: 9, idempotency_key, bedrock: true, form };
    let what = Operation::Add(Box::new(add));
    let events = [
        Event::Sent { op: 1, who: "c".into(), via: Some("d".into()), what },
        Event::Answered { op: 1, answer: Answer::Done(Outcome::Ids(vec![JobId(4), JobId(5)])) },
        Event::Answered { op: 2, answer: Answer::Done(Outcome::Nothing) },
        Event::Answered { op: 3, answer: Answer::Refused { status: 409 } },
        Event::FaultBegan {
            fault: 1,
            kind: FaultKind::ClockStep { by_ms: -3_600_000 },
            target: Target::Daemon("d".into()),
        },
        Event::FaultBegan { fault: 2, kind: FaultKind::PowerCut, target: Target::All },
        Event::Daemon {
            daemon: "d".into(),
            what: DaemonEvent::Exited { code: None, signal: Some(9) },
        },
        listed("a"),
    ];
    let mut recorder = Recorder::new(Vec::new());
    (0..).zip(&events).for_each(|(at, event)| recorder.record(at, event).unwrap());
    let mut source = Source::new("x", 0, Cursor::new(recorder.into_inner()));
    for event in events {
        assert_eq!(source.next_record().unwrap().map(|record| record.event), Some(event));
    }
    assert!(source.next_record().unwrap().is_none());
}

#[test]
fn a_handler_can_write_its_lines_by_hand() {
    let line = r#"{"at":5,"event":{"ended":{"job":"7","context":"d1/9","status":200}}}"#;
    let mut source = Source::new("x", 0, Cursor::new(format!("{line}\n")));
    let (job, context) = (JobId(7), "d1/9".into());
    let ended = Ended { job, context, status: 200, emitted: 0, children: 0, data: None };
    assert_eq!(source.next_record().unwrap().unwrap().event, Event::Ended(ended));
}
