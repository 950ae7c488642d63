//! The promises of the server, tried over TCP against the real program. Each test is one promise
//! and bears its name; what a test does not say about the server is not promised.
//!
//! Most tests share one server and keep to queues of their own, so that they can run at once.
//! Those about settings, restarts and totals start their own.
#![allow(clippy::unwrap_used)]

mod any_form;
mod auth;
mod bad_input;
mod bad_values;
mod batches;
mod changes;
mod cli;
mod clock;
mod cron;
mod cross_origin;
mod deadlines;
mod dependency;
mod descriptors;
mod documents;
mod error_codes;
mod events;
mod family;
mod family_bounds;
mod fan_out;
mod finish;
mod flows;
mod full;
mod gone;
mod groups;
mod handling;
mod hostile;
mod http_auth;
mod http_jobs;
mod http_limits;
mod http_server;
mod http_slow;
mod http_wire;
mod ids;
mod json_slices;
mod keys;
mod large_replies;
mod leases;
mod limited;
mod limits;
mod log_lines;
mod long_requests;
mod longpoll;
mod lookalike;
mod metrics;
mod missing;
mod modes;
mod moving;
mod named;
mod order;
mod pages;
mod printed;
mod push;
mod queries;
mod queues;
mod reshard;
mod restart;
mod retry;
mod rows;
mod rules;
mod scheduled_backups;
mod session;
mod settings;
mod settings_file;
mod settings_service;
mod sharing;
mod signals;
mod sockets;
mod space;
mod space_forecast;
mod spans;
mod spans_of_clients;
mod starting;
mod streams;
mod subscriptions;
mod timing;
mod tls;
mod tls_hostile;
mod turns;
mod unread;
mod waits;
mod webhooks;
mod websocket;
mod workers;

#[path = "../support/mod.rs"]
mod support;

#[path = "../support/tls.rs"]
mod secure;

use support::Client;
use support::common::{client, queue, shared};
