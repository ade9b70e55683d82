//! The list of all cases, and the macro that makes each a named test.

/// Defines the list of cases and the macro that turns it into tests. A case that is not listed is
/// dead code, which the compiler reports.
macro_rules! suite {
    ($d:tt $($area:ident { $($case:ident)* })*) => {
        /// Every case, by area.
        pub mod case {
            $(pub mod $area {
                pub use crate::$area::{$($case),*};
            })*
        }

        /// One test for every case, each with its own harness: `conformance!(Harness::new())`.
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
        a_time_that_has_passed_is_shown_and_means_now
        every_field_comes_back
        answers_come_in_the_order_of_the_jobs
        s0_25_a_repeated_insert_changes_nothing
        a_repeated_insert_does_not_revive_an_ended_job
        an_id_is_taken_once_in_a_batch
        an_id_whose_job_was_held_back_is_free_in_the_same_batch
        an_id_is_taken_once_across_tenants
        an_empty_insert_is_harmless
        types_come_into_being_by_themselves
        names_are_taken_to_the_letter
        ids_have_63_bits
        a_full_batch_goes_in_at_once
    }
    add {
        an_add_enters_whole_and_what_moved_is_told
        an_add_with_a_key_that_is_known_adds_nothing
        an_outdated_key_can_be_used_anew
        a_key_remembers_the_ids_that_were_answered
        the_holder_of_a_unique_key_stands_for_a_child_too
        a_child_begins_as_its_parent_lets_it
        an_unfit_parent_refuses_the_whole_add
        pieces_of_jobs_that_do_not_enter_are_removed
        an_add_is_durable_with_its_key
        an_id_that_is_there_changes_nothing
        a_full_add_enters_at_once
    }
    unique {
        a_held_job_does_not_enter
        a_key_is_held_until_its_job_ends
        every_ending_frees_the_key
        a_key_is_held_within_a_batch
        a_repeated_insert_of_the_holder_is_a_duplicate
        keys_belong_to_one_type_of_one_tenant
        keys_are_taken_to_the_letter
        jobs_without_a_key_are_never_held
    }
    claim {
        s0_13_a_claimed_job_has_an_owner_and_a_time_out
        s0_5_a_job_is_not_claimed_before_its_time
        the_tokens_of_one_job_grow
        s2_26_the_oldest_goes_first
        the_most_urgent_go_first
        no_more_than_the_limit
        payloads_have_a_limit_together
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
        every_claim_has_the_token_that_its_caller_brought
        the_handler_in_force_comes_along
        types_of_the_same_name_are_apart
        a_due_job_is_found_behind_very_many_that_came_due_before_it
    }
    beat {
        a_lease_on_the_beat_lasts_as_long_as_its_owners_number
        a_beat_moves_no_lease_with_an_expiry_of_its_own
        a_released_number_ends_its_leases
        a_number_given_to_another_leaves_the_leases_as_they_were
        a_claim_on_a_foreign_beat_takes_nothing
        a_lease_on_the_beat_is_broken_only_when_the_number_has_run_out
        a_renewed_lease_leaves_the_beat
        a_decision_keeps_a_lease_on_the_beat
        a_daemon_finds_all_that_it_holds_in_pages
        a_claim_is_found_by_its_token
        what_has_ended_is_not_held
        a_late_release_leaves_the_next_owners_leases
        a_claim_on_the_beat_of_a_number_that_was_given_back_takes_nothing
        a_claim_on_the_beat_of_a_number_that_has_run_out_takes_nothing
        a_beat_that_is_late_prolongs_leases_that_ran_out
        what_a_daemon_holds_comes_in_the_order_of_ids
        leases_of_all_kinds_run_out_in_one_order
    }
    daemon {
        what_a_daemon_says_comes_back
        daemons_come_in_pages_by_number
        a_daemon_whose_beat_has_ended_is_gone_with_what_it_left
        a_number_used_again_hides_no_journal_of_its_last_owner
        one_that_gave_its_number_back_is_listed_only_with_jobs_left
        a_daemon_that_is_gone_for_long_is_forgotten
        what_a_daemon_said_survives_a_restart_of_the_store
    }
    renew {
        s0_14_a_renewed_lease_ends_later
        a_lease_that_ran_out_is_renewed_while_nobody_broke_it
        s0_50_only_the_owner_renews
        a_wrong_token_renews_nothing
        the_lease_of_a_job_that_does_not_run_is_lost
        the_lease_before_the_present_one_is_lost
        many_leases_are_renewed_at_once
    }
    release {
        s0_49_a_released_job_comes_back_and_its_attempt_does_not_count
        a_release_keeps_how_an_earlier_attempt_ended
        s2_36_a_released_job_goes_back_to_its_place
        a_released_job_is_otherwise_as_it_was
        a_released_job_shows_the_start_of_the_attempt_before
        a_released_job_of_a_take_shows_the_start_of_the_attempt_before
        a_job_that_was_not_begun_keeps_its_order_and_the_text_of_its_time
        a_job_that_was_not_begun_goes_back_to_its_old_place
    }
    lifetime {
        a_job_is_claimed_only_before_its_expiry
        a_claim_gets_what_is_behind_expired_jobs
        a_floor_skips_what_has_expired
        an_expired_job_takes_no_room_for_payloads
        an_expired_job_that_claims_have_skipped_is_given_up
        an_expired_job_that_claims_have_skipped_can_be_changed
        a_job_that_expired_while_it_ran_is_not_claimed_again
        a_take_skips_expired_jobs
        a_job_is_found_behind_very_many_that_have_expired
        an_expired_job_is_ready_again_when_the_clock_is_set_back
    }
    clock {
        a_ready_job_stays_ready
        a_job_created_ahead_of_the_clock_is_ready_unless_it_is_to_wait
        a_lease_lasts_as_long_as_it_was_to
        a_lease_without_an_end_has_none_afterwards
        a_daemons_number_and_its_leases_last_as_long_as_they_were_to
        a_lease_is_not_broken_because_the_clock_was_set
        a_retry_waits_as_long_as_it_was_to
        a_lent_job_stays_lent_as_long_as_it_was_to
        pieces_wait_for_their_job_as_long_as_they_were_to
        a_job_that_is_to_run_at_a_time_of_day_waits_for_it
    }
    settle {
        s0_16_a_finished_job_is_kept_with_its_true_finish_time_and_never_runs_again
        s0_49_an_archived_job_keeps_how_it_ended
        s0_49_a_retried_job_comes_back_after_its_delay
        s2_36_a_job_may_end_in_each_of_the_endings
        answers_come_in_the_order_of_the_settlements
        s0_50_a_wrong_token_changes_nothing
        s0_50_a_late_owner_cannot_settle_what_another_runs
        a_job_is_settled_once
        the_second_settlement_of_a_batch_is_stale
        an_unknown_job_is_stale
        a_lease_that_ran_out_unbroken_still_settles
    }
    expire {
        a_lease_runs_out_at_its_time
        the_oldest_expiry_comes_first
        only_running_jobs_have_leases_that_run_out
        s0_15_a_job_whose_lease_was_broken_runs_again
        a_lease_renewed_meanwhile_is_not_broken
        a_job_past_its_expiry_is_given_up
        only_queued_jobs_are_given_up
        no_more_than_the_limit_are_given_up
        a_lost_job_is_given_up_unless_it_runs_or_has_ended
        s0_46_a_job_that_never_got_a_handler_is_given_up
        a_type_with_a_handler_is_not_given_up
        a_type_that_workers_claim_is_not_given_up
        what_counts_is_when_a_job_was_first_due
        only_queued_jobs_are_given_up_as_unhandled
        no_more_than_the_limit_are_given_up_as_unhandled
    }
    cancel {
        a_queued_job_is_cancelled_at_once
        a_running_job_loses_its_lease
        an_ended_job_cannot_be_cancelled
        an_unknown_job_is_not_found
        how_an_earlier_attempt_ended_stays
        a_paused_job_is_cancelled_too
    }
    rerun {
        a_rerun_job_is_as_new
        every_ended_job_can_be_rerun
        a_job_that_has_not_ended_cannot_be_rerun
        a_rerun_forgets_the_result_and_keeps_the_logs
        a_rerun_job_is_not_purged
        a_rerun_takes_its_unique_key_back_or_is_held
        s2_33_finished_jobs_of_a_type_are_queued_again_in_bulk
        a_requeue_keeps_to_its_type_and_state
        a_held_job_does_not_keep_others_from_the_queue
        a_released_job_is_not_touched_by_a_requeue
    }
    delete {
        a_queued_job_goes
        an_ended_job_goes_with_all_that_belongs_to_it
        every_ended_job_can_be_deleted
        a_running_job_stays
        a_paused_job_goes
        an_unknown_job_is_not_found
    }
    list {
        newest_come_first
        a_listing_shows_one_tenant
        every_filter_holds
        pages_join_without_gap_or_overlap
        the_last_page_says_so
        pages_hold_while_jobs_come_and_go
        many_jobs_fill_large_pages
        a_rare_state_is_found_among_many
    }
    waiting {
        what_changed_is_told_in_pages_in_the_order_of_the_changes
        a_type_that_opens_again_has_a_new_revision
        a_type_whose_jobs_were_cancelled_is_reported_when_it_opens_again
        a_change_of_handler_settings_or_suspension_is_told
        types_without_a_handler_are_left_out_when_nobody_asks_for_them
        the_types_without_a_handler_are_reported_of_those_asked_for
        a_tenant_with_very_many_changes_is_cut_and_others_are_reported
        types_that_closed_meanwhile_take_no_place_in_a_look
        tenants_come_one_after_the_other_each_with_its_first_types
        the_next_types_of_a_tenant_come_behind_a_name
        types_are_found_by_name_and_by_pattern
        a_search_by_pattern_goes_on_where_it_ended
        a_type_gives_no_more_than_its_concurrency
        claims_of_all_kinds_at_once_keep_to_a_concurrency
        a_claim_says_how_many_more_there_are
        every_end_of_an_attempt_gives_its_place_back
        a_smaller_concurrency_waits_for_those_that_run
        picks_of_one_claim_share_a_concurrency
        what_a_claim_had_no_room_for_is_reported_again
    }
    count {
        s0_47_only_types_that_can_run_now_are_waiting
        a_type_waits_from_the_moment_its_job_is_due
        the_next_due_time_is_the_earliest_of_any_type
        a_waiting_type_comes_with_handler_and_settings
        s0_59_a_job_is_counted_on_its_whole_way
        a_cancelled_running_job_no_longer_counts_as_running
        giving_up_and_purging_are_counted
        what_does_not_change_a_job_does_not_change_a_number
        the_oldest_ready_job_is_the_one_due_the_longest
        every_type_with_a_job_a_handler_or_settings_is_counted
        the_numbers_of_all_tenants_leave_out_types_that_have_nothing
        reading_brings_no_type_into_being
        a_suspended_type_keeps_its_numbers
        numbers_are_of_one_tenant_or_of_all
    }
    handler {
        s0_53_every_field_of_a_handler_comes_back
        every_language_comes_back
        s0_38_the_newest_version_is_in_force
        s0_37_a_deleted_handler_is_not_in_force
        the_newest_versions_are_kept
        a_list_shows_what_is_in_force_by_name
        a_version_belongs_to_its_type
        the_largest_source_comes_back
    }
    settings {
        a_typed_job_comes_with_settings_and_handler
        every_setting_comes_back
        numbers_out_of_range_are_read_as_the_nearest_within
        new_settings_replace_all_old_ones
        settings_belong_to_one_type_of_one_tenant
        s2_20_a_suspended_type_takes_jobs_and_gives_none
        a_type_may_be_suspended_before_its_first_job
        suspension_settings_and_handler_leave_each_other_alone
    }
    sysid {
        s0_19_numbers_are_distinct_and_a_taken_one_is_refused
        s0_58_a_wanted_number_is_given
        s0_58_a_released_number_is_free_at_once
        s0_58_a_dead_daemons_number_is_free_after_its_lease
        s0_58_a_renewed_number_stays_taken
        a_lease_that_ran_out_is_renewed_if_nobody_took_the_number
        boot_numbers_only_grow
        a_number_that_was_never_used_is_preferred
        when_all_are_taken_the_next_one_is_refused
        the_newest_id_is_known_without_its_job
        the_newest_id_includes_ended_jobs
        boot_numbers_are_not_below_the_clock
        the_newest_id_is_that_of_any_daemon
    }
    journal {
        a_mark_comes_with_its_jobs
        a_mark_moves_only_from_where_it_is
        what_is_inserted_again_behind_its_mark_is_a_duplicate
        a_store_that_forgot_says_where_it_is
        a_flush_keeps_what_was_relaxed
        every_daemon_has_its_own_mark
        an_insert_without_a_mark_leaves_it
        a_mark_may_come_alone
        a_mark_outlives_its_jobs
        an_insert_that_is_refused_leaves_nothing_behind
        an_insert_that_comes_twice_happens_once
    }
    payload {
        s2_29_every_inline_size_comes_back
        s0_44_every_byte_comes_back
        a_payload_stays_through_the_attempts
        s2_29_a_large_payload_comes_back_in_pieces
        a_piece_put_again_replaces_the_first
        pieces_belong_to_one_job
        an_unknown_job_has_no_payload
    }
    log {
        every_attempt_has_its_log
        the_newest_logs_are_kept
        a_long_log_comes_back
        an_unknown_job_has_no_log
        s0_61_the_newest_result_counts
        s0_61_every_json_value_is_a_result
        a_large_result_comes_back
        a_running_job_says_how_far_it_has_come
        progress_is_shown_until_the_next_claim
        progress_is_shown_until_a_rerun
        the_last_progress_comes_with_the_verdict
        s0_50_only_the_owner_says_how_far_a_job_has_come
        progress_of_many_is_answered_in_order
    }
    follow {
        what_follows_a_job_is_kept
        s0_62_a_job_enters_with_the_end_of_another
        s0_62_nothing_follows_a_stale_verdict
        s0_62_each_verdict_of_a_batch_has_its_own
        s0_62_a_large_result_becomes_a_payload_in_pieces
        a_follower_whose_id_is_there_does_not_enter
    }
    emit {
        s0_29_jobs_enter_in_order_with_the_end_of_the_attempt
        jobs_enter_whatever_the_verdict_is
        s0_50_nothing_enters_with_a_stale_verdict
        a_second_verdict_of_the_same_attempt_adds_nothing
        a_held_key_keeps_a_job_out_and_no_other
        an_id_that_is_there_enters_once
        a_child_begins_as_its_parent_lets_it
        a_child_that_is_kept_out_makes_no_parent
        a_child_of_a_hidden_parent_is_hidden
        an_attempt_that_asked_for_children_of_its_own_job_waits_for_them
        children_of_an_attempt_that_did_not_end_well_stay_paused
        jobs_enter_although_theirs_waits_for_older_children
        an_unfit_parent_refuses_the_settlement_and_changes_nothing
        large_payloads_are_split
        the_most_jobs_of_one_attempt_enter_at_once
        an_answer_tells_only_of_what_entered
    }
    idempotency {
        a_key_comes_back_with_its_ids
        a_key_lasts_for_its_time
        a_purge_keeps_keys_that_last
        a_replayed_insert_keeps_the_key
        a_repeat_that_was_accepted_enters_as_cancelled
        an_add_in_several_batches_is_one_add
        an_old_add_under_a_key_that_was_used_anew_is_no_repeat
        two_adds_of_one_batch_with_the_same_key_are_one
        keys_belong_to_one_tenant_and_are_taken_to_the_letter
    }
    audit {
        every_field_of_an_entry_comes_back
        an_entry_that_is_put_again_is_replaced
        entries_are_listed_newest_first_in_pages
        entries_are_filtered
        a_page_looks_at_a_bounded_number_of_entries
        old_entries_are_purged_in_pieces
        synced_entries_are_durable_with_those_before_them
    }
    key {
        every_field_of_a_key_comes_back
        a_key_that_is_put_again_stays_as_it_is
        an_id_belongs_to_one_key
        keys_are_listed_by_id_in_pages_and_by_tenant
        a_revoked_key_stays_revoked
        a_key_of_another_tenant_is_not_revoked_or_rotated
        a_rotated_key_is_replaced_and_ends_after_the_overlap
        a_rotation_does_not_prolong_a_key
        only_a_key_in_force_is_rotated
        the_use_of_a_key_is_noted_once_a_minute
        changes_are_reported_in_their_order
        a_key_that_ended_long_ago_is_removed_by_a_put
        a_tenant_has_so_many_keys_and_no_more
        keys_are_durable
    }
    tenant_settings {
        settings_of_a_tenant_come_back_and_are_replaced
        changed_settings_are_read_in_pages_in_the_order_of_their_changes
        settings_that_are_put_by_daemons_at_once_are_all_reported
        settings_of_tenants_are_durable
    }
    secret {
        a_secret_comes_back_sealed_as_it_was_put
        a_secret_that_is_put_again_has_the_new_version
        secrets_are_listed_by_name_and_belong_to_one_tenant
        a_secret_is_removed_once
        a_tenant_has_a_bounded_number_of_secrets
        all_secrets_are_walked_in_portions
        only_the_same_version_is_sealed_anew
        secrets_are_durable
    }
    purge {
        s0_51_an_ended_job_goes_when_its_time_is_over
        every_job_has_its_own_time
        no_more_than_the_limit_go
        a_job_that_has_not_ended_stays
        cancelled_and_given_up_jobs_go_too
        the_last_ending_counts
        pieces_go_with_their_job
        pieces_whose_job_never_came_go_when_they_have_waited_long_enough
        very_many_pieces_without_a_job_go_with_several_purges
    }
    decide {
        a_decision_gets_the_stores_time
        a_decision_sees_a_job_with_its_family
        a_decision_sees_the_lease_and_how_long_jobs_are_kept
        a_decision_sees_only_jobs_of_its_tenant
        the_only_one_is_the_oldest_that_counts
        a_put_job_is_what_it_says
        what_does_not_go_with_a_state_is_gone
        a_put_job_moves_between_queue_lease_and_end
        a_lease_that_was_put_is_a_lease
        a_lease_with_a_smaller_token_is_not_put
        result_log_and_progress_stay
        a_put_payload_replaces_the_old_one_at_every_size
        a_unique_key_goes_with_its_job
        an_insert_enters_with_its_parent_marked
        a_delete_removes_all_that_belongs_to_a_job
        children_are_moved_in_bulk
        an_ended_job_without_a_time_to_go_stays
        later_decisions_see_what_earlier_ones_changed
        a_refusal_undoes_all_before_it
        a_refusal_does_not_reach_others
        a_decision_that_panics_is_an_internal_error_and_changes_nothing
        what_moved_is_told
    }
    take {
        a_taken_job_is_what_the_decision_made_of_it
        a_take_whose_decision_panics_takes_nothing
        the_order_is_priority_then_time_then_name_then_id
        jobs_of_one_millisecond_go_by_their_keys_and_then_what_was_lent
        one_after_the_other_gives_the_same_order
        a_glob_matches_the_whole_name
        a_list_has_no_patterns
        no_more_than_the_limit_are_asked_for
        a_job_that_is_lent_is_queued_for_later
        only_this_priority
        large_payloads_are_passed_over
        payloads_fit_together_and_a_job_that_never_fits_is_named
        a_search_that_ends_early_says_where_it_goes_on
        suspended_types_give_nothing
        tenants_take_their_own
        a_job_comes_with_its_parent_or_its_ended_children
        jobs_have_to_fit_together_with_their_parents
        ended_children_are_shown_with_the_payloads_that_fit
        few_names_are_found_among_very_many
        whoever_takes_looks_after_a_type
        takers_never_take_the_same_job
        a_decision_that_cannot_be_carried_out_takes_nothing
        a_take_with_a_smaller_token_takes_nothing
    }
    family {
        a_child_is_not_run_while_its_parent_is
        a_parent_that_ended_well_waits_for_its_children
        the_last_child_wakes_its_parent
        a_child_that_is_tried_again_is_waited_for
        a_failed_child_wakes_nobody
        a_given_up_child_wakes_nobody
        who_waits_may_expire
        a_cancelled_child_wakes_its_parent
        a_removed_child_wakes_its_parent
        a_parent_without_pending_children_ends
        a_parent_that_fails_leaves_its_children
        a_parent_that_repeats_after_a_failure_leaves_them_too
        a_cancelled_parent_takes_its_waiting_children_along
        a_parent_settled_as_cancelled_takes_them_along_too
        a_removed_parent_leaves_no_child_paused
        a_purged_parent_leaves_no_child_paused
        only_a_paused_parent_is_woken
        a_child_without_its_parent_is_like_any_job
        words_for_an_old_time_go_with_it
        what_else_a_job_has_stays_through_its_attempts
    }
    repeat {
        a_repeated_job_waits_for_its_next_time
        a_job_repeats_after_attempts_that_failed
        a_repeated_job_keeps_its_unique_key
        a_job_follows_each_repetition
        a_parent_repeats_when_its_children_have_ended
        a_cancelled_one_does_not_repeat
    }
    hidden {
        a_hidden_job_is_not_claimed
        a_hidden_job_counts_as_deferred
        a_take_that_asks_for_them_gets_them_in_their_place
        named_types_give_theirs_too
        hidden_jobs_are_found_among_very_many_hidden_types
        a_hidden_job_stays_hidden
        a_hidden_job_that_nobody_wants_is_given_up
    }
    tenant {
        jobs_of_another_tenant_cannot_be_read
        jobs_of_another_tenant_cannot_be_settled
        jobs_of_another_tenant_cannot_be_changed
        jobs_of_another_tenant_cannot_be_claimed
        handlers_and_settings_of_another_tenant_are_out_of_reach
        a_unique_key_of_another_tenant_holds_nothing
    }
    rate {
        a_type_starts_no_more_than_its_rate
        jobs_that_end_give_no_start_back
        a_type_that_rests_stays_open_and_holds_up_no_other
        claims_and_takes_share_a_rate
        a_take_names_the_types_whose_rests_it_met
        a_new_rate_counts_what_has_started
        a_rest_lasts_as_long_as_it_was_to_when_the_clock_is_set
        a_rate_may_be_set_before_the_first_job
        a_rate_counts_for_both
    }
    concurrency {
        s0_48_eight_takers_never_take_the_same_job
        s0_48_jobs_that_are_settled_meanwhile_do_not_come_back
        s0_19_twenty_daemons_at_once_get_twenty_numbers
        s0_19_one_of_many_gets_the_number_they_all_want
        a_unique_key_lets_one_of_many_in
        one_id_inserted_by_many_enters_once
        one_idempotency_key_sent_by_many_adds_once
        a_job_is_settled_or_cancelled_but_not_both
        tokens_stay_distinct_when_a_job_goes_round
    }
    shared {
        each_sees_what_the_other_did
        handlers_and_settings_are_common
        s0_19_numbers_and_boots_are_common
        marks_and_ids_are_common
        tokens_grow_across_daemons
        an_idempotency_key_counts_for_both
        with_wakes_one_hears_of_what_the_other_added
        with_wakes_one_hears_of_every_change_of_a_type
        s0_48_they_never_claim_the_same_job
        a_job_before_those_that_were_claimed_comes_next
        a_concurrency_counts_for_both
        a_mark_that_the_other_moved_is_behind
        a_key_that_the_other_used_makes_an_ingest_a_repeat
        a_beat_of_one_is_seen_by_the_other
    }
    persist {
        jobs_in_every_state_are_still_there
        a_running_job_is_still_its_owners
        what_belongs_to_a_job_is_still_there
        s0_62_a_job_that_followed_is_still_there
        families_hidden_jobs_and_texts_are_still_there
        s0_45_handlers_and_settings_are_still_there
        s0_58_numbers_boots_and_marks_are_still_there
        s0_50_boot_numbers_go_on_growing
    }
    undo {
        a_synced_change_keeps_all_that_came_before_it
        a_forgotten_ingest_comes_again_with_its_mark_and_its_keys
        a_synced_ingest_stays_with_its_mark_its_keys_and_its_pieces
        no_job_enters_without_pieces_that_were_forgotten
        a_job_that_had_expired_at_once_enters_without_its_pieces
        the_token_of_a_forgotten_claim_is_worth_nothing
        a_daemon_learns_that_its_claim_was_forgotten
        a_forgotten_settlement_can_be_repeated
        a_synced_settlement_stays_with_all_that_entered
        a_forgotten_beat_is_made_good_by_the_next
        a_number_that_was_given_stays_given
        no_boot_number_is_given_twice
        a_decision_is_as_durable_as_it_asked_to_be
        a_forgotten_take_gives_the_job_again
        what_a_client_changed_is_durable
        what_was_set_for_a_type_is_durable
        what_opened_because_it_was_forgotten_is_told
    }
    lifecycle {
        it_answers_and_flushes
        it_says_what_it_can_do
        without_wakes_it_never_tells_of_changes
        a_closed_store_is_not_available
        a_closed_store_is_not_read
        a_close_finishes_what_is_under_way
    }
    model {
        seeds_1_to_5
        seeds_6_to_10
        seeds_11_to_15
        seeds_16_to_20
    }
}
