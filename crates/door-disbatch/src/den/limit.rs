//! How many tasks may still be taken: pure.
//!
//! A node's own limit, and the limit that a queue of the seed has on each node, are kept by the
//! node alone, which knows exactly what it has. The limit of a released queue holds over all nodes:
//! ours share it out among themselves by holds in the queue's document, and leave room for what
//! foreign nodes run.

use std::collections::HashMap;

use mongodb::bson::oid::ObjectId;

/// Whether one more fits.
pub(crate) fn has_room(limit: Option<u64>, used: u64) -> bool {
    limit.is_none_or(|limit| used < limit)
}

/// What may still be started within one pass of a second.
#[derive(Debug, Clone)]
pub(crate) struct Increase {
    node: Option<u64>,
    queue: Option<u64>,
    by_queue: HashMap<ObjectId, u64>,
    sum: u64,
}

impl Increase {
    pub(crate) fn new(node: Option<u64>, queue: Option<u64>) -> Increase {
        Increase { node, queue, by_queue: HashMap::new(), sum: 0 }
    }

    pub(crate) fn node_has_room(&self) -> bool {
        has_room(self.node, self.sum)
    }

    pub(crate) fn has_room(&self, queue: ObjectId) -> bool {
        let used = self.by_queue.get(&queue).copied().unwrap_or(0);
        self.node_has_room() && has_room(self.queue, used)
    }

    pub(crate) fn took(&mut self, queue: ObjectId) {
        self.sum += 1;
        *self.by_queue.entry(queue).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_no_limit_and_zero_is_nothing() {
        assert!(has_room(None, u64::MAX));
        assert!(!has_room(Some(0), 0));
        assert!(has_room(Some(2), 1));
        assert!(!has_room(Some(2), 2));
    }

    #[test]
    fn an_increase_counts_queues_and_the_node() {
        let (a, b) = (ObjectId::new(), ObjectId::new());
        let mut increase = Increase::new(Some(3), Some(2));
        increase.took(a);
        increase.took(a);
        assert!(!increase.has_room(a) && increase.has_room(b));
        increase.took(b);
        assert!(!increase.has_room(b) && !increase.node_has_room());
        let mut free = Increase::new(None, None);
        (0..1000).for_each(|_| free.took(a));
        assert!(free.has_room(a));
    }
}
