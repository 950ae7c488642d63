//! How `top` looks. Draws what it is given; asks nobody.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};

use super::sample::{Queue, RATES, Sample, TIMES};
use super::{Order, View};
use crate::cli::output::Output;
use crate::cli::words;
use crate::escape;

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const HEAD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, view: &View) {
    let workers = view.latest().map_or(0, |sample| sample.workers.len());
    let workers = (workers.min(8) as u16 + 3).max(4);
    let [top, rates, queues, below, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(RATES.len() as u16 + 2),
        Constraint::Min(5),
        Constraint::Length(workers),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    header(frame, top, view);
    if let Some(sample) = view.latest() {
        let [left, right] =
            Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).areas(rates);
        rate_block(frame, left, view);
        time_block(frame, right, view);
        queue_block(frame, queues, view, sample);
        worker_block(frame, below, sample);
    }
    let help = format!(" q quit   s sort by {}   ↑ ↓ scroll", view.order.next().name());
    frame.render_widget(Paragraph::new(help).style(DIM), keys);
}

fn header(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let mut first = vec![Span::styled(format!(" corq at {}", view.address), HEAD)];
    let mut second = Line::default();
    if let Some(sample) = view.latest() {
        first.push(Span::raw(format!("  up {}", words::duration(sample.uptime_ms))));
        first.push(Span::styled(
            format!(
                "  {:.0} connections  {} memory  {} log",
                sample.connections,
                words::bytes(sample.memory_bytes),
                words::bytes(sample.log_bytes),
            ),
            DIM,
        ));
        let [waiting, active, delayed, completed, failed] = sample.jobs;
        second = Line::raw(format!(
            " {waiting} waiting  {active} active  {delayed} delayed  {completed} completed  "
        ));
        second.push_span(Span::styled(format!("{failed} failed"), failures(failed)));
    }
    if let Some(trouble) = &view.trouble {
        let style = Style::new().fg(Color::White).bg(Color::Red);
        second = Line::styled(format!(" {} ", escape::line(trouble)), style);
    }
    frame.render_widget(Paragraph::new(vec![Line::from(first), second]), area);
}

fn failures(count: u64) -> Style {
    if count > 0 { Style::new().fg(Color::Red) } else { Style::new() }
}

fn rate_block(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let block = Block::bordered().title(" jobs per second ");
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let colors = [Color::Blue, Color::Cyan, Color::Green, Color::Red];
    let lines = Layout::vertical([Constraint::Length(1); RATES.len()]).split(inside);
    for (place, (_, name)) in RATES.iter().enumerate() {
        let Some(line) = lines.get(place) else { return };
        let [label, curve] =
            Layout::horizontal([Constraint::Length(21), Constraint::Fill(1)]).areas(*line);
        let rate = view.rates.back().map_or(0.0, |rates| rates[place]);
        let text = format!("{name:<10}{:>9}  ", words::figure(rate));
        frame.render_widget(Paragraph::new(text), label);
        let shown = usize::from(curve.width);
        let history = view.rates.iter().skip(view.rates.len().saturating_sub(shown));
        // A rate below one would not be seen.
        let history: Vec<u64> = history.map(|rates| (rates[place] * 10.0) as u64).collect();
        let curve_style = Style::new().fg(colors[place]);
        frame.render_widget(Sparkline::default().data(history).style(curve_style), curve);
    }
}

fn time_block(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let rows = TIMES.iter().zip(view.p99s_ms).map(|((_, name), p99_ms)| {
        let shown = p99_ms.map_or("-".to_owned(), |p99_ms| match p99_ms {
            ..1000.0 => format!("{} ms", words::figure(p99_ms)),
            _ => words::duration(p99_ms as i64),
        });
        Row::new([Cell::new(*name), right(shown)])
    });
    let widths = [Constraint::Length(16), Constraint::Fill(1)];
    let table = Table::new(rows, widths).block(Block::bordered().title(" p99 "));
    frame.render_widget(table, area);
}

fn right(text: String) -> Cell<'static> {
    Cell::new(Line::raw(text).alignment(Alignment::Right))
}

fn queue_block(frame: &mut Frame<'_>, area: Rect, view: &View, sample: &Sample) {
    let title = format!(" {} queues, by {} ", sample.queues.len(), view.order.name());
    let mut queues: Vec<&Queue> = sample.queues.iter().collect();
    match view.order {
        Order::Name => queues.sort_unstable_by(|a, b| a.name.cmp(&b.name)),
        Order::Waiting => sort_by_count(&mut queues, 0),
        Order::Active => sort_by_count(&mut queues, 1),
        Order::Failed => sort_by_count(&mut queues, 4),
    }
    let room = usize::from(area.height.saturating_sub(3));
    let first = view.scroll.min(queues.len().saturating_sub(room));
    let rows = queues.iter().skip(first).take(room).map(|queue| {
        let [waiting, active, delayed, completed, failed] = queue.counts;
        let state = if queue.paused { "paused" } else { "" };
        Row::new([
            Cell::new(escape::line(&queue.name)),
            right(waiting.to_string()),
            right(active.to_string()),
            right(delayed.to_string()),
            right(completed.to_string()),
            right(failed.to_string()).style(failures(failed)),
            Cell::new(state).style(Style::new().fg(Color::Yellow)),
        ])
    });
    let heads = ["WAITING", "ACTIVE", "DELAYED", "COMPLETED", "FAILED"];
    let heads = heads.map(|head| right(head.to_owned()));
    let heads = [Cell::new("QUEUE")].into_iter().chain(heads).chain([Cell::new("")]);
    let mut widths = vec![Constraint::Fill(1)];
    widths.extend([Constraint::Length(10); 5]);
    widths.push(Constraint::Length(7));
    let table = Table::new(rows, widths)
        .header(Row::new(heads).style(HEAD))
        .block(Block::bordered().title(title));
    frame.render_widget(table, area);
}

fn sort_by_count(queues: &mut [&Queue], place: usize) {
    queues.sort_unstable_by(|a, b| {
        b.counts[place].cmp(&a.counts[place]).then_with(|| a.name.cmp(&b.name))
    });
}

fn worker_block(frame: &mut Frame<'_>, area: Rect, sample: &Sample) {
    let title = format!(" {} workers ", sample.workers.len());
    let now_ms = Output::now_ms();
    let rows = sample.workers.iter().map(|worker| {
        let [active, processed, failed] = worker.jobs;
        let seen = worker.last_seen_ms.map(|at_ms| words::relative(now_ms, at_ms));
        Row::new([
            Cell::new(escape::line(&worker.name)),
            right(active.to_string()),
            right(processed.to_string()),
            right(failed.to_string()).style(failures(failed)),
            Cell::new(seen.unwrap_or_default()),
            Cell::new(escape::line(&worker.queues)),
        ])
    });
    let counts = ["ACTIVE", "PROCESSED", "FAILED"].map(|head| right(head.to_owned()));
    let heads = [Cell::new("WORKER")].into_iter().chain(counts);
    let heads = heads.chain([Cell::new("SEEN"), Cell::new("QUEUES")]);
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(8),
        Constraint::Length(10),
        Constraint::Length(8),
        Constraint::Length(10),
        Constraint::Fill(1),
    ];
    let table = Table::new(rows, widths)
        .header(Row::new(heads).style(HEAD))
        .block(Block::bordered().title(title));
    frame.render_widget(table, area);
}
