//! The session shown on the page of the Bedrock door, word for word.

use std::collections::HashMap;

use crate::harness::{Door, Link};

const PAGE: &str = include_str!("../../../../../docs/protocols/bedrock.md");

/// A request and the reply that the page promises.
struct Exchange {
    request: Vec<String>,
    reply: Vec<String>,
}

fn exchanges() -> Vec<Exchange> {
    let from = PAGE.split_once("```transcript\n").expect("the page has a session").1;
    let session = from.split_once("```").expect("the session ends").0;
    let mut exchanges: Vec<Exchange> = Vec::new();
    for line in session.lines() {
        if let Some(sent) = line.strip_prefix('>') {
            if exchanges.last().is_none_or(|last| !last.reply.is_empty()) {
                exchanges.push(Exchange { request: Vec::new(), reply: Vec::new() });
            }
            let last = exchanges.last_mut().expect("one was just begun");
            last.request.push(sent.trim_start().to_owned());
        } else if let Some(answered) = line.strip_prefix('<') {
            let last = exchanges.last_mut().expect("a reply follows a request");
            last.reply.push(answered.strip_prefix(' ').unwrap_or(answered).to_owned());
        }
    }
    exchanges
}

/// Compares a line with the page; a name in braces stands for any text, and for the same text each
/// time, except for times and lengths.
fn compare(shown: &str, seen: &str, known: &mut HashMap<String, String>) {
    let (mut shown_rest, mut seen_rest) = (shown, seen);
    while let Some((before, name, after)) = placeholder(shown_rest) {
        seen_rest = seen_rest
            .strip_prefix(before)
            .unwrap_or_else(|| panic!("{seen:?} is not as shown: {shown:?}"));
        let end = after.chars().next().map_or(Some(seen_rest.len()), |next| seen_rest.find(next));
        let value = &seen_rest[..end.unwrap_or_else(|| panic!("{seen:?} ends before {after:?}"))];
        match name {
            "id" => {
                assert!(value.parse::<i64>().is_ok_and(|id| id > 0), "an id in {seen:?}");
                let first = known.entry(name.to_owned()).or_insert_with(|| value.to_owned());
                assert_eq!(first, value, "the same job in {seen:?}");
            }
            "time" => assert!(value.starts_with("20") && value.len() >= 19, "a time in {seen:?}"),
            "length" => assert!(value.parse::<usize>().is_ok(), "a length in {seen:?}"),
            other => panic!("the page has an unknown {{{other}}}"),
        }
        seen_rest = &seen_rest[value.len()..];
        shown_rest = after;
    }
    assert_eq!(seen_rest, shown_rest, "the end of {seen:?}");
}

fn placeholder(line: &str) -> Option<(&str, &str, &str)> {
    ["{id}", "{time}", "{length}"]
        .iter()
        .filter_map(|name| Some((line.find(name)?, *name)))
        .min()
        .map(|(at, name)| (&line[..at], &name[1..name.len() - 1], &line[at + name.len()..]))
}

#[test]
fn the_session_on_the_page_goes_as_it_is_shown() {
    let door = Door::embedded();
    let mut link: Link = door.open();
    let mut known: HashMap<String, String> = HashMap::new();
    let exchanges = exchanges();
    assert!(exchanges.len() >= 8, "the page shows a whole session");
    for Exchange { request, reply } in exchanges {
        let mut sent = request.join("\n") + "\n";
        if let Some(id) = known.get("id") {
            sent = sent.replace("{id}", id);
        }
        link.raw(sent.as_bytes());
        let seen = link.receive();
        let mut lines = vec![seen.line.clone()];
        lines.extend(seen.headers.iter().map(|(name, value)| format!("{name}: {value}")));
        lines.push(String::new());
        lines.extend(seen.text().lines().map(str::to_owned));
        assert_eq!(lines.len(), reply.len(), "{lines:?} is not as shown: {reply:?}");
        for (shown, seen) in reply.iter().zip(&lines) {
            compare(shown, seen, &mut known);
        }
    }
}
