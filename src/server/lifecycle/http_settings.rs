//! Settings of the HTTP port and of the dashboard.

use crate::config::{Config, RequestsMax};
use crate::server::access::slowed::WINDOW_MS;
use crate::server::http::{Rule, Rules, Settings};
use crate::server::ui;
use std::sync::Arc;

/// Whose pages may ask.
pub fn rules(config: &Config) -> Rules {
    Rules {
        has_tokens: config.has_tokens(),
        origins: config.cors_allow_origin.clone(),
        hosts: config.allowed_hosts().map(Into::into).collect(),
    }
}

fn ui_settings(config: &Config) -> ui::settings::Settings {
    let redact: Vec<String> =
        config.ui_redact.iter().filter(|path| !path.is_empty()).cloned().collect();
    let given = |text: &'_ Option<String>| text.clone().filter(|text| !text.is_empty());
    let (label, color) = (given(&config.ui_label), given(&config.ui_color));
    let shown = ui::settings::Shown {
        label: label.as_deref(),
        color: color.as_deref(),
        redact: &redact,
        tcp_port: config.tcp_port,
        tls: config.tls_cert_file.is_some(),
    };
    ui::settings::Settings::new(&config.ui_path, shown)
}

/// How many wrong tokens an address may show before further ones are refused later.
pub fn wrong_tokens_rule(config: &Config) -> Option<Rule> {
    let rule = |requests_max| Rule { window_ms: WINDOW_MS, requests_max };
    config.auth_failures_max.0.map(rule)
}

/// The settings of HTTP.
pub fn http_settings(config: &Config) -> Settings {
    let window_ms = config.rate_limit_window_ms;
    let rule = |most: RequestsMax| most.0.map(|requests_max| Rule { window_ms, requests_max });
    Settings {
        rules: rules(config),
        request_timeout_ms: config.http_request_timeout_ms,
        idle_timeout_ms: config.http_idle_timeout_ms,
        client_rule: rule(config.rate_limit_max_requests),
        cleanup_ms: config.rate_limit_cleanup_ms,
        frame_rule: rule(config.tcp_rate_limit_max_requests),
        message_rule: rule(config.message_requests_max()),
        auth_timeout_ms: config.auth_timeout_ms,
        frame_timeout_ms: config.frame_timeout_ms,
        metrics_are_guarded: config.require_auth_for_metrics,
        metrics_prefix: config.metrics_prefix.as_deref().map(Into::into),
        ui: config.ui.then(|| Arc::new(ui_settings(config))),
    }
}
