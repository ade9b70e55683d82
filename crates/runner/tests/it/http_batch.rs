//! `http` handlers with many jobs per request.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::runner::{Report, Stop};
use windlass_core::{HandlerSpec, JobId, Json, Lang, Runner};

use crate::harness::{Event, MadePieces, check_ended, fixture, in_pieces, job, limited, spec};
use crate::server::{Reply, Request, Server, answer};

fn batched(server: &Server, batch: u32) -> HandlerSpec {
    let mut spec = spec(Lang::Http, &server.url());
    spec.options.batch = Some(batch);
    spec
}

fn ended(events: Vec<Event>) -> Vec<(JobId, Report)> {
    let report = |event| match event {
        Event::Ended(id, report) => Some((id, report)),
        Event::Started(_) => None,
        other => panic!("{other:?}"),
    };
    events.into_iter().filter_map(report).collect()
}

fn results(events: Vec<Event>) -> Vec<(u16, Option<String>)> {
    let result = |(_, report): (JobId, Report)| {
        (report.status.get(), report.data.as_ref().map(Json::as_str).map(str::to_owned))
    };
    ended(events).into_iter().map(result).collect()
}

#[tokio::test]
async fn s0_56_a_batch_is_one_request_with_one_line_a_job_each_way() {
    let reply = |_: &Request| answer(200, "text/plain", "200\n200 second\r\n400 no such user\n");
    let mut server = Server::start(reply).await;
    let jobs = vec![job(b"one"), job(b""), job(b"three | x")];
    let ids: Vec<_> = jobs.iter().map(|assignment| assignment.job.id.to_string()).collect();
    let fixture = fixture();
    let events = fixture.begin(batched(&server, 100), jobs).rest().await;
    let second = Some("\"second\"".to_owned());
    let third = Some("\"no such user\"".to_owned());
    assert_eq!(results(events), [(200, None), (200, second), (400, third)]);
    let request = server.request().await;
    assert_eq!(request.body, b"one\n\nthree | x\n");
    assert_eq!(request.headers["windlass-batch"], "3");
    assert_eq!(request.headers["windlass-job-id"], ids.join(","));
    assert_eq!(request.headers["windlass-attempt"], "3,3,3");
    assert_eq!(request.headers["windlass-tenant"], "acme");
    assert_eq!(request.headers["content-length"], "15");
}

#[tokio::test]
async fn a_missing_or_unreadable_line_is_an_error_of_its_job_alone() {
    let reply = |_: &Request| answer(200, "text/plain", "200 a\nnonsense\n");
    let server = Server::start(reply).await;
    let jobs = vec![job(b"1"), job(b"2"), job(b"3")];
    let ended = ended(fixture().begin(batched(&server, 10), jobs).rest().await);
    let statuses: Vec<_> = ended.iter().map(|(_, report)| report.status.get()).collect();
    assert_eq!(statuses, [200, 500, 500]);
    assert!(
        ended[1].1.log.to_string().contains("does not begin with a status"),
        "{}",
        ended[1].1.log
    );
    assert!(ended[2].1.log.to_string().contains("no line 3"), "{}", ended[2].1.log);
}

#[tokio::test]
async fn an_answer_that_breaks_off_keeps_the_results_of_its_whole_lines() {
    let broken = b"HTTP/1.1 200 Broken\r\nContent-Length: 100\r\n\r\n200 a\n200 b";
    let server = Server::start(|_| Reply::Raw(broken.to_vec())).await;
    let jobs = vec![job(b"1"), job(b"2")];
    let events = fixture().begin(batched(&server, 10), jobs).rest().await;
    assert_eq!(results(events), [(200, Some("\"a\"".into())), (500, None)]);
}

#[tokio::test]
async fn an_answer_that_is_no_success_is_the_status_of_all() {
    let server = Server::start(|_| answer(503, "text/plain", "200\n200\n")).await;
    let jobs = vec![job(b"1"), job(b"2")];
    let events = fixture().begin(batched(&server, 10), jobs).rest().await;
    assert_eq!(results(events), [(503, None), (503, None)]);
}

#[tokio::test]
async fn payloads_that_are_no_line_are_sent_singly_and_in_order() {
    let reply = |request: &Request| {
        let lines = request.headers.get("windlass-batch").map_or(0, |n| n.parse().unwrap());
        match lines {
            0 => answer(201, "text/plain", "single"),
            lines => answer(200, "text/plain", "202\n".repeat(lines)),
        }
    };
    let mut server = Server::start(reply).await;
    let jobs = vec![job(b"a"), job(b"b"), job(b"c\nd"), in_pieces(100), job(b"e")];
    let ids: Vec<_> = jobs.iter().map(|assignment| assignment.job.id).collect();
    let pieces = Arc::new(MadePieces { bytes: 100, piece_bytes: 60, broken_from: 9 });
    let fixture = fixture();
    let events = fixture.begin_with(batched(&server, 10), jobs, pieces).rest().await;
    let got: Vec<_> =
        ended(events).into_iter().map(|(id, report)| (id, report.status.get())).collect();
    let expected: Vec<_> = ids.into_iter().zip([202, 202, 201, 201, 202]).collect();
    assert_eq!(got, expected);
    let mut bodies = Vec::new();
    for _ in 0..4 {
        bodies.push(server.request().await.body.len());
    }
    assert_eq!(bodies, [4, 3, 100, 2]);
}

#[tokio::test]
async fn no_request_has_more_jobs_than_the_handler_wants() {
    let reply = |request: &Request| {
        answer(
            200,
            "text/plain",
            "200\n".repeat(request.headers["windlass-batch"].parse().unwrap()),
        )
    };
    let mut server = Server::start(reply).await;
    let jobs = (0..5).map(|_| job(b"x")).collect();
    let events = fixture().begin(batched(&server, 2), jobs).rest().await;
    assert!(results(events).iter().all(|(status, _)| *status == 200));
    for jobs in ["2", "2", "1"] {
        assert_eq!(server.request().await.headers["windlass-batch"], jobs);
    }
}

#[tokio::test]
async fn s0_57_every_job_of_a_batch_is_charged_with_its_share() {
    let server = Server::start(|_| answer(200, "text/plain", "200\n200\n200\n200\n")).await;
    let jobs = (0..4).map(|_| job(b"x")).collect();
    let fixture = fixture();
    let began = std::time::Instant::now();
    let ended = ended(fixture.begin(batched(&server, 10), jobs).rest().await);
    let batch_time = began.elapsed();
    let times: Vec<_> = ended.iter().map(|(_, report)| report.run_time).collect();
    assert!(times[0] > Duration::ZERO);
    assert!(times.iter().all(|time| *time == times[0]), "{times:?}");
    assert!(times.iter().sum::<Duration>() <= batch_time);
}

#[tokio::test]
async fn a_job_of_a_batch_is_stopped_alone_and_the_last_one_ends_the_request() {
    let mut server = Server::start(|_| Reply::Hang).await;
    let fixture = fixture();
    let jobs = vec![job(b"1"), limited(job(b"2"), Duration::from_millis(200)), job(b"3")];
    let mut run = fixture.begin(batched(&server, 10), jobs);
    let ids = run.ids.clone();
    server.request().await;
    let (id, report) = run.ended().await;
    assert_eq!(id, ids[1]);
    check_ended(&report, 500, Some(Stop::TimedOut));
    for (at, why) in [(0, Stop::Cancelled), (2, Stop::Shutdown)] {
        fixture.runner.stop(run.attempts[at], why);
        let (ended, report) = run.ended().await;
        assert_eq!(ended, ids[at]);
        check_ended(&report, 500, Some(why));
    }
    server.client_gone().await;
    assert_eq!(run.rest().await, []);
}
