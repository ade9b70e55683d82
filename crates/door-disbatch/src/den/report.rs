//! The statistics of each queue that a node of the seed's dialect stores in its entry. Pure.

use mongodb::bson::{Bson, Document, doc};

use crate::doc::{Limit, Queue};

/// `doing`: claimed or running tasks on all nodes.
pub(super) fn report(queue: &Queue, doing: u64) -> Document {
    let doing = i64::try_from(doing).unwrap_or(i64::MAX);
    let todo = queue.count_todo.unwrap_or(0);
    let done = queue.count_total.unwrap_or(0).saturating_sub(todo);
    let limit = match queue.limit {
        Limit::Unlimited => Bson::Null,
        Limit::At(limit) => Bson::Int64(i64::try_from(limit).unwrap_or(i64::MAX)),
    };
    doc! {
        "id": queue.id.to_hex(),
        "name": &queue.name,
        "constructor": &queue.plugin,
        "maxthreads": limit,
        // Counters are updated after the tasks, so the difference may be negative for a moment.
        "tasks_todo": todo.saturating_sub(doing).max(0),
        "tasks_doing": doing,
        "tasks_done": done.max(0),
        "preemptive": 1,
        "tasks_backfill": 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;
    use mongodb::bson::oid::ObjectId;

    fn queue(fields: Document) -> Queue {
        let mut document = doc! { "_id": ObjectId::new(), "name": "a", "constructor": "P" };
        document.extend(fields);
        Queue::read(&document, Dialect::Seed).unwrap()
    }

    #[test]
    fn a_report_has_every_field_of_the_protocol() {
        let queue = queue(doc! { "maxthreads": 3, "count_todo": 10, "count_total": 25 });
        let expected = doc! {
            "id": queue.id.to_hex(), "name": "a", "constructor": "P", "maxthreads": 3_i64,
            "tasks_todo": 8_i64, "tasks_doing": 2_i64, "tasks_done": 15_i64,
            "preemptive": 1, "tasks_backfill": 0,
        };
        assert_eq!(report(&queue, 2), expected);
    }

    #[test]
    fn no_number_is_negative_and_no_limit_is_null() {
        let report = report(&queue(doc! { "count_todo": 1, "count_total": 0 }), 4);
        assert_eq!(report.get("maxthreads"), Some(&Bson::Null));
        for field in ["tasks_todo", "tasks_done"] {
            assert_eq!(report.get_i64(field).unwrap(), 0, "{field}");
        }
    }
}
