//! The cases, and the macro that runs all of them on one engine, with DIFF where it says so. A new engine is one line
//! in
//! `main.rs`; a new case is one line here (a case that is not listed is dead code, which the compiler reports).

pub mod publish;
pub mod inbound_events;
pub mod claims;
pub mod gate;
pub mod rate;
pub mod reports;
pub mod details;
pub mod artifacts;
pub mod callbacks;
pub mod together;
pub mod alarms;
pub mod lists;
pub mod events;
pub mod pages;
pub mod queues;
pub mod keys;
pub mod operations;

macro_rules! contract {
    ($name:ident, $backend:ty $(, $diff:ident)?) => {
        mod $name {
            $(
                /// DIFF, I-09, I-14, I-15, I-24.
                #[test]
                fn it_answers_and_remembers_as_the_model_does() {
                    crate::$diff::run::<$backend>();
                }
            )?

            contract! { @cases $backend;
                publish::a_job_is_stored_as_it_was_asked_for,
                publish::a_batch_is_answered_in_order_each_for_itself,
                publish::a_delayed_job_waits_and_one_that_is_due_does_not,
                publish::a_key_seen_before_finds_its_job,
                publish::a_key_belongs_to_one_queue_of_one_namespace,
                publish::a_key_is_free_when_its_window_has_ended_and_its_job_finished,
                publish::a_key_of_a_failed_job_is_free_only_where_the_queue_says_so,
                publish::a_key_whose_newest_job_is_deleted_falls_back_to_the_one_before,
                publish::a_replayed_job_holds_its_key_again,
                publish::a_job_whose_key_another_job_has_is_not_replayed,
                publish::of_two_failed_jobs_of_one_key_one_is_replayed,
                publish::a_replay_racing_a_publish_of_its_key_makes_one_live_job,
                publish::a_payload_is_its_own_key_where_the_queue_says_so,
                publish::a_namespace_takes_as_many_waiting_jobs_as_it_may,
                publish::a_publish_to_an_unknown_queue_is_refused,
                publish::an_id_is_never_given_twice,
                inbound_events::an_event_is_stored_with_a_job_in_each_queue,
                inbound_events::a_job_keeps_its_origin_when_its_event_is_forgotten,
                inbound_events::an_event_keeps_its_body_whatever_becomes_of_its_jobs,
                inbound_events::a_duplicate_event_changes_nothing,
                inbound_events::the_key_of_a_queue_finds_the_job_of_an_earlier_event,
                inbound_events::an_event_whose_jobs_do_not_fit_is_not_stored_at_all,
                inbound_events::events_that_come_together_are_stored_once_each,
                inbound_events::events_that_do_not_fit_are_refused_alone,
                inbound_events::events_are_listed_newest_first_and_pruned_oldest_first,
                claims::jobs_go_out_by_priority_then_age_then_order_of_publish,
                claims::a_job_that_waited_takes_the_place_of_the_time_it_was_due,
                claims::a_released_job_goes_out_before_younger_ones,
                claims::each_hand_out_has_its_own_lease_and_epoch,
                claims::a_claim_takes_no_more_than_its_limit,
                claims::the_lease_lasts_as_long_as_the_claim_or_the_job_or_the_queue_says,
                claims::a_delivery_is_leased_for_the_time_of_the_webhook,
                claims::a_job_past_its_start_by_is_not_handed_out,
                claims::a_claim_of_an_unknown_queue_is_refused,
                gate::a_paused_queue_takes_jobs_and_hands_out_none,
                gate::a_push_queue_gives_pullers_nothing_unless_it_allows_them,
                gate::no_more_jobs_run_than_the_queue_allows,
                gate::a_defer_by_a_worker_holds_its_job_and_no_other,
                gate::a_held_queue_sends_one_probe_when_the_hold_ends,
                gate::a_probe_that_is_deferred_holds_the_queue_again,
                gate::a_receipt_that_ends_a_hold_says_that_waiters_may_try_again,
                gate::a_probe_that_is_released_leaves_its_place_to_another,
                gate::a_probe_whose_lease_runs_out_is_not_waited_for,
                gate::a_probe_that_is_deleted_leaves_its_place_to_another,
                gate::a_probe_counts_as_running,
                gate::an_open_circuit_is_tried_again_after_ever_longer_waits,
                rate::a_claim_gets_the_jobs_within_the_rate_and_the_time_of_the_next,
                rate::a_claim_that_emptied_the_queue_gets_no_time_to_return,
                rate::another_rate_is_not_held_back_by_the_one_before,
                rate::no_window_holds_more_hand_outs_than_the_rate_allows,
                rate::racing_claims_together_get_what_the_rate_lets_through,
                rate::a_job_that_comes_back_has_used_the_rate,
                rate::a_job_past_its_start_by_does_not_use_the_rate,
                rate::a_rate_that_is_lifted_holds_nothing_back,
                reports::each_outcome_leads_to_its_state,
                reports::a_lease_that_is_not_the_present_one_changes_nothing,
                reports::a_repeated_report_is_recognised_and_a_different_one_refused,
                reports::a_repeated_report_with_another_result_is_a_conflict,
                reports::a_repeated_report_is_compared_by_what_it_asks_for,
                reports::a_report_without_a_lease_needs_a_running_job_and_a_queue_that_allows_it,
                reports::a_job_out_of_reach_does_not_exist,
                reports::an_id_that_was_never_given_is_not_found,
                reports::a_batch_of_commands_is_carried_out_one_by_one,
                reports::a_waiting_job_is_cancelled_at_once_and_a_running_one_is_asked,
                reports::a_delivery_that_is_received_waits_for_its_ack,
                reports::a_heartbeat_moves_the_alarm,
                reports::an_uploaded_result_survives_the_loss_of_its_lease,
                reports::a_job_that_is_never_answered_ends_as_a_dead_letter,
                reports::a_delivery_that_died_with_its_server_is_charged,
                reports::deliveries_under_way_are_named_to_the_next_process_unless_others_may_make_them,
                reports::a_replay_starts_the_job_again,
                details::the_page_of_a_job_has_all_its_parts,
                details::moves_and_attempts_are_shown_however_long_the_log_is,
                details::a_status_read_loads_no_inline_result,
                details::the_page_of_a_job_is_of_one_moment,
                artifacts::a_checkpoint_takes_the_place_of_the_one_before_byte_for_byte,
                artifacts::sections_are_replaced_by_name_and_listed_in_order_of_bytes,
                artifacts::a_full_job_takes_no_new_section_and_replaces_its_old_ones,
                artifacts::saved_work_outlives_the_attempt_and_a_replay_but_not_success,
                artifacts::a_fresh_replay_drops_what_was_saved_and_a_keeping_queue_keeps_it_after_success,
                artifacts::a_checkpoint_in_an_object_takes_the_one_before_with_it,
                artifacts::objects_of_a_lost_lease_are_deleted_with_it_and_not_before_their_grace,
                artifacts::only_objects_scheduled_for_deletion_can_be_forgotten,
                artifacts::a_result_that_expires_schedules_its_object_and_downloads_are_counted_before,
                artifacts::a_purged_job_leaves_only_objects_that_are_to_be_deleted,
                artifacts::a_lost_lease_keeps_nothing,
                artifacts::an_inspection_is_recorded_with_its_object_and_ends_with_the_next,
                together::a_claim_beside_a_deferral_finds_the_queue_held,
                together::a_claim_beside_a_cancel_gets_the_job_behind_it,
                together::a_job_handed_out_beside_a_refused_command_has_its_payload,
                together::claims_that_come_too_late_need_not_look_again,
                callbacks::each_way_to_end_has_one_callback,
                callbacks::a_callback_says_how_its_job_ended,
                callbacks::each_end_after_a_replay_has_its_own_callback,
                callbacks::only_an_end_has_a_callback_and_only_with_a_url,
                callbacks::a_callback_itself_has_no_callback,
                callbacks::callbacks_stay_in_the_namespace_of_their_job,
                callbacks::racing_ends_all_have_callbacks_in_one_queue,
                callbacks::a_full_namespace_still_gets_callbacks,
                callbacks::a_notice_with_a_key_is_made_once,
                alarms::an_idle_store_has_no_alarm,
                alarms::a_store_whose_alarms_were_not_read_reports_an_outage,
                alarms::alarms_ring_in_order_and_not_before_their_time,
                alarms::naming_due_jobs_changes_nothing_and_waking_early_neither,
                alarms::a_lease_that_runs_out_charges_the_attempt_and_frees_the_job,
                alarms::a_nacked_job_waits_for_its_backoff,
                alarms::a_result_expires_and_its_job_stays,
                alarms::a_finished_job_is_purged_with_all_that_belongs_to_it,
                alarms::an_alarm_that_a_changed_setting_has_moved_is_set_again,
                pages::a_page_of_events_ends_with_its_bytes,
                pages::a_page_of_sections_ends_with_its_bytes,
                pages::a_page_of_jobs_ends_with_its_bytes_and_has_no_payloads,
                pages::a_page_of_arrivals_ends_with_its_bytes_and_has_no_bodies,
                pages::a_claim_ends_with_its_bytes_and_leaves_the_rest_in_line,
                pages::claims_of_one_moment_share_the_line_by_bytes,
                pages::a_claim_counts_what_earlier_attempts_have_saved,
                lists::a_list_goes_from_the_newest_to_the_oldest_without_gap_or_repeat,
                lists::dead_letters_are_listed_by_the_time_of_their_failure,
                lists::a_cursor_is_not_disturbed_by_new_jobs,
                lists::a_list_shows_only_what_fits_its_filters,
                lists::a_list_shows_only_what_is_in_reach,
                lists::dead_letters_are_listed_and_leave_the_list_by_replay,
                events::the_log_tells_the_life_of_a_job,
                events::a_long_log_has_no_gaps_and_is_read_in_pages,
                events::a_log_of_thousands_of_events_is_read_page_by_page,
                events::a_result_is_kept_byte_for_byte,
                queues::every_setting_survives,
                queues::a_queue_is_saved_only_under_its_condition,
                queues::a_pause_is_a_change_and_a_repeated_one_is_not,
                queues::secrets_stay_until_they_are_replaced,
                queues::queues_are_listed_by_name_and_namespace,
                queues::only_an_empty_queue_is_deleted,
                queues::a_queue_counts_its_jobs_by_status,
                keys::a_namespace_keeps_its_number,
                keys::a_key_is_stored_as_it_was_given,
                keys::a_key_is_revoked_once_and_only_within_reach,
                keys::the_last_admin_key_of_a_namespace_is_revoked_only_by_force,
                keys::keys_are_found_by_when_they_were_made_or_revoked,
                keys::the_first_key_is_added_once,
                keys::the_first_sealing_key_stays,
                keys::a_closed_store_says_so,
                operations::a_bulk_replay_opens_each_run_once_across_restarts,
                operations::a_replay_takes_what_fits_its_filter,
                operations::a_replay_skips_jobs_whose_key_another_job_has,
                operations::an_operation_stops_at_its_limit,
                operations::a_stopped_operation_does_nothing_more,
                operations::a_purge_cancels_what_waits_and_nothing_else,
                operations::a_discard_deletes_dead_letters_and_nothing_else,
                operations::a_deletion_takes_all_jobs_and_then_the_queue,
                operations::a_deletion_that_ends_at_its_limit_leaves_the_queue,
                operations::a_deletion_also_takes_what_is_published_after_a_restart,
                operations::an_operation_belongs_to_its_namespace,
                operations::an_operation_whose_queue_is_gone_is_done,
            }
        }
    };
    (@cases $backend:ty; $($area:ident::$case:ident,)*) => {
        $(
            #[test]
            fn $case() {
                crate::fixture::run::<$backend>(crate::cases::$area::$case);
            }
        )*
    };
}
