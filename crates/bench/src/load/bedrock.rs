//! Bedrock's protocol, as far as a worker uses it.

use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;

/// Creates a job, with a priority or the default one.
pub(crate) fn create(name: &str, data: &str, priority: Option<u16>) -> Vec<u8> {
    let priority = priority.map(|it| format!("jobPriority: {it}\r\n")).unwrap_or_default();
    request(&format!("CreateJob\r\nname: {name}\r\ndata: {data}\r\n{priority}"))
}

/// `names` is a name or a GLOB.
pub(crate) fn get(names: &str) -> Vec<u8> {
    request(&format!("GetJob\r\nname: {names}\r\n"))
}

pub(crate) fn get_waiting(names: &str, wait: Duration) -> Vec<u8> {
    let ms = wait.as_millis();
    request(&format!("GetJob\r\nname: {names}\r\nConnection: wait\r\ntimeout: {ms}\r\n"))
}

pub(crate) fn finish(job: u64) -> Vec<u8> {
    request(&format!("FinishJob\r\njobID: {job}\r\n"))
}

fn request(head: &str) -> Vec<u8> {
    format!("{head}Content-Length: 0\r\n\r\n").into_bytes()
}

/// The job in a reply to `GetJob`.
pub(crate) fn job_id(body: &[u8]) -> anyhow::Result<u64> {
    #[derive(Deserialize)]
    struct GetJobReply {
        #[serde(rename = "jobID")]
        job: u64,
    }
    let reply: GetJobReply = serde_json::from_slice(body).context("the reply gives no job")?;
    Ok(reply.job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_whole_and_say_that_nothing_follows() {
        let text = String::from_utf8(create("a", "{}", Some(1000))).unwrap();
        let expected = "CreateJob\r\nname: a\r\ndata: {}\r\njobPriority: 1000\r\n\
                        Content-Length: 0\r\n\r\n";
        assert_eq!(text, expected);
        assert_eq!(finish(7), b"FinishJob\r\njobID: 7\r\nContent-Length: 0\r\n\r\n");
    }

    #[test]
    fn a_reply_names_the_job_that_it_gives() {
        assert_eq!(
            job_id(br#"{"data":{"jobID":1},"jobID":9007199254740993}"#).unwrap(),
            9007199254740993
        );
        assert!(job_id(b"").is_err());
    }
}
