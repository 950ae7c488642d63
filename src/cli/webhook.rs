//! `webhook`: where the server posts events.

use clap::Subcommand;

use super::context::Context;
use super::failure::Failure;
use super::output::{Cell, Style, Table};
use super::request::Request;
use super::show;
use super::value::Value;
use crate::api::commands::Op;

/// Commands on webhooks.
#[derive(Subcommand, Debug)]
pub enum Webhook {
    /// Post events to a URL
    Add {
        /// URL to post to
        url: String,
        /// Events to post, separated by commas; `all` for all
        #[arg(long, required = true, value_delimiter = ',', value_name = "EVENTS")]
        events: Vec<String>,
        /// Only events of this queue
        #[arg(long, value_name = "QUEUE")]
        queue: Option<String>,
        /// Secret that signs each request
        #[arg(long, value_name = "SECRET")]
        secret: Option<String>,
    },
    /// List the webhooks
    List,
    /// Post a sample to a webhook and show what came of it
    Test {
        /// Id of the webhook
        webhook_id: String,
    },
    /// Show the last attempts to deliver to a webhook
    Deliveries {
        /// Id of the webhook
        webhook_id: String,
        /// At most this many
        #[arg(long, allow_negative_numbers = true, value_name = "N")]
        limit: Option<i64>,
    },
    /// Remove a webhook
    Remove {
        /// Id of the webhook
        webhook_id: String,
    },
}

/// Carries one out.
pub fn run(context: &mut Context, webhook: &Webhook) -> Result<(), Failure> {
    match webhook {
        Webhook::Add { url, events, queue, secret } => {
            // The protocol says "all" by naming none.
            let all = events.iter().all(|event| event.is_empty() || event == "all");
            let request = Request::new(Op::AddWebhook).with(|fields| {
                fields.text("url", url);
                fields.texts("events", if all { &[] } else { events });
                fields.text_if("queue", queue.as_deref());
                fields.text_if("secret", secret.as_deref());
            });
            context.ask(request, |out, reply| {
                out.line(reply.get("data").get("webhookId").text().unwrap_or_default())
            })
        }
        Webhook::List => list(context),
        Webhook::Test { webhook_id } => test(context, webhook_id),
        Webhook::Deliveries { webhook_id, limit } => deliveries(context, webhook_id, *limit),
        Webhook::Remove { webhook_id } => {
            let request =
                Request::new(Op::RemoveWebhook).with(|fields| fields.text("webhookId", webhook_id));
            context.tell(request, &format!("removed {webhook_id}"))
        }
    }
}

fn test(context: &mut Context, id: &str) -> Result<(), Failure> {
    let request = Request::new(Op::TestWebhook).with(|fields| fields.text("id", id));
    context.ask(request, |out, reply| {
        let delivery = reply.get("data");
        let took = delivery.get("duration").count();
        match delivery.get("error").text() {
            Some(error) => out.line(&format!("not delivered after {took} ms: {error}")),
            None => {
                let status = delivery.get("status").count();
                out.line(&format!("delivered in {took} ms: status {status}"))
            }
        }
    })
}

fn deliveries(context: &mut Context, id: &str, limit: Option<i64>) -> Result<(), Failure> {
    let request = Request::new(Op::WebhookDeliveries).with(|fields| {
        fields.text("id", id);
        fields.integer_if("limit", limit);
    });
    context.ask(request, |out, reply| {
        let heads = ["WHEN", "EVENT", "JOB", ">ATTEMPT", ">STATUS", ">MS", "ERROR"];
        let mut table = Table::new(&heads);
        for delivery in reply.get("data").get("deliveries").items() {
            let status = delivery.get("status").integer();
            table.row(vec![
                show::from_now(delivery.get("timestamp")),
                show::text(delivery.get("event")),
                show::text(delivery.get("jobId")),
                delivery.get("attempt").count().to_string().into(),
                status.map_or_else(|| "-".to_owned(), |status| status.to_string()).into(),
                delivery.get("duration").count().to_string().into(),
                match delivery.get("error").text() {
                    Some(error) => Cell::styled(error.to_owned(), Style::Bad),
                    None => "-".into(),
                },
            ]);
        }
        if table.is_empty() {
            out.line("nothing was posted to it since the start of the server")
        } else {
            out.table(&table)
        }
    })
}

fn list(context: &mut Context) -> Result<(), Failure> {
    context.ask(Request::new(Op::ListWebhooks), |out, reply| {
        let heads = ["URL", "QUEUE", "EVENTS", "ID", ">SENT", ">FAILED", "LAST"];
        let mut table = Table::new(&heads);
        for webhook in reply.get("data").get("webhooks").items() {
            table.row(row(webhook));
        }
        if table.is_empty() { out.line("there are no webhooks") } else { out.table(&table) }
    })
}

fn row(webhook: Value<'_>) -> Vec<Cell> {
    let events = show::texts(webhook.get("events"));
    let failed = webhook.get("failureCount").count();
    vec![
        show::text(webhook.get("url")),
        webhook.get("queue").text().unwrap_or("*").into(),
        if events.is_empty() { "all".into() } else { events.into() },
        show::text(webhook.get("id")),
        webhook.get("successCount").count().to_string().into(),
        Cell::styled(failed.to_string(), if failed > 0 { Style::Bad } else { Style::Plain }),
        show::from_now(webhook.get("lastTriggered")),
    ]
}
