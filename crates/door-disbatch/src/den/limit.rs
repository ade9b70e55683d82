//! How many tasks may be started within one pass. Pure. The limits on simultaneous tasks are in
//! `doc::Limit` and, if they apply to all nodes, in `database`'s holds.

use std::collections::HashMap;

use mongodb::bson::oid::ObjectId;

#[derive(Debug, Clone)]
pub(crate) struct Increase {
    node: Option<u32>,
    queue: Option<u32>,
    by_queue: HashMap<ObjectId, u32>,
    sum: u32,
}

impl Increase {
    pub(crate) fn new(node: Option<u32>, queue: Option<u32>) -> Increase {
        Increase { node, queue, by_queue: HashMap::new(), sum: 0 }
    }

    pub(crate) fn node_has_room(&self) -> bool {
        self.node.is_none_or(|node| self.sum < node)
    }

    pub(crate) fn has_room(&self, queue: ObjectId) -> bool {
        let taken = self.by_queue.get(&queue).copied().unwrap_or(0);
        self.node_has_room() && self.queue.is_none_or(|queue| taken < queue)
    }

    pub(crate) fn record_claim(&mut self, queue: ObjectId) {
        self.sum = self.sum.saturating_add(1);
        let taken = self.by_queue.entry(queue).or_default();
        *taken = taken.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_increase_counts_queues_and_the_node() {
        let (a, b) = (ObjectId::new(), ObjectId::new());
        let mut increase = Increase::new(Some(3), Some(2));
        increase.record_claim(a);
        increase.record_claim(a);
        assert!(!increase.has_room(a) && increase.has_room(b));
        increase.record_claim(b);
        assert!(!increase.has_room(b) && !increase.node_has_room());
        let mut free = Increase::new(None, None);
        (0..1000).for_each(|_| free.record_claim(a));
        assert!(free.has_room(a));
    }
}
