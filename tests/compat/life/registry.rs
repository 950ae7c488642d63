//! Schedules and webhooks of that life.

use corq_shards::command::{AddWebhook, Command, SetCron};
use corq_shards::cron::expression::Plan;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::cron::CronRules;
use corq_shards::webhook::{Trigger, Triggers};

use super::{DAY_MS, Life};

impl Life {
    pub(super) fn schedules(&mut self, round: &str) {
        let queue = self.queue(&format!("{round}.scheduled"));
        let name = |name: &str, number: u16| format!("{round}.{name}-{number}");
        let number = self.number;
        let set = |life: &mut Self, name: &str, every_ms, expression: Option<&str>, runs_max| {
            let timezone = expression.map(|_: &str| "Europe/Berlin");
            let plan = match (expression, every_ms) {
                (Some(expression), _) => Plan::at(expression, timezone),
                (None, every) => Plan::every(every, None),
            };
            let job = name.contains("named").then(|| NewJob {
                name: Some("a tick"),
                max_attempts: 5,
                ..NewJob::default()
            });
            let cron = SetCron {
                name,
                queue: &queue,
                data: b"\xa4tick",
                schedule: expression,
                repeat_every_ms: expression.is_none().then_some(every_ms),
                timezone,
                priority: 4,
                runs_max,
                rules: CronRules {
                    skip_if_no_worker: name.contains("ruled"),
                    catch_up: name.contains("ruled"),
                    ..CronRules::default()
                },
                job: job.as_ref(),
                plan: plan.unwrap(),
                moved: None,
            };
            life.done(&Command::SetCron(&cron));
        };
        set(self, &name("daily", number), DAY_MS, None, Some(400));
        set(self, &name("named", number), 5000, None, Some(400));
        set(self, &name("ruled", number), 5000, None, Some(400));
        set(self, &name("monthly", number), 0, Some("0 3 1 * *"), None);
        set(self, &name("often", number), 5000, None, None);
        set(self, &name("last", number), 5000, None, Some(1));
        self.pass(5000);
        self.pass(5000);
        self.done(&Command::RemoveCron { name: &name("often", number) });
    }

    /// The first shard keeps them.
    pub(super) fn webhooks(&mut self, round: &str) {
        if self.number > 0 {
            return;
        }
        let queue = self.queue(&format!("{round}.waiting"));
        let first = u128::from(round.len() as u8) << 64;
        let some =
            Triggers::named([Trigger::Completed, Trigger::Stalled].map(Trigger::name).into_iter());
        let hooks = [
            (some, Some(&*queue), Some("hush")),
            (Triggers::default(), None, None),
            (some, None, None),
        ];
        for (id, (events, queue, secret)) in (first..).zip(hooks) {
            let url = "http://127.0.0.1:9/hook";
            self.done(&Command::AddWebhook(&AddWebhook { id, url, events, queue, secret }));
        }
        self.done(&Command::RemoveWebhook { id: first + 2 });
        self.done(&Command::EnableWebhook { id: first, enabled: false });
    }
}
