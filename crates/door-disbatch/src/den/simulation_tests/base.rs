//! The simulated database. Only changes of a single document are atomic.

use std::collections::BTreeSet;

use super::THREADS;
use crate::doc::Limit;

pub(super) type TaskId = usize;
pub(super) type Boot = u64;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Holder {
    Nobody,
    Ours(usize, Boot),
    Foreign,
}

pub(super) struct Task {
    pub(super) status: i32,
    pub(super) holder: Holder,
}

pub(super) struct Base {
    pub(super) up: bool,
    pub(super) process: i32,
    pub(super) entries: Vec<Option<(Boot, i64)>>,
    pub(super) tasks: Vec<Task>,
    pub(super) holds: Vec<(u64, Boot)>,
    /// Incremented by every request that may have changed a task or a hold.
    pub(super) changes: u64,
}

#[derive(Debug, Clone)]
pub(super) enum DatabaseRequest {
    Enter(Boot, Option<Boot>),
    Beat(Boot),
    Look,
    Evict(usize, Boot, Option<i64>),
    Orphan(usize, Boot),
    Sweep(Boot, BTreeSet<TaskId>, BTreeSet<u64>),
    Foreign,
    /// Whether the hold exists and is within the limit, together with all other holds and foreign
    /// tasks.
    Fits(u64),
    Hold(u64, Boot, u64),
    Claim(Boot),
    Unclaim(TaskId, Boot),
    Start(TaskId, Boot),
    Finish(TaskId, Boot, i32),
    Drop(u64, Boot),
}

#[derive(Debug, Clone)]
pub(super) enum DatabaseAnswer {
    Yes(bool),
    Taken(Boot),
    Snapshot(Snapshot),
    Count(u64),
    HoldPosition(Option<u64>),
    Task(Option<TaskId>),
}

#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) process: i32,
    pub(super) entries: Vec<Option<(Boot, i64)>>,
    pub(super) active: BTreeSet<(TaskId, usize, Boot)>,
    pub(super) holds: Vec<(u64, Boot)>,
}

impl Base {
    pub(super) fn foreign(&self) -> u64 {
        let foreign = |task: &&Task| task.holder == Holder::Foreign && task.status == 0;
        self.tasks.iter().filter(foreign).count() as u64
    }

    pub(super) fn owned_task(
        &mut self,
        task: TaskId,
        node: usize,
        boot: Boot,
    ) -> Option<&mut Task> {
        Some(&mut self.tasks[task]).filter(|task| task.holder == Holder::Ours(node, boot))
    }

    pub(super) fn answer(&mut self, node: usize, ask: DatabaseRequest) -> DatabaseAnswer {
        self.changes += 1;
        match ask {
            DatabaseRequest::Enter(..)
            | DatabaseRequest::Beat(_)
            | DatabaseRequest::Look
            | DatabaseRequest::Evict(..)
            | DatabaseRequest::Orphan(..) => self.answer_about_nodes(node, ask),
            _ => self.answer_about_tasks(node, ask),
        }
    }

    pub(super) fn answer_about_nodes(
        &mut self,
        node: usize,
        ask: DatabaseRequest,
    ) -> DatabaseAnswer {
        match ask {
            DatabaseRequest::Enter(boot, from) => match self.entries[node] {
                Some((other, _)) if other != boot && Some(other) != from => {
                    DatabaseAnswer::Taken(other)
                }
                _ => {
                    self.entries[node] = Some((boot, 1));
                    DatabaseAnswer::Yes(true)
                }
            },
            DatabaseRequest::Beat(boot) => {
                let entry = self.entries[node].as_mut().filter(|entry| entry.0 == boot);
                let renewed = entry.map(|entry| entry.1 += 1).is_some();
                DatabaseAnswer::Yes(renewed)
            }
            DatabaseRequest::Look => {
                let active = self.tasks.iter().enumerate().filter_map(|(id, task)| {
                    match (task.status, task.holder) {
                        (-1 | 0, Holder::Ours(node, boot)) => Some((id, node, boot)),
                        _ => None,
                    }
                });
                DatabaseAnswer::Snapshot(Snapshot {
                    process: self.process,
                    entries: self.entries.clone(),
                    active: active.collect(),
                    holds: self.holds.clone(),
                })
            }
            DatabaseRequest::Evict(node, boot, beat) => {
                DatabaseAnswer::Yes(match (self.entries.get(node), beat) {
                    (Some(Some(entry)), Some(beat)) if *entry == (boot, beat) => {
                        self.entries[node] = None;
                        true
                    }
                    (Some(Some((stands, _))), _) => *stands != boot,
                    _ => true,
                })
            }
            DatabaseRequest::Orphan(node, boot) => {
                for task in &mut self.tasks {
                    if task.holder == Holder::Ours(node, boot) && matches!(task.status, -1 | 0) {
                        task.status = -6;
                    }
                }
                self.holds.retain(|(_, holder)| *holder != boot);
                DatabaseAnswer::Yes(true)
            }
            _ => unreachable!(),
        }
    }

    pub(super) fn answer_about_tasks(
        &mut self,
        node: usize,
        ask: DatabaseRequest,
    ) -> DatabaseAnswer {
        match ask {
            DatabaseRequest::Sweep(boot, tasks, holds) => {
                for id in tasks {
                    if let Some(task) = self.owned_task(id, node, boot).filter(|it| it.status == -1)
                    {
                        *task = Task { status: -2, holder: Holder::Nobody };
                    }
                }
                self.holds.retain(|(id, _)| !holds.contains(id));
                DatabaseAnswer::Yes(true)
            }
            DatabaseRequest::Foreign => DatabaseAnswer::Count(self.foreign()),
            DatabaseRequest::Fits(id) => {
                let held = self.holds.iter().any(|(hold, _)| *hold == id);
                let others = (self.holds.len() as u64).saturating_sub(1) + self.foreign();
                DatabaseAnswer::Yes(held && Limit::At(THREADS).allows_one_more(others))
            }
            DatabaseRequest::Hold(id, boot, place) => {
                let free = self.holds.len() as u64 <= place;
                if free {
                    self.holds.push((id, boot));
                }
                DatabaseAnswer::HoldPosition(free.then_some(self.holds.len() as u64))
            }
            DatabaseRequest::Claim(boot) => {
                let free = self.tasks.iter().position(|task| task.status == -2);
                if let Some(task) = free {
                    self.tasks[task] = Task { status: -1, holder: Holder::Ours(node, boot) };
                }
                DatabaseAnswer::Task(free)
            }
            DatabaseRequest::Unclaim(task, boot) => {
                if let Some(task) =
                    self.owned_task(task, node, boot).filter(|task| task.status == -1)
                {
                    *task = Task { status: -2, holder: Holder::Nobody };
                }
                DatabaseAnswer::Yes(true)
            }
            DatabaseRequest::Start(task, boot) => {
                let task =
                    self.owned_task(task, node, boot).filter(|it| matches!(it.status, -1 | 0));
                DatabaseAnswer::Yes(task.map(|task| task.status = 0).is_some())
            }
            DatabaseRequest::Finish(task, boot, status) => {
                let task =
                    self.owned_task(task, node, boot).filter(|it| matches!(it.status, -1 | 0));
                DatabaseAnswer::Yes(task.map(|task| task.status = status).is_some())
            }
            DatabaseRequest::Drop(id, boot) => {
                self.holds.retain(|hold| *hold != (id, boot));
                DatabaseAnswer::Yes(true)
            }
            _ => unreachable!(),
        }
    }
}
