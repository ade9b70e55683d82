//! Rewrites rows of jobs that end or are queued again, all in one statement.

use windlass_core::State;
use windlass_core::job::Ended;
use windlass_core::time::Timestamp;

use crate::error::Result;
use crate::row::{self, part};
use crate::settle::{Again, End};
use crate::tx::{Tx, values};

const REWRITE: &str = include_str!("../sql/rewrite.sql");

/// The columns of rows to write. A row keeps what is `None`, except its end.
#[derive(Default)]
pub(crate) struct Rewrites {
    ids: Vec<i64>,
    states: Vec<i16>,
    attempts: Vec<i32>,
    tokens: Vec<Option<i64>>,
    starts: Vec<Option<i64>>,
    run_at: Vec<Option<i64>>,
    due_at: Vec<Option<i64>>,
    finished_at: Vec<Option<i64>>,
    purge_at: Vec<Option<i64>>,
    codes: Vec<Option<i16>>,
    statuses: Vec<Option<i16>>,
    parts: Vec<i32>,
}

impl Rewrites {
    pub(crate) fn push_end(&mut self, end: &End<'_>) {
        self.ids.push(end.id);
        self.states.push(row::state_number(end.state));
        self.attempts.push(end.attempt as i32);
        self.tokens.push(end.token.map(|token| token.0));
        self.starts.push(end.started_at.map(Timestamp::ms));
        self.run_at.push(None);
        self.due_at.push(None);
        self.finished_at.push(Some(end.finished_at.ms()));
        self.purge_at.push(Some(end.purge_at.ms()));
        self.push_ended(end.ended);
        self.parts.push(end.parts & !part::LENT);
    }

    pub(crate) fn push_again(&mut self, again: &Again) {
        self.ids.push(again.key.id);
        self.states.push(row::state_number(State::Queued));
        self.attempts.push(again.attempt as i32);
        self.tokens.push(Some(again.token.0));
        self.starts.push(again.started_at.map(Timestamp::ms));
        self.run_at.push(Some(again.key.run_at.ms()));
        self.due_at.push(again.due_at.map(Timestamp::ms));
        self.finished_at.push(None);
        self.purge_at.push(None);
        self.push_ended(again.ended);
        self.parts.push(again.parts);
    }

    fn push_ended(&mut self, ended: Option<Ended>) {
        self.codes.push(ended.map(|ended| row::code_number(ended.code)));
        self.statuses.push(ended.map(|ended| ended.status.get() as i16));
    }

    pub(crate) async fn write(self, tx: &mut Tx<'_>) -> Result<()> {
        if self.ids.is_empty() {
            return Ok(());
        }
        let Rewrites { ids, states, attempts, tokens, starts, run_at, due_at, .. } = self;
        let Rewrites { finished_at, purge_at, codes, statuses, parts, .. } = self;
        tx.later(
            REWRITE,
            values![
                ids,
                states,
                attempts,
                tokens,
                starts,
                run_at,
                due_at,
                finished_at,
                purge_at,
                codes,
                statuses,
                parts,
            ],
        )
        .await
    }
}
