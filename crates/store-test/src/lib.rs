//! ONE conformance suite that every store must pass, written from the text of the contract in
//! `windlass_core::store`, and a seeded model test that compares a store with the reference store.
//!
//! A store's test file gives a [`Harness`] and one line, `windlass_store_test::conformance!(..)`,
//! which makes one named test of every case below, in a module per area. Time is passed to every
//! call of a store, so no case needs a clock, and none sleeps.

// Everything in this crate is a test, although the compiler cannot see it.
#![allow(clippy::unwrap_used)]

mod claim;
mod fixture;
mod insert;
mod settle;

use std::sync::Arc;

use async_trait::async_trait;

use windlass_core::Store;

/// Makes the stores that the cases run on.
#[async_trait]
pub trait Harness: Send + Sync {
    /// A new, empty store.
    async fn fresh(&self) -> Arc<dyn Store>;

    /// Another handle on the same data as the newest `fresh()` gave, as a second daemon would open
    /// it. `None` when the store is for one daemon only.
    async fn second(&self) -> Option<Arc<dyn Store>>;

    /// Closes the store and opens it again on the same data. `None` when nothing outlives a close.
    async fn reopen(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>>;
}

/// Makes the list of cases known to other crates, and the macro that turns it into tests. A case
/// that is written but not listed is unreachable code, which the compiler reports.
macro_rules! suite {
    ($d:tt $($area:ident { $($case:ident)* })*) => {
        /// Every case, by area.
        pub mod case {
            $(pub mod $area {
                pub use crate::$area::{$($case),*};
            })*
        }

        /// One test for every case, with a harness of its own: `conformance!(Harness::new())`.
        #[macro_export]
        macro_rules! conformance {
            ($d harness:expr) => {
                $(mod $area {
                    #[allow(unused_imports)]
                    use super::*;
                    $(
                        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                        async fn $case() {
                            let harness = $d harness;
                            $crate::case::$area::$case(&harness).await;
                        }
                    )*
                })*
            };
        }
    };
}

suite! { $
    insert {
        s0_12_a_new_job_waits_for_its_time_and_has_no_owner
        every_field_comes_back
        answers_come_in_the_order_of_the_jobs
        s0_25_a_repeated_insert_changes_nothing
        a_repeated_insert_does_not_revive_an_ended_job
        an_id_is_taken_once_in_a_batch
        an_id_is_taken_once_across_tenants
        an_empty_insert_is_harmless
        types_come_into_being_by_themselves
        names_are_taken_to_the_letter
        ids_have_63_bits
        a_full_batch_goes_in_at_once
    }
    claim {
        s0_13_a_claimed_job_has_an_owner_and_a_time_out
        s0_5_a_job_is_not_claimed_before_its_time
        s2_26_the_oldest_goes_first
        the_most_urgent_go_first
        no_more_than_the_limit
        skips_suspended_types
        each_pick_gets_its_own
        a_type_may_be_picked_twice
        an_unknown_type_gives_nothing_and_stays_unknown
        a_running_job_is_not_claimed_again
        an_ended_job_is_not_claimed
        a_floor_gives_the_less_urgent_the_first_turn
        a_floor_counts_its_own_priority_in
        a_floor_that_nothing_is_under_changes_nothing
        a_floor_skips_what_is_not_due
        tokens_grow_from_claim_to_claim
        tokens_grow_beyond_an_older_boot
        the_handler_in_force_comes_along
        types_of_the_same_name_are_apart
    }
    settle {
        s0_16_a_finished_job_is_kept_with_its_true_finish_time_and_never_runs_again
        s0_49_an_archived_job_keeps_how_it_ended
        s0_49_a_retried_job_comes_back_after_its_delay
        s0_49_a_released_job_comes_back_and_its_attempt_does_not_count
        a_release_keeps_how_an_earlier_attempt_ended
        s2_36_a_job_may_end_in_each_of_the_endings
        answers_come_in_the_order_of_the_settlements
        s0_50_a_wrong_token_changes_nothing
        s0_50_a_late_owner_cannot_settle_what_another_runs
        a_job_is_settled_once
        the_second_settlement_of_a_batch_is_stale
        an_unknown_job_is_stale
        a_lease_that_ran_out_unbroken_still_settles
    }
}
