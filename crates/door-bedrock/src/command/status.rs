//! `Status`: reports that the door is open, in the form that Bedrock's tools expect.

use crate::execute::Reply;
use crate::wire::Response;
use crate::wire::json::{Object, array, quoted};

use super::{Bedrock, Refusal};

pub(super) async fn run(door: &Bedrock) -> Result<Reply, Refusal> {
    let crashed = array(door.crashed.list().iter().map(|pattern| quoted(pattern)));
    let status = Object::new()
        .number("CommitCount", 0)
        .raw("crashedJobs", crashed)
        .boolean("isLeader", true)
        .text("nodeName", "windlass")
        .raw("plugins", r#"[{"name":"DB"},{"name":"Jobs"}]"#.to_owned())
        .text("state", "LEADING")
        .raw("version", quoted(&format!("windlass {}", door.version)));
    Ok(Response::json(status).into())
}
