//! `top`: queues, rates, p99 and workers, live on a terminal.
//!
//! One thread asks the server, one waits for a signal, and this one draws and listens to the keys, so
//! that a server that is slow to answer never keeps `q` from working. The terminal is given back
//! however it ends: by a key, a signal, an error or a panic.

mod sample;
mod screen;

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use clap::Args;
use corq_io::signal::{Signal, Signals};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::sample::{RATES, Sample, TIMES};
use super::client::Client;
use super::context::Context;
use super::failure::Failure;
use super::target::Target;
use super::words::milliseconds;

/// How long a key may go unnoticed.
const KEY_PATIENCE: Duration = Duration::from_millis(50);
/// Intervals whose rates are kept: more than any terminal is wide.
const HISTORY: usize = 512;
/// The shortest interval; a server has better things to do.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// What `top` takes.
#[derive(Args, Debug)]
pub struct Top {
    /// Time between two looks at the server (milliseconds, or 2s ...)
    #[arg(long, value_parser = milliseconds, default_value = "1s", value_name = "TIME")]
    interval: i64,
}

/// What queues are sorted by.
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
    p99s_ms: [Option<f64>; TIMES.len()],
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
            p99s_ms: [None; TIMES.len()],
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
            self.p99s_ms = sample.p99s_ms(before);
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

/// What the other threads tell this one.
enum News {
    Sample(Box<Sample>),
    Trouble(String),
    Signal,
}

/// Shows it until a key, a signal or an error ends it.
pub fn run(context: &mut Context, top: &Top) -> Result<(), Failure> {
    if context.target.json || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "top needs a terminal: ask for 'corq stats --json' or 'corq metrics --prometheus' instead"
                .to_owned(),
        ));
    }
    // A server that is not there, or refuses, is reported as by every other command.
    let mut client = context.client()?;
    let first = Sample::take(&mut client)?;
    let interval = Duration::from_millis(top.interval.max(0) as u64).max(INTERVAL_MIN);
    // Before the first thread, which inherits what is blocked.
    let signals = Signals::block().map_err(|error| Failure::failed("signals", &error))?;
    let (news, told) = channel();
    let target = context.target.clone();
    let reporter = news.clone();
    thread::spawn(move || report(&target, client, interval, &reporter));
    thread::spawn(move || {
        // Also if there is nothing to wait with: the end.
        while let Ok(Signal::Other(_)) = signals.wait() {}
        let _ = news.send(News::Signal);
    });
    let mut view = View::new(context.target.address());
    view.take(first);
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::failed("the terminal", &error))?;
    let outcome = show(&mut terminal, &mut view, &told);
    ratatui::restore();
    outcome.map_err(|error| Failure::failed("the terminal", &error))
}

fn show(terminal: &mut DefaultTerminal, view: &mut View, told: &Receiver<News>) -> io::Result<()> {
    let mut changed = true;
    loop {
        for news in told.try_iter() {
            match news {
                News::Sample(sample) => view.take(*sample),
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

/// Asks the server once per interval, and connects again when it went away.
fn report(target: &Target, client: Client, interval: Duration, news: &Sender<News>) {
    let mut client = Some(client);
    loop {
        thread::sleep(interval);
        let sample = match &mut client {
            Some(client) => Sample::take(client),
            None => Client::connect(target).and_then(|fresh| Sample::take(client.insert(fresh))),
        };
        let told = match sample {
            Ok(sample) => News::Sample(Box::new(sample)),
            Err(failure) => {
                client = None;
                News::Trouble(match failure {
                    Failure::Failed(text) | Failure::Usage(text) => text,
                    Failure::Gone => "the server went away".to_owned(),
                })
            }
        };
        if news.send(told).is_err() {
            return;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::sample::{Queue, Worker};
    use super::*;
    use crate::cli::prometheus::Histogram;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Instant;

    fn sample(at: Instant, pushed: u64, slow: u64) -> Sample {
        let text = format!(
            "corq_push_duration_ms_bucket{{le=\"1\"}} 0\n\
             corq_push_duration_ms_bucket{{le=\"2.5\"}} {slow}\n\
             corq_push_duration_ms_bucket{{le=\"+Inf\"}} {slow}\n"
        );
        let queue = |name: &str, waiting, failed, paused| Queue {
            name: name.to_owned(),
            counts: [waiting, 2, 0, 9, failed],
            paused,
        };
        Sample {
            at,
            uptime_ms: 3_600_000,
            totals: [pushed, 0, 0, 0],
            jobs: [31, 2, 0, 9, 4],
            queues: vec![queue("emails", 1, 4, false), queue("video", 30, 0, true)],
            workers: vec![Worker {
                name: "press".to_owned(),
                queues: "emails,video".to_owned(),
                jobs: [2, 40, 1],
                last_seen_ms: None,
            }],
            times: TIMES.map(|(family, _)| Histogram::of(&text, family)),
            connections: 3.0,
            memory_bytes: 1e7,
            log_bytes: 1e9,
        }
    }

    fn drawn(view: &View) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(100, 30)).unwrap();
        terminal.draw(|frame| screen::draw(frame, view)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..100).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..30).map(row).collect()
    }

    fn line<'a>(screen: &'a [String], word: &str) -> &'a str {
        let found = screen.iter().find(|line| line.contains(word));
        found.unwrap_or_else(|| panic!("no {word} in\n{}", screen.join("\n")))
    }

    fn view() -> View {
        let now = Instant::now();
        let mut view = View::new("db:6789".to_owned());
        view.take(sample(now, 100, 0));
        view.take(sample(now + Duration::from_secs(2), 700, 50));
        view
    }

    #[test]
    fn the_screen_shows_rates_times_queues_and_workers() {
        let screen = drawn(&view());
        assert!(line(&screen, "corq at db:6789").contains("up 1h"));
        assert!(line(&screen, "pushed").contains("300"), "600 jobs in 2 s");
        assert!(line(&screen, "push answered").contains("2.5 ms"));
        assert!(line(&screen, "job waiting").contains('-'), "nothing happened to tell of");
        assert!(line(&screen, "video").contains("paused"));
        assert!(line(&screen, "press").contains("emails,video"));
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
