//! List: newest first, from the store and from the part of our journal that is not ingested yet.

use std::collections::HashSet;

use windlass_core::store::{List, Page};
use windlass_core::{Job, JobId, NewJob, State};
use windlass_journal::Newest;

use crate::ask::read::LIST_PATIENCE;
use crate::error::Error;
use crate::error::{journal_error, store_error};
use crate::shared::Shared;

pub(crate) async fn job_list(shared: &Shared, list: List) -> Result<Page, Error> {
    let fresh = shared.fresh.all(LIST_PATIENCE).await;
    let queued_wanted = list.state.is_none_or(|state| state == State::Queued);
    if fresh || !queued_wanted {
        return shared.store.job_list(list).await.map_err(store_error);
    }
    // The journal first: a job that is ingested in between is seen twice, not missed.
    let newest = shared.journal.newest(list.before, wanted(&list)).await.map_err(journal_error)?;
    let limit = list.limit;
    let stored = shared.store.job_list(list).await.map_err(store_error)?;
    Ok(merge(newest, stored, limit))
}

fn wanted(list: &List) -> impl Fn(&NewJob) -> bool + Send + 'static {
    let (tenant, name) = (list.tenant.clone(), list.name.clone());
    move |job| job.key.tenant == tenant && name.as_ref().is_none_or(|name| job.key.name == *name)
}

/// Merges both into one page. It ends where the search in either of them ended.
fn merge(newest: Newest, stored: Page, limit: usize) -> Page {
    let known: HashSet<JobId> = stored.jobs.iter().map(|job| job.id).collect();
    let unread = newest.records.into_iter().map(|record| Job::queued(record.job));
    let mut jobs: Vec<Job> = unread.filter(|job| !known.contains(&job.id)).collect();
    jobs.extend(stored.jobs);
    jobs.sort_by_key(|job| std::cmp::Reverse(job.id));
    let end = newest.rest_below.max(stored.next);
    if let Some(end) = end {
        jobs.retain(|job| job.id >= end);
    }
    let cut = jobs.len() > limit;
    jobs.truncate(limit);
    let next = if cut { jobs.last().map(|job| job.id) } else { end };
    Page { jobs, next }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::{Payload, Timestamp, TypeKey};
    use windlass_journal::Record;

    fn new_job(id: i64) -> NewJob {
        let key = TypeKey::new("a", "t").unwrap();
        let payload = Payload::Inline(bytes::Bytes::new());
        NewJob::new(JobId::new(id).unwrap(), key, payload, Timestamp(0))
    }

    fn merged(
        unread: (&[i64], Option<i64>),
        stored: (&[i64], Option<i64>),
        limit: usize,
    ) -> (Vec<i64>, Option<i64>) {
        let record = |id: &i64| Record { job: new_job(*id), spool: None, note: None };
        let newest = Newest {
            records: unread.0.iter().map(record).collect(),
            rest_below: unread.1.and_then(JobId::new),
        };
        let jobs = stored.0.iter().map(|id| Job::queued(new_job(*id))).collect();
        let page = merge(newest, Page { jobs, next: stored.1.and_then(JobId::new) }, limit);
        (page.jobs.iter().map(|job| job.id.get()).collect(), page.next.map(JobId::get))
    }

    #[test]
    fn both_are_shown_newest_first_and_each_job_once() {
        assert_eq!(merged((&[9, 7], None), (&[8, 7, 2], None), 10), (vec![9, 8, 7, 2], None));
    }

    #[test]
    fn a_page_ends_at_its_limit_and_where_one_of_them_ends() {
        assert_eq!(merged((&[9, 7], None), (&[8, 2], None), 2), (vec![9, 8], Some(8)));
        assert_eq!(merged((&[9, 7], Some(7)), (&[8, 2], None), 9), (vec![9, 8, 7], Some(7)));
        assert_eq!(merged((&[9, 1], None), (&[8, 5], Some(5)), 9), (vec![9, 8, 5], Some(5)));
        assert_eq!(merged((&[], Some(4)), (&[3], None), 9), (vec![], Some(4)));
    }
}
