//! The requests to a master.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use super::registry::{Poll, Worker};
use super::wanted::{Scope, Wanted};
use super::{Master, manual, signal};
use crate::memory_usage;
use crate::net::{AskError, Handler, Peer};
use crate::wire::{Json, Object, check};

#[async_trait]
impl Handler for Master {
    async fn handle(&self, peer: &Peer, kind: &str, data: Json) -> Result<Json, String> {
        match kind {
            "register-worker" => self.register(peer, &data),
            "poke" => self.poke(&data),
            "pause" | "continue" => self.pass_on(kind, &data).await,
            "status" => Ok(self.status(&data).await),
            "run-manual" => self.run_manual(&data).await,
            "send-signal" => self.send_signal(&data).await,
            _ => Err(format!("unknown request type: '{kind}'")),
        }
    }

    fn answered(&self, peer: &Peer, kind: &str) {
        if kind == "register-worker" {
            peer.release_requests(self.0.times.listen_pause);
            let poll = self.state().registry.set_ready(peer.id());
            poll.into_iter().for_each(|poll| self.poll(poll));
        }
    }

    fn closed(&self, peer: &Peer) {
        if let Some(worker) = self.state().registry.remove(peer.id()) {
            let (name, addr) = (&worker.name, peer.addr());
            self.0.log.info(format_args!("worker '{name}' at {addr} is gone"));
        }
    }
}

impl Master {
    fn register(&self, peer: &Peer, data: &Json) -> Result<Json, String> {
        let targets = check::targets(data)?;
        let name = data.get("name").and_then(Json::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or("name is missing or invalid")?.to_owned();
        let addr = peer.addr();
        let shown = targets.as_ref().map_or("any".to_owned(), |targets| targets.join(", "));
        self.0.log.info(format_args!("worker '{name}' at {addr} serves: {shown}"));
        let (address, port) = (addr.ip().to_string(), addr.port());
        let worker = Worker { id: peer.id(), name, address, port, targets, peer: peer.clone() };
        // No request is sent to it before it has read the answer.
        peer.hold_requests();
        if self.state().registry.register(worker) {
            self.ping(peer.clone());
        }
        Ok("ok".into())
    }

    /// Pings start one interval after the registration and stop with the connection.
    fn ping(&self, peer: Peer) {
        let interval = self.0.ping_interval;
        tokio::spawn(async move {
            tokio::select! {
                () = peer.closed() => {}
                () = tokio::time::sleep(interval) => peer.ping_every(interval).await,
            }
        });
    }

    fn poke(&self, data: &Json) -> Result<Json, String> {
        let targets = check::targets(data)?.ok_or("targets is not iterable")?;
        let released = self.state().throttle.poke(&targets, Instant::now());
        match released {
            Some(wanted) => self.poll_all(&wanted),
            None => self.0.poked.notify_one(),
        }
        Ok("ok".into())
    }

    /// Sends throttled pokes when they are due. Runs forever.
    pub(super) async fn release_pokes(&self) {
        loop {
            let due = self.state().throttle.due();
            let Some(due) = due else {
                self.0.poked.notified().await;
                continue;
            };
            tokio::time::sleep_until(due.into()).await;
            let released = self.state().throttle.release(Instant::now());
            released.iter().for_each(|wanted| self.poll_all(wanted));
        }
    }

    fn poll_all(&self, wanted: &Wanted) {
        let polls = self.state().registry.poke(wanted);
        polls.into_iter().for_each(|poll| self.poll(poll));
    }

    /// Sends a poll. If the worker refuses because it no longer serves a target, the poll is
    /// repeated for all targets; if it is not delivered, it goes to the next worker that serves the
    /// target.
    fn poll(&self, Poll { worker, scope, ticket }: Poll<Peer>) {
        let limit = self.0.times.worker_answer_max;
        let first = worker.peer.ask("poll", Some(data_of(&scope)));
        let master = self.clone();
        tokio::spawn(async move {
            let mut answer = first.within(limit).await;
            if let (Err(AskError::Refused(_)), Scope::Only(_)) = (&answer, &scope) {
                let again = worker.peer.ask("poll", Some(data_of(&Scope::Everything)));
                answer = again.within(limit).await;
            }
            if let Err(error) = &answer {
                let name = &worker.name;
                master.0.log.warn(format_args!("poll of worker '{name}': {error}"));
            }
            let got_through = matches!(answer, Ok(_) | Err(AskError::Refused(_)));
            master.state().registry.settle(ticket, got_through);
        });
    }

    async fn pass_on(&self, kind: &str, data: &Json) -> Result<Json, String> {
        let targets = check::targets(data)?;
        let errands = self.state().registry.share(targets.as_deref());
        let (workers, data): (Vec<_>, Vec<_>) =
            errands.into_iter().map(|(worker, scope)| (worker, Some(data_of(&scope)))).unzip();
        let asked = workers.iter().zip(data);
        for (worker, answer) in workers.iter().zip(self.ask_all(kind, asked).await) {
            if let Err(error) = answer {
                let name = &worker.name;
                self.0.log.warn(format_args!("{kind} of worker '{name}': {error}"));
            }
        }
        Ok("ok".into())
    }

    async fn status(&self, data: &Json) -> Json {
        let workers = self.state().registry.workers().to_vec();
        let mut infos: Vec<Object> = workers.iter().map(|worker| info(worker)).collect();
        if data.get("poll_workers").is_some_and(Json::is_truthy) {
            let answers = self.ask_all("status", workers.iter().map(|worker| (worker, None))).await;
            for (info, answer) in infos.iter_mut().zip(answers) {
                match answer {
                    Ok(status) => info.insert("workerStatus", status),
                    Err(error) => info.insert("workerStatusError", error),
                }
            }
        }
        Json::from([("workers", Json::from(infos)), ("memoryUsage", memory_usage::read())])
    }

    async fn run_manual(&self, data: &Json) -> Result<Json, String> {
        let planned = manual::plan(&self.state().registry, data, |count| fastrand::usize(..count));
        let (calls, mut ends) = planned?;
        let asks: Vec<_> = calls
            .iter()
            .map(|call| {
                let data = Json::from([("ids", Json::from(call.ids.clone()))]);
                call.worker.peer.ask("run-manual", Some(data))
            })
            .collect();
        // All requests have been sent; answers are buffered until they are read here.
        for (call, answer) in calls.iter().zip(asks) {
            ends.take(call, answer.await.map_err(|error| error.to_string()));
        }
        Ok(ends.into_data())
    }

    async fn send_signal(&self, data: &Json) -> Result<Json, String> {
        let planned = signal::plan(&self.state().registry, data);
        let (calls, mut sent) = planned?;
        let asked = calls.iter().map(|call| {
            let signals: Object = call.signals.iter().cloned().collect();
            (&call.worker, Some(Json::from([("jobs", signals.into())])))
        });
        let answers = self.ask_all("send-signal", asked).await;
        for (call, answer) in calls.iter().zip(answers) {
            sent.take(call, &answer);
        }
        Ok(sent.into_data())
    }

    /// Asks all workers at the same time, with the same time limit.
    async fn ask_all<'a>(
        &self,
        kind: &str,
        asked: impl Iterator<Item = (&'a Arc<Worker<Peer>>, Option<Json>)>,
    ) -> Vec<Result<Json, String>> {
        let limit = self.0.times.worker_answer_max;
        let asks: Vec<_> = asked.map(|(worker, data)| worker.peer.ask(kind, data)).collect();
        let deadline = tokio::time::Instant::now() + limit;
        let mut answers = Vec::new();
        for ask in asks {
            let late = Err(AskError::Late(limit));
            let answer = tokio::time::timeout_at(deadline, ask).await.unwrap_or(late);
            answers.push(answer.map_err(|error| error.to_string()));
        }
        answers
    }
}

fn data_of(scope: &Scope) -> Json {
    match scope {
        Scope::Everything => Object::new().into(),
        Scope::Only(targets) => Json::from([("targets", Json::from(targets.clone()))]),
    }
}

fn info(worker: &Worker<Peer>) -> Object {
    [
        ("remoteAddr", Json::from(&worker.address)),
        ("remotePort", worker.port.into()),
        ("targets", worker.targets.clone().into()),
        ("name", Json::from(&worker.name)),
    ]
    .into_iter()
    .collect()
}
