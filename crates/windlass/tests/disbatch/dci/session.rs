//! The session shown on the page of the Disbatch door, word for word.

use std::collections::HashMap;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};

use crate::harness::{Answer, Dci, Home};

const PAGE: &str = include_str!("../../../../../docs/protocols/disbatch.md");

/// Characters that are readable on the page and encoded in a request.
const ENCODED: &AsciiSet = &CONTROLS.add(b'"').add(b'[').add(b']').add(b' ');

/// Each request with the answer that the page promises.
fn exchanges() -> Vec<(&'static str, &'static str)> {
    let from = PAGE.split_once("```transcript\n").expect("the page has a session").1;
    let session = from.split_once("```").expect("the session ends").0;
    let mut lines = session.lines();
    let mut exchanges = Vec::new();
    while let (Some(asked), Some(answered)) = (lines.next(), lines.next()) {
        let asked = asked.strip_prefix("> ").expect("a request");
        exchanges.push((asked, answered.strip_prefix("< ").expect("an answer")));
    }
    exchanges
}

/// A name in braces, with the text before and after it.
fn placeholder(text: &str) -> Option<(&str, &str, &str)> {
    text.match_indices('{').find_map(|(at, _)| {
        let (name, after) = text[at + 1..].split_once('}')?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
        is_name.then_some((&text[..at], name, after))
    })
}

/// Replaces names by the values known so far.
fn filled(shown: &str, known: &HashMap<String, String>) -> String {
    let fill = |text: String, (name, value): (&String, &String)| {
        text.replace(&format!("{{{name}}}"), value)
    };
    known.iter().fold(shown.to_owned(), fill)
}

/// Learns the ids that the page shows for the first time.
fn learn(shown: &str, seen: &str, known: &mut HashMap<String, String>) {
    let mut shown = filled(shown, known);
    while let Some((before, name, _)) = placeholder(&shown) {
        let rest = seen.strip_prefix(before);
        let rest = rest.unwrap_or_else(|| panic!("{seen} is not as shown: {shown}"));
        known.insert(name.to_owned(), rest[..24].to_owned());
        shown = filled(&shown, known);
    }
    assert_eq!(seen, shown);
}

fn ask(dci: &Dci, asked: &str) -> Answer {
    let mut words = asked.splitn(3, ' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let path = utf8_percent_encode(path, ENCODED).to_string();
    match words.next() {
        None => dci.http.ask(method, &path, &[], b""),
        Some(body) => {
            let _: Value = serde_json::from_str(body).expect("JSON on the page");
            let json = [("Content-Type", "application/json")];
            dci.http.ask(method, &path, &json, body.as_bytes())
        }
    }
}

#[test]
fn the_session_on_the_page_goes_as_it_is_shown() {
    let home = Home::seed();
    let mut config = home.config();
    config["plugins"] = json!(["/bin/true"]);
    config.as_object_mut().unwrap().remove("dialect");
    let dci = home.dci_of(&config);
    let exchanges = exchanges();
    assert!(exchanges.len() >= 10, "the page shows a whole session");
    let mut known = HashMap::new();
    for (asked, shown) in exchanges {
        let answer = ask(&dci, &filled(asked, &known));
        learn(shown, &format!("{} {}", answer.status, answer.json()), &mut known);
    }
}
