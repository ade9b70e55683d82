//! What the parser makes of valid and invalid requests.

use super::*;

/// All steps of a byte stream that arrives in pieces of some length.
fn steps_of(bytes: &[u8], piece: usize, limits: &Limits) -> Vec<Step> {
    let mut parser = Parser::new(limits.clone());
    let mut steps = Vec::new();
    let mut waiting = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        waiting.extend_from_slice(piece);
        loop {
            let (used, step) = parser.parse(&waiting);
            waiting.drain(..used);
            match step {
                Step::Incomplete => break,
                Step::Request(_) => steps.push(step),
                Step::Bad(_) => {
                    steps.push(step);
                    return steps;
                }
            }
        }
    }
    steps
}

fn check(bytes: &[u8], limits: &Limits) -> Vec<Step> {
    let whole = steps_of(bytes, bytes.len(), limits);
    for piece in [1, 2, 3, 7] {
        assert_eq!(steps_of(bytes, piece, limits), whole, "in pieces of {piece}");
    }
    whole
}

fn requests(text: &str) -> Vec<Request> {
    let request = |step| match step {
        Step::Request(request) => request,
        other => panic!("{other:?} in {text:?}"),
    };
    check(text.as_bytes(), &Limits::default()).into_iter().map(request).collect()
}

fn request(text: &str) -> Request {
    let mut all = requests(text);
    assert_eq!(all.len(), 1, "in {text:?}");
    all.remove(0)
}

fn bad(bytes: &[u8], limits: &Limits) -> Bad {
    match check(bytes, limits).pop() {
        Some(Step::Bad(bad)) => bad,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_line_end_is_taken() {
    let texts = [
        "CreateJob\r\nname: a\r\ndata: {}\r\n\r\n",
        "CreateJob\nname: a\ndata: {}\n\n",
        "CreateJob\n\rname: a\n\rdata: {}\r\n\r\n",
        "CreateJob\rname: a\rdata: {}\n\n",
        "CreateJob\r\nname: a\ndata: {}\r\n\n",
    ];
    for text in texts {
        let request = request(text);
        assert_eq!(request.method_line(), "CreateJob");
        assert_eq!(request.header("name"), Some("a"), "in {text:?}");
        assert_eq!(request.header("data"), Some("{}"), "in {text:?}");
    }
}

#[test]
fn only_a_blank_line_of_lf_or_crlf_ends_the_head() {
    for text in ["Ping", "Ping\n", "Ping\r\n", "Ping\r\n\r", "Ping\r\r", "Ping\n\r", "Ping\n\r\n\r"]
    {
        assert_eq!(requests(text), [], "in {text:?}");
    }
    assert_eq!(requests("Ping\n\n").len(), 1);
    assert_eq!(requests("Ping\r\n\r\n").len(), 1);
}

#[test]
fn blank_lines_before_a_request_are_passed_over() {
    let all = requests("\r\n\n\r\nPing\r\n\r\n\n\nStatus\n\n\r\n");
    let verbs: Vec<_> = all.iter().map(Request::verb).collect();
    assert_eq!(verbs, ["Ping", "Status"]);
}

#[test]
fn the_method_line_is_kept_whole() {
    let request = request("  CancelJob / HTTP/1.1 \n\n");
    assert_eq!(request.verb(), "CancelJob");
    assert_eq!(request.method_line(), "CancelJob / HTTP/1.1");
}

#[test]
fn a_method_line_can_go_on_in_the_next_line() {
    let request = request("Query: SELECT *\n FROM jobs;\nFormat: json\n\n");
    assert_eq!(request.method_line(), "Query: SELECT * FROM jobs;");
    assert_eq!(request.header("format"), Some("json"));
}

#[test]
fn headers_are_trimmed_and_found_in_any_case_and_the_last_one_wins() {
    let request = request("A\nNaMe  :   first  \nother:x\nNAME: second\nempty:\nb: c: d\n\n");
    assert_eq!(request.header("name"), Some("second"));
    assert_eq!(request.header("OTHER"), Some("x"));
    assert_eq!(request.header("empty"), Some(""));
    assert_eq!(request.header("b"), Some("c: d"));
    assert_eq!(request.header("absent"), None);
    let names: Vec<_> = request.headers().map(|(name, _)| name).collect();
    assert_eq!(names, ["NaMe", "other", "empty", "b"]);
}

#[test]
fn a_line_that_begins_with_a_space_continues_the_value_before() {
    let request = request("A\ndata: {\"a\":\n 1,\n\t\"b\":2}\nname: x\n\n");
    assert_eq!(request.header("data"), Some("{\"a\": 1,\t\"b\":2}"));
    assert_eq!(request.header("name"), Some("x"));
}

#[test]
fn a_line_without_a_name_is_passed_over_with_what_continues_it() {
    let request = request("A\nname: x\nno colon here\n  and more\n: no name\n  more\n\n");
    assert_eq!(request.headers().collect::<Vec<_>>(), [("name", "x")]);
}

#[test]
fn every_value_is_unescaped() {
    let text = "A\ndata: {\"a\":\"x\\\\\"y\"}\nother: a\\nb\\u00e9\\q\nlong: a\\\n b\n\n";
    let request = request(text);
    assert_eq!(request.header("data"), Some("{\"a\":\"x\\\"y\"}"));
    assert_eq!(request.header("other"), Some("a\nbéq"));
    assert_eq!(request.header("long"), Some("a b"));
}

#[test]
fn a_body_is_as_long_as_its_length_says_and_dropped() {
    let text = "A\r\nContent-Length: 5\r\n\r\nB\r\n\r\nC\r\ncontent-length: 0\r\n\r\nD\n\n";
    let all = requests(text);
    let verbs: Vec<_> = all.iter().map(Request::verb).collect();
    assert_eq!(verbs, ["A", "C", "D"]);
}

#[test]
fn without_a_length_there_is_no_body() {
    let all = requests("A\n\nB\nname: x\n\nC\r\n\r\n");
    let verbs: Vec<_> = all.iter().map(Request::verb).collect();
    assert_eq!(verbs, ["A", "B", "C"]);
}

#[test]
fn a_chunked_body_is_dropped() {
    let head = "A\r\nTransfer-Encoding: Chunked\r\nContent-Length: 1\r\n\r\n";
    let body = "5;x=y\r\nB\r\n\r\n\r\n0A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
    let all = requests(&format!("{head}{body}C\r\n\r\n"));
    let verbs: Vec<_> = all.iter().map(Request::verb).collect();
    assert_eq!(verbs, ["A", "C"]);
}

#[test]
fn a_chunk_that_is_none_is_refused() {
    let head = "A\nTransfer-Encoding: chunked\n\n".to_owned();
    let long = "1".repeat(5000);
    let trailers = format!("0\n{}", "a: b\n".repeat(300));
    for body in ["x\n", "\n", "-1\n", "123456789\n", "1\nab\n", &long, &trailers] {
        let text = head.clone() + body;
        assert_eq!(bad(text.as_bytes(), &Limits::default()), Bad::Chunk, "for {body:?}");
    }
    let text = head + "ffffffff\n";
    assert_eq!(bad(text.as_bytes(), &Limits::default()), Bad::BodyTooLong);
}

#[test]
fn a_length_that_is_none_is_refused() {
    for length in ["", "abc", "-1", "+1", "1 2", "0x10", "1.0"] {
        let text = format!("A\nContent-Length: {length}\n\n");
        assert_eq!(bad(text.as_bytes(), &Limits::default()), Bad::ContentLength);
    }
    for length in ["16777217", "99999999999999999999999999"] {
        let text = format!("A\nContent-Length: {length}\n\n");
        assert_eq!(bad(text.as_bytes(), &Limits::default()), Bad::BodyTooLong);
    }
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    assert_eq!(bad(b"A\nname: \xff\n\n", &Limits::default()), Bad::Encoding);
    assert_eq!(bad(b"\xc3(\n\n", &Limits::default()), Bad::Encoding);
    assert_eq!(request("A\nname: \u{0}é\n\n").header("name"), Some("\u{0}é"));
}

#[test]
fn what_is_too_long_is_refused_before_it_has_come_to_an_end() {
    let limits = Limits {
        method_line_bytes_max: 8,
        header_line_bytes_max: 16,
        head_bytes_max: 40,
        headers_max: 3,
        body_bytes_max: 10,
    };
    let refused = |text: &str| bad(text.as_bytes(), &limits);
    assert_eq!(refused("123456789"), Bad::MethodLineTooLong);
    assert_eq!(refused("123456789\n\n"), Bad::MethodLineTooLong);
    assert_eq!(refused("A\nname: 67890123456"), Bad::HeaderLineTooLong);
    assert_eq!(refused("A\n 2345678901234567\n\n"), Bad::HeaderLineTooLong);
    assert_eq!(refused("A\na:\nb:\nc:\nd:\n"), Bad::TooManyHeaders);
    assert_eq!(refused(&format!("A\n{}", " 2345678\n".repeat(5))), Bad::HeadTooLong);
    assert_eq!(refused(&format!("A{}", "\r".repeat(40))), Bad::HeadTooLong);
    assert_eq!(refused("A\nContent-Length: 1\n\n"), Bad::HeaderLineTooLong);
}

#[test]
fn what_is_exactly_as_long_as_allowed_is_taken() {
    let limits = Limits {
        method_line_bytes_max: 8,
        header_line_bytes_max: 17,
        head_bytes_max: 8 + 1 + 17 + 2,
        headers_max: 1,
        body_bytes_max: 5,
    };
    let steps = check(b"12345678\nContent-Length: 5\n\nbody!", &limits);
    assert!(matches!(steps.as_slice(), [Step::Request(_)]), "{steps:?}");
}

#[test]
fn a_head_in_many_small_pieces_is_looked_at_once() {
    // Quadratic work would take minutes here.
    let text = format!("A\ndata: {}\n\n", "x".repeat(1024 * 1024));
    let mut parser = Parser::new(Limits::default());
    let step = (1..=text.len()).map(|end| parser.parse(&text.as_bytes()[..end])).last();
    assert!(matches!(step, Some((used, Step::Request(_))) if used == text.len()));
}
