//! For each check, the proof that it, alone, sees a wrongness planted for it.

use corq_sim::canary::quietly;
use corq_sim::check::{Check, Checks};
use corq_sim::live;
use corq_sim::settings::Flaw;
use std::any::Any;
use std::panic::catch_unwind;

/// Seeds that a flaw may take to be seen.
const SEEDS_MAX: u64 = 240;

fn message_of(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().cloned();
    text.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

/// The flaw is seen by this check in one of a few seeds; the same check sees nothing without it.
fn sees(check: Check, flaw: Flaw) {
    let checks = Checks { only: Some(check) };
    let named = format!("[{check:?}]");
    let seen = (0..SEEDS_MAX).find(|&seed| {
        let lived = quietly(|| catch_unwind(|| live(seed, flaw, checks, false)));
        lived.is_err_and(|cause| message_of(&*cause).starts_with(&named))
    });
    let Some(seed) = seen else { panic!("{flaw:?} was never seen by {check:?}") };
    live(seed, Flaw::None, checks, false);
}

macro_rules! canaries {
    ($($name:ident: $check:ident sees $flaw:ident;)*) => {
        $(#[test] fn $name() { sees(Check::$check, Flaw::$flaw); })*
    };
}

canaries! {
    canary_a_forgetful_journal_is_seen: Replay sees ForgetfulJournal;
    canary_an_answer_before_its_record_is_seen: Lost sees ReleaseEarly;
    canary_a_lying_disk_is_seen: Lost sees LyingDisk;
    canary_a_durable_job_without_a_barrier_is_seen: Lost sees NoBarrier;
    canary_a_completed_job_that_comes_again_is_seen: Again sees LostCompletions;
    canary_a_second_lease_is_seen: Lease sees SecretRelease;
    canary_an_early_delay_is_seen: EarlyDelay sees ClockAhead;
    canary_an_early_retry_is_seen: EarlyBackoff sees ClockAhead;
    canary_an_early_end_of_a_lock_is_seen: EarlyLock sees ClockAhead;
    canary_an_early_end_of_a_life_is_seen: EarlyLife sees ClockAhead;
    canary_an_early_timeout_is_seen: EarlyTimeout sees ClockAhead;
    canary_turned_priorities_are_seen: Order sees PriorityTurned;
    canary_lifo_for_fifo_is_seen: Order sees LifoTurned;
    canary_a_pull_in_the_wrong_order_is_seen: Order sees PullBackwards;
    canary_one_attempt_too_many_is_seen: Attempts sees OneMoreAttempt;
    canary_a_job_from_nowhere_is_seen: Counters sees ExtraJob;
    canary_two_holders_of_a_key_are_seen: Unique sees NoUniqueKeys;
    canary_a_name_that_stays_taken_is_seen: Directory sees NamesKept;
    canary_a_queue_that_cannot_be_drained_is_seen: Quiet sees SecretPause;
    canary_a_pull_that_gets_too_little_is_seen: Starved sees SmallPulls;
    canary_a_late_timer_is_seen: Overdue sees SleepyTimers;
    canary_a_wrong_answer_is_seen: Answer sees DeafHeartbeat;
    canary_a_clock_that_was_ahead_and_is_believed_is_seen: Clock sees BlindStarts;
    canary_a_clock_that_is_set_back_too_little_is_seen: Clock sees ShyStarts;
    canary_a_job_in_the_wrong_place_is_seen: State sees SecretRelease;
    canary_a_job_beside_which_a_pull_waits_is_seen: Audit sees SecretPush;
    canary_a_job_that_waits_for_completed_ones_is_seen: Dependency sees LostNotices;
    canary_a_parent_that_is_not_told_is_seen: Family sees LostReports;
    canary_a_part_of_a_flow_that_goes_is_seen: Flow sees HalfFlows;
    canary_a_word_that_is_forgotten_is_seen: Flow sees ForgottenWords;
    canary_a_series_that_breaks_off_is_seen: Repeat sees NoRepeats;
    canary_a_schedule_out_of_rhythm_is_seen: Schedule sees HastySchedules;
    canary_an_early_run_of_a_schedule_is_seen: EarlySchedule sees ClockAhead;
    canary_a_dead_letter_that_comes_back_early_is_seen: Rule sees ClockAhead;
    canary_a_long_command_that_ends_too_soon_is_seen: BulkOperation sees ShyClean;
    canary_a_record_that_comes_back_changed_is_seen: Log sees BentRecord;
    canary_a_group_that_gives_too_many_is_seen: Group sees GenerousGroups;
    canary_a_reclaim_that_drops_a_job_is_seen: Replay sees SloppyReclaim;
    canary_a_reclaim_that_forgets_custom_ids_is_seen: Dependency sees NamelessReclaim;
    canary_a_key_without_its_time_is_seen: Unique sees EndlessKeys;
    canary_a_key_whose_time_does_not_begin_anew_is_seen: Rarity sees ShortKeys;
    canary_a_push_that_takes_no_place_is_seen: Unique sees NoReplacing;
    canary_a_debounce_without_its_delay_is_seen: State sees NoDelays;
    canary_a_wait_that_grows_and_should_not_is_seen: Overdue sees GrowingWaits;
    canary_a_silence_that_lasts_too_long_is_seen: State sees PatientStalls;
    canary_a_log_that_is_too_long_is_seen: State sees LongLogs;
    canary_a_job_that_is_younger_than_its_client_says_is_seen: State sees NoTimestamps;
    canary_a_group_with_too_many_jobs_is_seen: Answer sees RoomyGroups;
    canary_a_batch_with_two_holders_of_a_key_is_seen: Unique sees OneOfOneKey;
    canary_a_key_that_stays_though_freed_is_seen: Unique sees StubbornKeys;
    canary_a_promotion_of_too_few_is_seen: BulkOperation sees ShyPromotions;
    canary_a_look_at_more_than_was_asked_for_is_seen: Answer sees WideSieves;
    canary_a_filtered_retry_of_others_is_seen: BulkOperation sees WideSieves;
    canary_a_retry_of_what_was_completed_later_is_seen: BulkOperation sees LateRetries;
    canary_a_wrong_token_that_opens_is_seen: Answer sees BlindTokens;
    canary_another_delay_than_asked_for_is_seen: State sees LongDelays;
    canary_a_dead_letter_that_does_not_go_is_seen: Answer sees DeafBins;
    canary_a_line_that_stays_is_seen: State sees LongCuts;
    canary_a_child_without_its_parent_is_seen: Family sees NoLinks;
    canary_a_group_that_gives_too_fast_is_seen: Group sees HastyGroups;
    canary_a_rate_of_a_pull_that_is_not_kept_is_seen: Group sees DeafRates;
    canary_a_webhook_that_hears_too_much_is_seen: Hook sees NosyHooks;
    canary_an_event_that_nobody_hears_is_seen: Events sees LostEvents;
    canary_events_out_of_order_are_seen: Events sees EventsBackwards;
    canary_settings_that_do_not_come_are_seen: State sees OldSettings;
}

#[test]
fn canary_a_run_that_depends_on_more_than_its_seed_is_seen() {
    let once = |flaw| live(1, flaw, Checks::default(), false);
    assert_ne!(once(Flaw::LoadedDice), once(Flaw::LoadedDice));
    assert_eq!(once(Flaw::None), once(Flaw::None));
}
