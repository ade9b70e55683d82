//! The audit: every change that began has an entry, however it ended.

use std::sync::Arc;

use windlass_core::audit::{Act, Actor, AuditFilter, Subject};
use windlass_core::memory::MemoryStore;
use windlass_core::store::AuditList;
use windlass_core::store::prelude::*;
use windlass_engine::Error;
use windlass_engine::api::Ended;

use crate::fake::Daemon;
use crate::quick;

#[tokio::test]
async fn a_change_that_panics_has_its_outcome_in_the_audit() {
    let store = Arc::new(MemoryStore::default());
    let daemon = Daemon::start_on(store.clone(), quick).await;
    let (by, action, subject) = (Actor::Insecure, "job_cancel".to_owned(), Subject::default());
    let act = Act { by, address: None, action, subject };
    let change = async { panic!("a defect") as ((), Ended) };
    let answer = daemon.engine.audited(act, change).await;
    assert!(matches!(answer, Err(Error::Internal(why)) if why == "panicked: a defect"));
    let action = Some("job_cancel".to_owned());
    let filter = AuditFilter { action, ..AuditFilter::default() };
    let page = store.audit_list(AuditList { filter, before: None, limit: 10 }).await.unwrap();
    let outcomes: Vec<_> = page.entries.iter().map(|entry| entry.status).collect();
    assert_eq!(outcomes, [Some(500)]);
}
