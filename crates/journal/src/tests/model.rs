//! Random sequences of all operations, compared with a model of what a journal should hold.

use std::collections::BTreeMap;

use super::fault::FaultDisk;
use super::rewind::{appended, small};
use super::*;
use crate::Ticket;

/// What a journal should hold.
#[derive(Default)]
struct Model {
    /// Every record, and whether it has been read.
    records: BTreeMap<JobId, bool>,
    floor: Option<JobId>,
    dropped: Option<JobId>,
    tickets: Vec<Ticket>,
}

impl Model {
    fn unread(&self) -> Vec<JobId> {
        self.records.iter().filter(|(_, read)| !**read).map(|(id, _)| *id).collect()
    }

    /// Everything up to this has been read.
    fn position(&self) -> Option<JobId> {
        let read = self.records.iter().take_while(|(_, read)| **read);
        read.last().map(|(id, _)| *id)
    }

    fn go_to(&mut self, position: Option<JobId>) {
        self.floor = position;
        for (id, read) in &mut self.records {
            *read = Some(*id) <= position;
        }
    }

    async fn step(&mut self, journal: &Journal, luck: &mut fastrand::Rng) {
        match luck.u8(0..10) {
            0..3 => {
                let made = appended(journal, luck.usize(1..5)).await;
                self.records.extend(made.into_iter().map(|id| (id, false)));
            }
            3..5 => self.tickets.extend(journal.reserve(luck.usize(1..6), usize::MAX, Some(LONG))),
            5..7 if !self.tickets.is_empty() => {
                let ticket = self.tickets.swap_remove(luck.usize(..self.tickets.len()));
                if Some(ticket.last()) <= self.floor {
                    assert_eq!(journal.read(&ticket).await, Err(Error::Expired));
                    assert_eq!(journal.commit(ticket), Err(Error::Expired));
                    return;
                }
                let read = ids(&journal.read(&ticket).await.unwrap());
                assert!(!read.is_empty(), "a ticket has something to read");
                journal.commit(ticket).unwrap();
                for id in read {
                    assert_eq!(self.records.insert(id, true), Some(false), "{id} was read twice");
                }
            }
            7 => {
                if let Some(position) = self.position() {
                    journal.drop_until(position).await.unwrap();
                    self.floor = self.floor.max(Some(position));
                    self.dropped = self.dropped.max(Some(position));
                }
            }
            8 => {
                let at = luck.usize(..=self.records.len());
                let position = at.checked_sub(1).map(|at| *self.records.keys().nth(at).unwrap());
                let rewound = journal.rewind(position).await;
                for ticket in self.tickets.drain(..) {
                    assert_eq!(journal.commit(ticket), Err(Error::Expired));
                }
                match rewound {
                    Ok(()) => self.go_to(position),
                    Err(Error::Gap { .. }) => assert!(position < self.dropped),
                    Err(error) => panic!("{error}"),
                }
            }
            9 if !self.records.is_empty() => {
                let at = luck.usize(..self.records.len());
                let position = *self.records.keys().nth(at).unwrap();
                journal.commit_until(position);
                self.floor = self.floor.max(Some(position));
                self.records.range_mut(..=position).for_each(|(_, read)| *read = true);
            }
            _ => {}
        }
    }

    async fn check(&self, journal: &Journal, note: &str) {
        let unread = self.unread();
        assert_eq!(journal.stats().unread_records as usize, unread.len(), "{note}");
        let (mut seen, mut before) = (Vec::new(), None);
        loop {
            let newest = journal.newest(before, |_| true).await.unwrap();
            seen.extend(ids(&newest.records));
            before = newest.rest_below;
            if before.is_none() {
                break;
            }
        }
        seen.reverse();
        assert_eq!(seen, unread, "{note}");
        for (id, read) in &self.records {
            let found = journal.find(*id).await.unwrap().is_some();
            assert!(found || *read, "{note}: {id} is lost");
            assert!(!found || Some(*id) > self.floor, "{note}: {id} is in the store");
        }
    }
}

#[tokio::test]
async fn any_order_of_reading_dropping_rewinding_and_restarting_agrees_with_a_model() {
    for seed in 0..30 {
        let mut luck = fastrand::Rng::with_seed(seed);
        let keep = if luck.bool() { LONG } else { Duration::ZERO };
        let disk = FaultDisk::default();
        let open = |ingested| {
            let options = small(Path::new("/data"), keep);
            super::open_on(Arc::new(disk.clone()), options, clock(), ingested).unwrap()
        };
        let mut journal = open(None);
        let mut model = Model::default();
        for step in 0..80 {
            model.step(&journal, &mut luck).await;
            if luck.u8(0..20) == 0 {
                journal.close().await;
                let position = model.position();
                journal = open(position);
                model.tickets.clear();
                model.go_to(position);
            }
            model.check(&journal, &format!("seed {seed}, step {step}")).await;
        }
        if keep > Duration::ZERO {
            journal.rewind(None).await.unwrap();
            model.go_to(None);
        } else {
            model.tickets.drain(..).for_each(|ticket| journal.give_back(ticket));
        }
        assert_eq!(ids(&drain(&journal).await), model.unread(), "seed {seed}");
        journal.close().await;
    }
}
