//! A client: sends what the workload draws, learns from the answers, and puts everything back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use windlass_proof::history::{Answer, JobId, Operation};
use windlass_proof::workload::{Mix, Workload};

use crate::call::Caller;
use crate::world::World;

/// Pause before another attempt at a daemon that is down.
pub(crate) const DOWN_PAUSE: Duration = Duration::from_millis(50);
/// Attempts at one closing request, all daemons being up or about to be.
const CLOSING_ATTEMPTS_MAX: u32 = 2000;

/// What workers tell clients about a job.
pub(crate) enum News {
    Held { tenant: String, job: JobId },
    Ended { tenant: String, job: JobId },
}

pub(crate) struct Client {
    caller: Caller,
    workload: Workload,
    news: UnboundedReceiver<News>,
    operations: u32,
}

impl Client {
    pub(crate) fn new(
        world: &Arc<World>,
        number: u32,
        mix: &Mix,
        operations: u32,
        news: UnboundedReceiver<News>,
    ) -> Client {
        let caller = Caller { world: world.clone(), who: format!("client-{number}") };
        let workload = Workload::new(world.seed, number, mix.clone());
        Client { caller, workload, news, operations }
    }

    /// Works until its operations are done or the run drains, then closes.
    pub(crate) async fn run(mut self) {
        let world = self.caller.world.clone();
        while self.operations > 0 && !world.drains() {
            self.operations -= 1;
            self.learn();
            let operation = self.workload.next_operation();
            let Some(reply) = self.reply(&operation).await else { break };
            self.workload.answered(&operation, &reply);
            let pause = Duration::from_millis(world.draw(world.pace.pause_ms_max));
            tokio::time::sleep(pause).await;
        }
        while !world.drains() {
            tokio::time::sleep(DOWN_PAUSE).await;
        }
        for operation in self.workload.closing() {
            certainly(&self.caller, &operation).await;
        }
    }

    /// `None` if no daemon was up until the run drained.
    async fn reply(&self, operation: &Operation) -> Option<Answer> {
        while !self.caller.world.drains() {
            match self.caller.perform(operation).await {
                Some(reply) => return Some(reply.answer),
                None => tokio::time::sleep(DOWN_PAUSE).await,
            }
        }
        None
    }

    fn learn(&mut self) {
        while let Ok(news) = self.news.try_recv() {
            match news {
                News::Held { tenant, job } => self.workload.held(&tenant, job),
                News::Ended { tenant, job } => {
                    self.workload.ended(&tenant, job);
                }
            }
        }
    }
}

/// Sends a request until it is certain whether it was done.
pub(crate) async fn certainly(caller: &Caller, operation: &Operation) {
    for _ in 0..CLOSING_ATTEMPTS_MAX {
        match caller.perform(operation).await {
            Some(reply) if !matches!(reply.answer, Answer::Unknown { .. }) => return,
            _ => tokio::time::sleep(DOWN_PAUSE).await,
        }
    }
    caller.world.problem(format!("no daemon answers {operation:?}"));
}
