//! How `top` looks. Draws what it is given; asks nobody.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};

use super::sample::{Queue, RATES, Sample};
use super::{Order, View};
use crate::cli::output::Output;
use crate::cli::words;
use crate::escape;

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const HEAD: Style = Style::new().add_modifier(Modifier::BOLD);

/// From so many rows on the screen has the rates, and from so many the workers. What is left is the queues'.
const RATES_ROWS_MIN: u16 = 16;
const WORKERS_ROWS_MIN: u16 = 22;

/// Columns of the name of a queue that no figure takes away.
const NAME_COLUMNS: u16 = 20;

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, view: &View) {
    let area = frame.area();
    let workers = (view.workers.len().min(8) as u16 + 3).max(4);
    let has_rates = area.height >= RATES_ROWS_MIN;
    let has_workers = area.height >= WORKERS_ROWS_MIN;
    let [top, rates, queues, below, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(if has_rates { RATES.len() as u16 + 2 } else { 0 }),
        Constraint::Min(5),
        Constraint::Length(if has_workers { workers } else { 0 }),
        Constraint::Length(1),
    ])
    .areas(area);
    header(frame, top, view);
    if let Some(sample) = view.latest() {
        if has_rates {
            let [left, right] =
                Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).areas(rates);
            rate_block(frame, left, view);
            core_block(frame, right, sample);
        }
        queue_block(frame, queues, view, sample);
        if has_workers {
            worker_block(frame, below, view);
        }
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
                "  {} connections  {} log",
                sample.connections,
                words::bytes(sample.log_bytes as f64),
            ),
            DIM,
        ));
        let [waiting, active, delayed, completed, failed] = sample.jobs;
        second = Line::raw(format!(" {waiting} waiting  {active} active  {delayed} delayed  "));
        second.push_span(Span::styled(format!("{failed} failed"), failures(failed)));
        second.push_span(Span::raw(format!("  {completed} completed")));
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

/// The busiest cores, with the turn that held each for longest.
fn core_block(frame: &mut Frame<'_>, area: Rect, sample: &Sample) {
    let rows = sample.cores.iter().take(RATES.len()).map(|core| {
        let turn = match core.longest_turn.as_str() {
            "" => String::new(),
            command => format!("{} ms {command}", words::figure(core.longest_turn_ms)),
        };
        let load = format!("{:.0} %", core.load * 100.0);
        Row::new([
            right(core.shard.to_string()),
            right(load).style(Style::new().fg(if core.load > 0.9 {
                Color::Red
            } else {
                Color::Reset
            })),
            Cell::new(escape::line(&turn).into_owned()),
        ])
    });
    let widths = [Constraint::Length(3), Constraint::Length(5), Constraint::Fill(1)];
    let title = format!(" {} cores, longest turns ", sample.cores.len());
    let table = Table::new(rows, widths).block(Block::bordered().title(title));
    frame.render_widget(table, area);
}

fn right(text: String) -> Cell<'static> {
    Cell::new(Line::raw(text).alignment(Alignment::Right))
}

/// A column beside the name of a queue.
struct Column {
    head: &'static str,
    width: u16,
    /// Which goes first when there is no room.
    rank: u8,
    cell: fn(&Queue) -> Cell<'static>,
}

/// All columns, in their order on a wide screen.
const COLUMNS: [Column; 8] = [
    Column { head: "WAITING", width: 9, rank: 0, cell: |queue| right(queue.counts[0].to_string()) },
    Column { head: "ACTIVE", width: 8, rank: 1, cell: |queue| right(queue.counts[1].to_string()) },
    Column { head: "DELAYED", width: 9, rank: 5, cell: |queue| right(queue.counts[2].to_string()) },
    Column {
        head: "FAILED",
        width: 8,
        rank: 2,
        cell: |queue| right(queue.counts[3].to_string()).style(failures(queue.counts[3])),
    },
    Column { head: "IN/S", width: 8, rank: 6, cell: |queue| right(words::figure(queue.rates[0])) },
    Column {
        head: "DONE/S",
        width: 8,
        rank: 3,
        cell: |queue| right(words::figure(queue.rates[1])),
    },
    Column { head: "WAIT p99", width: 9, rank: 4, cell: |queue| right(length(queue.p99s_ms[0])) },
    Column { head: "RUN p99", width: 9, rank: 7, cell: |queue| right(length(queue.p99s_ms[1])) },
];

/// A length of time, or that there is none.
fn length(length_ms: Option<f64>) -> String {
    length_ms.map_or("-".to_owned(), |length_ms| match length_ms {
        ..1000.0 => format!("{} ms", words::figure(length_ms)),
        _ => words::duration(length_ms as i64),
    })
}

/// The columns that fit beside the names, the most telling ones.
fn fitting(width: u16) -> impl Iterator<Item = &'static Column> {
    let mut by_rank: Vec<&Column> = COLUMNS.iter().collect();
    by_rank.sort_by_key(|column| column.rank);
    let mut left = width.saturating_sub(NAME_COLUMNS);
    let fits = by_rank.iter().take_while(|column| {
        let takes = column.width + 1;
        let fits = takes <= left;
        left = left.saturating_sub(takes);
        fits
    });
    let least = fits.last().map(|column| column.rank);
    COLUMNS.iter().filter(move |column| Some(column.rank) <= least)
}

fn queue_block(frame: &mut Frame<'_>, area: Rect, view: &View, sample: &Sample) {
    let total = sample.queues_total.max(sample.queues.len() as u64);
    let title = if total > sample.queues.len() as u64 {
        format!(" busiest {} of {total} queues, by {} ", sample.queues.len(), view.order.name())
    } else {
        format!(" {total} queues, by {} ", view.order.name())
    };
    let mut queues: Vec<&Queue> = sample.queues.iter().collect();
    match view.order {
        Order::Name => queues.sort_unstable_by(|a, b| a.name.cmp(&b.name)),
        Order::Waiting => sort_by_count(&mut queues, 0),
        Order::Active => sort_by_count(&mut queues, 1),
        Order::Failed => sort_by_count(&mut queues, 3),
    }
    let room = usize::from(area.height.saturating_sub(3));
    let first = view.scroll.min(queues.len().saturating_sub(room));
    let inside = area.width.saturating_sub(2);
    let rows = queues.iter().skip(first).take(room).map(|queue| {
        let mut name = Line::raw(escape::line(&queue.name).into_owned());
        if queue.paused {
            name.push_span(Span::styled(" paused", Style::new().fg(Color::Yellow)));
        }
        let cells = fitting(inside).map(|column| (column.cell)(queue));
        Row::new([Cell::new(name)].into_iter().chain(cells))
    });
    let heads = fitting(inside).map(|column| right(column.head.to_owned()));
    let heads = [Cell::new("QUEUE")].into_iter().chain(heads);
    let mut widths = vec![Constraint::Fill(1)];
    widths.extend(fitting(inside).map(|column| Constraint::Length(column.width)));
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

fn worker_block(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let more = if view.more_workers { "+" } else { "" };
    let title = format!(" {}{more} workers ", view.workers.len());
    let now_ms = Output::now_ms();
    let is_wide = area.width >= 80;
    let rows = view.workers.iter().map(|worker| {
        let [active, processed, failed] = worker.jobs;
        let seen = worker.last_seen_ms.map(|at_ms| words::relative(now_ms, at_ms));
        let mut cells = vec![Cell::new(escape::line(&worker.name)), right(active.to_string())];
        if is_wide {
            cells.push(right(processed.to_string()));
            cells.push(right(failed.to_string()).style(failures(failed)));
            cells.push(Cell::new(seen.unwrap_or_default()));
        }
        cells.push(Cell::new(escape::line(&worker.queues)));
        Row::new(cells)
    });
    let mut heads = vec![Cell::new("WORKER"), right("ACTIVE".to_owned())];
    let mut widths = vec![Constraint::Fill(1), Constraint::Length(8)];
    if is_wide {
        heads.extend(["PROCESSED", "FAILED"].map(|head| right(head.to_owned())));
        heads.push(Cell::new("SEEN"));
        widths.extend([10, 8, 10].map(Constraint::Length));
    }
    heads.push(Cell::new("QUEUES"));
    widths.push(Constraint::Fill(1));
    let table = Table::new(rows, widths)
        .header(Row::new(heads).style(HEAD))
        .block(Block::bordered().title(title));
    frame.render_widget(table, area);
}
