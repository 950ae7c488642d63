//! `top`: queues, rates, cores and workers, live on a terminal.
//!
//! The server sends samples on one stream, which one thread reads. Another waits for a signal, and this one draws and
//! listens to the keys, so that a server that is slow to answer never keeps `q` from working. The terminal is given back
//! however it ends: by a key, a signal, an error or a panic.
//!
//! | file | responsibility |
//! |---|---|
//! | `sample` | what it gets from the server |
//! | `screen` | how it looks |
//! | `stream` | the connection |

mod sample;
mod screen;
mod stream;

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use clap::Args;
use corq_io::signal::{Signal, Signals};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::sample::{RATES, Sample, Worker};
use self::stream::{News, Stream};
use super::context::Context;
use super::failure::Failure;
use super::words::milliseconds;

/// How long a key may go unnoticed.
const KEY_PATIENCE: Duration = Duration::from_millis(50);
/// Intervals whose rates are kept: more than any terminal is wide.
const HISTORY: usize = 512;

/// Arguments of `top`.
#[derive(Args, Debug)]
pub struct Top {
    /// Time between two samples, 1s to 1m (milliseconds, or 2s ...)
    #[arg(long, value_parser = milliseconds, default_value = "1s", value_name = "TIME")]
    interval: i64,
}

/// Order of the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Waiting,
    Active,
    Failed,
    Name,
}

impl Order {
    fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Active => "active",
            Self::Failed => "failed",
            Self::Name => "name",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Waiting => Self::Active,
            Self::Active => Self::Failed,
            Self::Failed => Self::Name,
            Self::Name => Self::Waiting,
        }
    }
}

/// All that is drawn.
#[derive(Debug)]
struct View {
    address: String,
    latest: Option<Sample>,
    /// Per interval, the newest last.
    rates: VecDeque<[f64; RATES.len()]>,
    workers: Vec<Worker>,
    /// Whether there are more of them.
    more_workers: bool,
    /// Why there are no new samples.
    trouble: Option<String>,
    order: Order,
    scroll: usize,
}

impl View {
    fn new(address: String) -> Self {
        Self {
            address,
            latest: None,
            rates: VecDeque::new(),
            workers: Vec::new(),
            more_workers: false,
            trouble: None,
            order: Order::Waiting,
            scroll: 0,
        }
    }

    fn latest(&self) -> Option<&Sample> {
        self.latest.as_ref()
    }

    fn take(&mut self, sample: Sample) {
        if let Some(before) = &self.latest {
            self.rates.push_back(sample.rates(before));
            if self.rates.len() > HISTORY {
                self.rates.pop_front();
            }
        }
        self.latest = Some(sample);
        self.trouble = None;
    }

    /// Obeys a key; false for the end.
    fn press(&mut self, key: KeyEvent) -> bool {
        let last = self.latest().map_or(0, |sample| sample.queues.len().saturating_sub(1));
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('s') => {
                self.order = self.order.next();
                self.scroll = 0;
            }
            KeyCode::Down | KeyCode::Char('j') => self.scroll = (self.scroll + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll = (self.scroll + 10).min(last),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            _ => {}
        }
        true
    }
}

/// Shows it until a key, a signal or an error ends it.
pub fn run(context: &mut Context, top: &Top) -> Result<(), Failure> {
    if context.target.json || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "top needs a terminal: ask for 'corq stats --json' or 'corq metrics --prometheus' instead"
                .to_owned(),
        ));
    }
    let interval = Duration::from_millis(top.interval.max(0) as u64);
    // A server that is not there, or refuses, is reported as by every other command.
    let stream = Stream::open(&context.target, interval)?;
    // Before the first thread, which inherits what is blocked.
    let signals = Signals::block().map_err(|error| Failure::failed("signals", &error))?;
    let (news, received) = channel();
    let target = context.target.clone();
    let reporter = news.clone();
    thread::spawn(move || stream.report(&target, interval, &reporter));
    thread::spawn(move || {
        // Also if there is nothing to wait with: the end.
        while let Ok(Signal::Other(_)) = signals.wait() {}
        let _ = news.send(News::Signal);
    });
    let mut view = View::new(context.target.address());
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::failed("the terminal", &error))?;
    let outcome = show(&mut terminal, &mut view, &received);
    ratatui::restore();
    outcome.map_err(|error| Failure::failed("the terminal", &error))
}

fn show(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    received: &Receiver<News>,
) -> io::Result<()> {
    let mut changed = true;
    loop {
        for news in received.try_iter() {
            match news {
                News::Sample(sample) => view.take(*sample),
                News::Workers(workers, more) => (view.workers, view.more_workers) = (workers, more),
                News::Trouble(text) => view.trouble = Some(text),
                News::Signal => return Ok(()),
            }
            changed = true;
        }
        if changed {
            terminal.draw(|frame| screen::draw(frame, view))?;
        }
        changed = event::poll(KEY_PATIENCE)?;
        if changed
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && !view.press(key)
        {
            return Ok(());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::sample::{Core, Queue};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn sample(at_ms: u64, pushed: u64) -> Sample {
        let queue = |name: &str, waiting, failed, paused| Queue {
            name: name.to_owned(),
            counts: [waiting, 2, 0, failed],
            rates: [7.0, 5.5],
            p99s_ms: [Some(2.5), None],
            paused,
        };
        let core =
            Core { shard: 1, load: 0.12, longest_turn_ms: 3.0, longest_turn: "PUSHB".to_owned() };
        Sample {
            at_ms,
            uptime_ms: 3_600_000,
            totals: [pushed, 0, 0, 0],
            jobs: [31, 2, 0, 9, 4],
            queues: vec![queue("emails", 1, 4, false), queue("video", 30, 0, true)],
            queues_total: 2,
            cores: vec![core],
            connections: 3,
            log_bytes: 1_000_000_000,
        }
    }

    fn drawn_at(view: &View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen::draw(frame, view)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(row).collect()
    }

    fn drawn(view: &View) -> Vec<String> {
        drawn_at(view, 100, 30)
    }

    fn line<'a>(screen: &'a [String], word: &str) -> &'a str {
        let found = screen.iter().find(|line| line.contains(word));
        found.unwrap_or_else(|| panic!("no {word} in\n{}", screen.join("\n")))
    }

    fn view() -> View {
        let mut view = View::new("db:6789".to_owned());
        view.take(sample(1_000, 100));
        view.take(sample(3_000, 700));
        view.workers = vec![Worker {
            name: "press".to_owned(),
            queues: "emails,video".to_owned(),
            jobs: [2, 40, 1],
            last_seen_ms: None,
        }];
        view
    }

    #[test]
    fn the_screen_shows_rates_cores_queues_and_workers() {
        let screen = drawn(&view());
        assert!(line(&screen, "corq at db:6789").contains("up 1h"));
        assert!(line(&screen, "pushed").contains("300"), "600 jobs in 2 s");
        assert!(line(&screen, "12 %").contains("3.0 ms PUSHB"));
        assert!(line(&screen, "video").contains("paused"));
        assert!(
            line(&screen, "emails ").contains("5.5") && line(&screen, "emails ").contains("2.5 ms")
        );
        assert!(line(&screen, "press").contains("emails,video"));
    }

    #[test]
    fn a_small_screen_keeps_the_names_of_queues_and_what_waits() {
        let mut view = view();
        let long = "notifications.eu-1";
        view.latest.as_mut().unwrap().queues[0].name = long.to_owned();
        for (width, height) in [(60, 12), (60, 30), (80, 12), (40, 8)] {
            let screen = drawn_at(&view, width, height);
            assert!(line(&screen, long).contains(" 1"), "{}", screen.join("\n"));
            assert!(line(&screen, "video").contains("30"));
            assert!(line(&screen, "QUEUE").contains("WAITING"));
        }
        let screen = drawn_at(&view, 60, 12);
        assert!(
            line(&screen, "QUEUE").contains("FAILED") && !line(&screen, "QUEUE").contains("RUN")
        );
    }

    #[test]
    fn more_queues_than_a_sample_has_are_counted() {
        let mut view = view();
        view.latest.as_mut().unwrap().queues_total = 3412;
        assert!(line(&drawn(&view), "queues").contains("busiest 2 of 3412 queues"));
    }

    #[test]
    fn keys_sort_scroll_and_end() {
        let mut view = view();
        let place = |view: &View, name: &str| {
            drawn(view).iter().position(|line| line.contains(&format!("{name} "))).unwrap()
        };
        assert!(place(&view, "video") < place(&view, "emails"), "by waiting");
        let press = |view: &mut View, key: char| view.press(KeyCode::Char(key).into());
        assert!(press(&mut view, 's') && press(&mut view, 's'));
        assert!(place(&view, "emails") < place(&view, "video"), "by failed");
        assert!(press(&mut view, 'j') && view.scroll == 1);
        assert!(press(&mut view, 'j') && view.scroll == 1, "there are two queues");
        assert!(!press(&mut view, 'q'));
        assert!(!view.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(press(&mut view, 'c'), "a letter like others");
    }

    #[test]
    fn trouble_is_shown_over_the_last_figures() {
        let mut view = view();
        view.trouble = Some("lost the server".to_owned());
        let screen = drawn(&view);
        assert!(screen[1].contains("lost the server") && line(&screen, "video").contains("30"));
    }

    #[test]
    fn a_screen_of_any_size_is_drawn() {
        let view = view();
        for (width, height) in [(1, 1), (20, 5), (80, 10), (300, 100)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| screen::draw(frame, &view)).unwrap();
        }
    }
}
