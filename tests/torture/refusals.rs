//! Which refusals of valid commands are expected.

/// Refusals that are about the state of jobs, of queues or of the connection. Whatever else is
/// refused was valid, and should not have been.
pub(crate) fn is_expected(command: &str, error: &str) -> bool {
    // A job of a batch or a flow is named before what is wrong with it.
    let plain = error.strip_prefix("jobs[").and_then(|rest| rest.split_once("]: "));
    let plain = plain.map_or(error, |(_, rest)| rest);
    let of_jobs =
        ["Job not found", "Lock token required for job ", "Invalid or expired lock token for job "];
    let of_pushes = ["Dependency job not found: ", "Group group-", "The group of a job is full"];
    let starts = |list: &[&str]| list.iter().any(|text| plain.starts_with(text));
    starts(&of_jobs)
        || match command {
            "PUSH" | "PUSHB" => starts(&of_pushes),
            "PUSHF" => starts(&of_pushes) || plain.starts_with("Flow job "),
            "UpdateParent" => {
                starts(&["Parent job ", "Child job ", "A job cannot be its own parent"])
            }
            "RemoveChildDependency" => plain.ends_with(" has no parent"),
            "MoveToWaitingChildren" => plain.ends_with(" has no children to wait for"),
            "Cron" => plain.starts_with("maxLimit must be more than "),
            "CronGet" | "CronDelete" | "CronTrigger" | "SetCronEnabled" => {
                plain == "Cron not found"
            }
            "CronPreview" => starts(&[
                "Cron not found",
                "schedule or repeatEvery is required",
                "schedule and repeatEvery must not both be given",
                "name must not be given with ",
            ]),
            "Heartbeat" | "UnregisterWorker" => plain == "Worker not found",
            "RemoveWebhook" | "SetWebhookEnabled" | "WebhookDeliveries" => {
                plain == "Webhook not found"
            }
            "TestWebhook" => starts(&[
                "Webhook not found",
                "Too many tests of webhooks",
                "The server is stopping",
            ]),
            "AuditLog" => starts(&["Too many reads of the audit log ", "The server is stopping"]),
            "GetGroups" => plain == "Group not found",
            "GetJobs" | "Search" | "ListQueues" => starts(&[
                "after must be a cursor of an earlier reply",
                "offset must not be given with ",
                "path is required with value",
            ]),
            "Bulk" => plain.starts_with("Too many tasks are running"),
            "GetTask" | "CancelTask" => plain.starts_with("Task not found"),
            "AddWebhook" => plain == "Too many webhooks: at most 1000",
            "Subscribe" | "Unsubscribe" => starts(&[
                "Subscriptions are for connections over TCP",
                "events must not be given with ",
                "At most ",
                "Too many ",
            ]),
            "SubscribeEvents" | "UnsubscribeEvents" => {
                plain == "Subscriptions are for connections over TCP"
            }
            _ => plain == "Too many long commands wait already",
        }
}
