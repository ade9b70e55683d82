//! The exchange shown in docs/contexts.md is real.

use serde_json::Value;

use crate::harness::{Context, Lang};

const PAGE: &str = include_str!("../../../../docs/contexts.md");

#[test]
fn the_example_of_the_page_is_true() {
    let mut context = Context::silent(Lang::Python);
    let (mut requests, mut answers) = (0, 0);
    for line in PAGE.lines().filter(|line| line.starts_with(['→', '←'])) {
        let (arrow, frame) = line.split_once(' ').unwrap();
        let (length, json) = frame.split_once(' ').unwrap();
        assert_eq!(usize::from_str_radix(length, 16).unwrap(), json.len(), "{line}");
        let mut value: Value = serde_json::from_str(json).unwrap();
        if arrow == "→" {
            context.ask(&value);
            requests += 1;
            continue;
        }
        let members = value.as_object_mut().unwrap();
        members.remove("us");
        if members.remove("nonce").is_some() {
            members.insert("job".into(), 0.into()); // Whose nonce it is, the harness has checked.
        }
        let mut answer = context.answer().unwrap();
        if answer["kind"] == "ready" {
            answer["language"] = value["language"].clone(); // Of whoever runs the test.
        }
        assert_eq!(answer, value);
        answers += 1;
    }
    assert_eq!((requests, answers), (3, 7));
    context.close();
    assert_eq!(context.answer(), None);
    assert_eq!(context.ended().code, Some(0));
}
