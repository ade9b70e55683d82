//! Round-robin over the queues: in each round every eligible queue gets one task, and the next pass
//! starts after the queue that was served last. Pure.

use mongodb::bson::oid::ObjectId;

#[derive(Debug, Default)]
pub(crate) struct Turns {
    served: Option<ObjectId>,
}

impl Turns {
    /// The order for one pass, as indexes into `queues`.
    pub(crate) fn order(&self, queues: &[ObjectId]) -> Vec<usize> {
        let last = self.served.and_then(|served| queues.iter().position(|id| *id == served));
        let first = last.map_or(0, |last| last + 1);
        (0..queues.len()).map(|place| (first + place) % queues.len()).collect()
    }

    pub(crate) fn served(&mut self, queue: ObjectId) {
        self.served = Some(queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(count: usize) -> Vec<ObjectId> {
        (0..count).map(|_| ObjectId::new()).collect()
    }

    #[test]
    fn the_next_pass_begins_behind_the_queue_served_last() {
        let queues = queues(3);
        let mut turns = Turns::default();
        assert_eq!(turns.order(&queues), [0, 1, 2]);
        turns.served(queues[1]);
        assert_eq!(turns.order(&queues), [2, 0, 1]);
        turns.served(queues[2]);
        assert_eq!(turns.order(&queues), [0, 1, 2]);
    }

    #[test]
    fn a_queue_that_is_gone_does_not_matter() {
        let queues = queues(2);
        let mut turns = Turns::default();
        turns.served(ObjectId::new());
        assert_eq!(turns.order(&queues), [0, 1]);
        assert_eq!(turns.order(&[]), [0_usize; 0]);
    }

    #[test]
    fn one_free_place_goes_round() {
        let queues = queues(3);
        let mut turns = Turns::default();
        let mut served = [0; 3];
        for _ in 0..9 {
            let first = turns.order(&queues)[0];
            served[first] += 1;
            turns.served(queues[first]);
        }
        assert_eq!(served, [3, 3, 3]);
    }
}
