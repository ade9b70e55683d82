//! What every bootstrap does according to docs/contexts.md: one list of cases for all languages,
//! over plain pipes and without the rest of Windlass.

#![allow(clippy::unwrap_used)]

mod emit;
mod error;
mod harness;
mod hostile;
mod load;
mod node;
mod output;
mod page;
mod payload;
mod php;
mod process;
mod python;
mod result;
mod run;
mod share;

/// Generates a test of each case for each language: a failure reads
/// `in_php::result::nothing_is_200`. A case that is written but not listed is unreachable code,
/// which the compiler reports.
macro_rules! list {
    ($d:tt $($area:ident { $($case:ident)* })*) => {
        macro_rules! tests_in {
            ($d name:ident, $d lang:ident) => {
                mod $d name {
                    $(mod $area {
                        $(#[test] fn $case() {
                            crate::$area::$case(crate::harness::Lang::$d lang);
                        })*
                    })*
                }
            };
        }
    };
}

list! { $
    process {
        says_what_it_is
        refuses_another_protocol
        ends_with_its_requests
        answers_all_that_came_before_the_end
        takes_requests_in_any_pieces
        a_request_that_cannot_be_read_ends_it
        ends_when_nobody_listens
        keeps_its_descriptors_from_programs
        waits_for_room
        what_is_said_between_requests_is_no_answer
    }
    load {
        an_error_in_a_source_names_its_field_and_line
        a_source_that_ends_too_soon_names_its_last_line
        a_source_cannot_leave_its_function
        empty_sources_do_nothing
        a_check_runs_and_keeps_nothing
        a_check_finds_errors
        before_runs_once_and_shares_ctx
        a_handler_whose_before_throws_is_not_loaded
        a_number_can_be_loaded_again
        sources_may_have_any_characters
    }
    run {
        answers_in_order
        ten_thousand_jobs_in_one_batch
        before_each_and_after_each_run_once_a_batch
        after_each_runs_when_jobs_failed
        a_batch_is_over_when_before_each_throws
        a_batch_is_over_when_after_each_throws
        a_job_knows_itself
        an_end_is_written_before_the_next_job_starts
        a_batch_that_is_halted_ends_before_its_next_job
        a_batch_that_is_halted_before_it_begins_runs_no_job
        a_handler_that_ends_the_process_ends_the_context
    }
    result {
        nothing_is_200
        a_whole_number_is_a_status_if_it_can_be_one
        a_status_that_is_none_is_an_error
        status_and_data
        anything_else_is_data
        what_is_no_json_is_an_error
        the_largest_result_and_one_byte_more
        deep_data
    }
    error {
        has_message_and_trace
        may_have_a_status
        a_status_that_is_none_is_500
        tells_its_cause
        of_one_job_does_not_touch_the_next
        is_cut_when_it_is_long
        that_cannot_be_shown
    }
    output {
        belongs_to_its_job
        comes_at_once
        of_all_four_sources
        of_both_streams_keeps_its_order
        in_long_pieces_is_cut
        keeps_characters_whole
        that_is_not_utf8_is_replaced
        with_half_a_character_is_replaced
        warnings_are_errors_output
        marks_divide_what_goes_round_the_streams
        no_marks_unless_asked_for
        a_mark_that_cannot_be_written_is_no_matter
    }
    payload {
        text_and_bytes
        in_files
        that_is_gone_fails_its_job_only
        of_many_bytes
    }
    emit {
        sends_text_bytes_and_json
        sends_options
        refuses_what_it_cannot_send
        refuses_jobs_that_have_ended
        progress_is_sent
        progress_refuses_what_is_no_percentage
    }
    share {
        each_handler_has_its_own_ctx
        global_variables_are_put_back
        the_environment_is_put_back
        the_working_directory_is_put_back
        the_same_handler_keeps_what_it_changed
    }
    hostile {
        broken_built_ins_break_no_protocol
        replaced_streams_break_no_protocol
        noise_on_the_ordinary_descriptors_is_no_answer
        closed_ordinary_descriptors_break_no_protocol
        closed_channels_end_the_context
        a_channel_that_does_not_block_is_waited_for
    }
}

tests_in!(in_node, Node);
tests_in!(in_python, Python);
tests_in!(in_php, Php);
