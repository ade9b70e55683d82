//! The columns of the table `jobs`.

/// In order.
pub const COLUMNS: [&str; 11] = [
    "created",
    "jobID",
    "state",
    "name",
    "nextRun",
    "lastRun",
    "repeat",
    "data",
    "priority",
    "parentJobID",
    "retryAfter",
];

// The index of each column.
pub const CREATED: usize = 0;
pub const JOB_ID: usize = 1;
pub const STATE: usize = 2;
pub const NAME: usize = 3;
pub const NEXT_RUN: usize = 4;
pub const LAST_RUN: usize = 5;
pub const REPEAT: usize = 6;
pub const DATA: usize = 7;
pub const PRIORITY: usize = 8;
pub const PARENT: usize = 9;
pub const RETRY_AFTER: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_stands_where_it_is_said_to() {
        let places = [
            (CREATED, "created"),
            (JOB_ID, "jobID"),
            (STATE, "state"),
            (NAME, "name"),
            (NEXT_RUN, "nextRun"),
            (LAST_RUN, "lastRun"),
            (REPEAT, "repeat"),
            (DATA, "data"),
            (PRIORITY, "priority"),
            (PARENT, "parentJobID"),
            (RETRY_AFTER, "retryAfter"),
        ];
        assert_eq!(places.map(|(_, name)| name), COLUMNS);
        assert!(places.iter().all(|(place, name)| COLUMNS[*place] == *name));
    }
}
