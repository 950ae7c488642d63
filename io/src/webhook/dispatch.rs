//! The one thread that knows all queues: takes events in, hands queues to threads, and decides what
//! follows from each outcome. Posts nothing itself and waits for nobody.

use super::client::{Client, Settings, now_ms, system_roots};
use super::config::{Config, Report};
use super::event::{Hook, Notice};
use super::feed::{Input, Load};
use super::queue::{EventQueue, HookLoad, QueueId, State, queue_of};
use super::trials::Trials;
use super::work::{Done, Message, Work};
use crossbeam_channel::{Receiver, Sender, bounded, never, select, unbounded};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How long an idle queue keeps its connection.
const IDLE_MAX: Duration = Duration::from_mins(1);
/// How long after its limit a post is broken off that has not ended by itself.
const OVERDUE: Duration = Duration::from_millis(500);
/// How often, at most, operators are informed that events are refused.
const REPORT_PAUSE: Duration = Duration::from_secs(10);
/// How long after the system gave no thread it is asked again.
const THREAD_PAUSE: Duration = Duration::from_secs(1);
/// Events taken in before outcomes and timers are looked at again.
const INPUTS_PER_ROUND: usize = 256;

/// The part of the threads that may be busy with posts that people ask for.
const TRIALS_PART: usize = 4;

/// The thread between shards and posting threads: queues, retries, limits.
pub(super) struct Dispatcher {
    config: Config,
    settings: Settings,
    load: Arc<Load>,
    inputs: Receiver<Input>,
    outcomes: (Sender<Message>, Receiver<Message>),
    work: (Sender<Work>, Receiver<Work>),
    queues: HashMap<QueueId, EventQueue>,
    hooks: HashMap<u128, HookLoad>,
    trials: Trials,
    timers: BTreeSet<(Instant, QueueId)>,
    /// Queues to be served: those that are well, and those that are shaky.
    ready: [VecDeque<QueueId>; 2],
    threads: usize,
    /// Threads that post, and those of them that do so for shaky queues.
    busy: usize,
    busy_shaky: usize,
    backlog: usize,
    bytes: usize,
    /// Memory of the bodies on their way: those of queues that are well, and of those that are shaky.
    bodies: [usize; 2],
    has_roots: bool,
    /// Whether the system has refused the thread that was asked for last.
    lacks_thread: bool,
    refused: (u64, Option<Instant>),
    stopping: bool,
}

impl Dispatcher {
    pub(super) fn new(config: Config, load: Arc<Load>, inputs: Receiver<Input>) -> Self {
        let settings = Settings {
            timeout: config.timeout,
            allow_private: config.allow_private,
            lookup: config.lookup.clone(),
            roots: Arc::default(),
        };
        let work = bounded(config.threads_max);
        Self {
            config,
            settings,
            load,
            inputs,
            outcomes: unbounded(),
            work,
            queues: HashMap::new(),
            hooks: HashMap::new(),
            trials: Trials::default(),
            timers: BTreeSet::new(),
            ready: [VecDeque::new(), VecDeque::new()],
            threads: 0,
            busy: 0,
            busy_shaky: 0,
            backlog: 0,
            bytes: 0,
            bodies: [0; 2],
            has_roots: false,
            lacks_thread: false,
            refused: (0, None),
            stopping: false,
        }
    }

    /// Runs until a stop is asked for and nothing is left to be posted.
    pub(super) fn run(mut self) {
        loop {
            let now = Instant::now();
            self.fire_timers(now);
            self.serve(now);
            self.note_load(now);
            if self.stopping && self.busy == 0 && self.ready.iter().all(VecDeque::is_empty) {
                return;
            }
            let mut next = self.timers.first().map_or(IDLE_MAX, |(at, _)| *at - now);
            if let Some(until) = self.trials.next_until() {
                next = next.min(until.saturating_duration_since(now));
            }
            if self.lacks_thread {
                next = next.min(THREAD_PAUSE);
            }
            let inputs = if self.stopping { never() } else { self.inputs.clone() };
            let outcomes = self.outcomes.1.clone();
            select! {
                recv(inputs) -> input => match input {
                    Ok(input) => self.take_in(input),
                    // All shards have ended.
                    Err(_) => self.stop(),
                },
                recv(outcomes) -> message => {
                    if let Ok(message) = message {
                        self.handle(&message);
                    }
                }
                default(next) => {}
            }
            for input in inputs.try_iter().take(INPUTS_PER_ROUND) {
                self.take_in(input);
            }
            for message in outcomes.try_iter() {
                self.handle(&message);
            }
        }
    }

    fn take_in(&mut self, input: Input) {
        match input {
            Input::Event { hooks, notice } => {
                self.load.fed_bytes.fetch_sub(notice.bytes(), Relaxed);
                let notice = Arc::new(notice);
                let hooks = hooks.iter().flat_map(|some| some.iter());
                for hook in hooks.filter(|hook| hook.wants() & notice.kind() != 0) {
                    self.enqueue(hook, &notice);
                }
            }
            Input::Try(asked) => self.trials.ask(asked),
            Input::Stop => self.stop(),
        }
    }

    fn handle(&mut self, message: &Message) {
        match message {
            Message::Rendered { queue, bytes } => self.settle_body(*queue, *bytes),
            Message::Done(done) => self.finish(done, Instant::now()),
        }
    }

    fn enqueue(&mut self, hook: &Arc<Hook>, notice: &Arc<Notice>) {
        if hook.is_removed() || !hook.is_enabled() {
            return;
        }
        let id = queue_of(hook, notice, self.config.posts_max);
        self.give_up_stale(id, Instant::now());
        let queue = self.queues.entry(id).or_insert_with(|| EventQueue::new(Arc::clone(hook)));
        queue.push(Arc::clone(notice));
        let is_idle = queue.state == State::Idle;
        self.backlog += 1;
        self.bytes += notice.bytes();
        let load = self.hooks.entry(id.0).or_default();
        load.events += 1;
        load.bytes += notice.bytes();
        let is_full = load.events > self.config.backlog_max;
        if is_idle {
            self.set_ready(id);
        }
        if is_full {
            self.overflow(id.0);
        }
        self.make_room();
    }

    /// Subtracts events of a webhook that are gone, with their memory.
    fn note_gone(&mut self, hook: u128, events: usize, bytes: usize) {
        self.backlog -= events;
        self.bytes -= bytes;
        let Some(load) = self.hooks.get_mut(&hook) else { return };
        load.events -= events;
        load.bytes -= bytes;
        load.overflowing &= load.events >= self.config.backlog_max / 2;
        if load.events == 0 {
            self.hooks.remove(&hook);
        }
    }

    /// Events go until what is left, and the bodies on their way, take no more than they may.
    fn make_room(&mut self) {
        while self.held_bytes() > self.config.backlog_bytes_max {
            // The one that has most of what is too much.
            let spare = self.hooks.iter().filter(|(_, load)| load.events > load.running);
            let largest = spare.max_by_key(|(_, load)| load.bytes).map(|(&hook, _)| hook);
            let Some(hook) = largest else { break };
            if !self.overflow(hook) {
                break;
            }
        }
    }

    /// Memory of what waits and of the bodies on their way.
    fn held_bytes(&self) -> usize {
        self.bytes + self.bodies.iter().sum::<usize>()
    }

    /// The oldest event of a webhook that is not on its way makes room. False if there is none.
    fn overflow(&mut self, hook: u128) -> bool {
        let ids = (0..self.config.posts_max as u64).map(|place| (hook, place));
        let spare = ids.filter_map(|id| Some((self.queues.get(&id)?.oldest_spare_at_ms()?, id)));
        let Some((_, id)) = spare.min() else { return false };
        let Some(queue) = self.queues.get_mut(&id) else { return false };
        let before = queue.bytes();
        queue.drop_oldest();
        let bytes = before - queue.bytes();
        let is_empty = queue.len() == 0;
        queue.hook.note_failed(1);
        self.load.dropped.fetch_add(1, Relaxed);
        if let Some(load) = self.hooks.get_mut(&hook)
            && !std::mem::replace(&mut load.overflowing, true)
        {
            (self.config.report)(&Report::Overflow { hook: &queue.hook });
        }
        self.note_gone(hook, 1, bytes);
        if is_empty {
            self.rest(id, Instant::now());
        }
        true
    }

    /// Gives up events from before the webhook was disabled: they are not posted any more, also once it is enabled
    /// again.
    fn give_up_stale(&mut self, id: QueueId, now: Instant) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let before = queue.bytes();
        let events = queue.give_up_stale();
        if events == 0 {
            return;
        }
        queue.hook.note_failed(events as u64);
        self.load.dropped.fetch_add(events as u64, Relaxed);
        let (bytes, is_empty) = (before - queue.bytes(), queue.len() == 0);
        self.note_gone(id.0, events, bytes);
        if is_empty {
            self.rest(id, now);
        }
    }

    fn set_ready(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        if let Some(at) = queue.timer.take() {
            self.timers.remove(&(at, id));
        }
        queue.state = State::Ready;
        queue.note_health();
        self.ready[usize::from(queue.shaky)].push_back(id);
    }

    fn set_timer(&mut self, id: QueueId, state: State, at: Instant) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        if let Some(at) = queue.timer.replace(at) {
            self.timers.remove(&(at, id));
        }
        queue.state = state;
        self.timers.insert((at, id));
    }

    /// A queue has nothing to do.
    fn rest(&mut self, id: QueueId, now: Instant) {
        self.set_timer(id, State::Idle, now + IDLE_MAX);
    }

    fn fire_timers(&mut self, now: Instant) {
        self.trials.break_off(now);
        while let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            let Some(queue) = self.queues.get_mut(&id) else { continue };
            queue.timer = None;
            match queue.state {
                State::Idle => {
                    self.queues.remove(&id);
                }
                State::Pausing => self.set_ready(id),
                // A receiver that reads or writes byte by byte can outlive the client's own limits.
                State::Running => {
                    if let Some(client) = queue.client.take() {
                        client.break_off();
                    }
                }
                State::Ready => {}
            }
        }
    }

    /// Hands queues to threads, as long as there are both. Shaky queues get no more than half of the
    /// threads: however many receivers hang, there is room for those that are known to answer. Several posts at once are for
    /// webhooks whose receivers answer.
    fn serve(&mut self, now: Instant) {
        self.serve_trials(now);
        let mut held_back = Vec::new();
        self.serve_ready(now, &mut held_back);
        for id in held_back.into_iter().rev() {
            self.ready[1].push_front(id);
        }
    }

    fn serve_ready(&mut self, now: Instant, held_back: &mut Vec<QueueId>) {
        let mut may = [true; 2];
        while self.busy < self.config.threads_max {
            may[1] &= self.busy_shaky < self.config.threads_max.div_ceil(2);
            let [well, shaky] = &mut self.ready;
            let next = well.pop_front_if(|_| may[0]).or_else(|| shaky.pop_front_if(|_| may[1]));
            let Some(id) = next else { return };
            self.give_up_stale(id, now);
            // Emptied in the meantime, or gone.
            let queue = self.queues.get_mut(&id).filter(|queue| queue.state == State::Ready);
            let Some(queue) = queue else { continue };
            if queue.hook.is_removed() || self.stopping && queue.is_failing() {
                self.remove(id);
                continue;
            }
            queue.note_health();
            let has_post = self.hooks.get(&id.0).is_some_and(|load| load.running > 0);
            if queue.shaky && (has_post || !may[1]) {
                held_back.push(id);
                continue;
            }
            let is_shaky = usize::from(queue.shaky);
            let body_bytes_max = queue.first().map_or(0, |notice| notice.body_bytes_max());
            if !self.has_room_for_body(is_shaky, body_bytes_max) {
                // A post that ends makes room.
                self.ready[is_shaky].push_front(id);
                may[is_shaky] = false;
                continue;
            }
            if self.busy == self.threads && !self.start_thread() {
                self.ready[is_shaky].push_front(id);
                return;
            }
            self.start(id, now);
        }
    }

    /// Hands posts that were asked for to threads: some at a time, so that receivers that hang leave threads to the queues.
    fn serve_trials(&mut self, now: Instant) {
        let most = (self.config.threads_max / TRIALS_PART).max(1);
        while self.busy < self.config.threads_max && self.trials.running() < most {
            let Some(hook) = self.trials.next() else { return };
            if hook.target().is_secure() && !self.has_roots {
                self.load_roots();
            }
            if self.busy == self.threads && !self.start_thread() {
                return;
            }
            let client = Client::new(&self.settings);
            let until = now + self.config.timeout + OVERDUE;
            let Some((number, hook, notice)) = self.trials.begin(client.clone(), until) else {
                return;
            };
            self.busy += 1;
            // The send cannot fail: `self.work` holds the receiver, too.
            let queue = (hook.id(), 0);
            let _ = self.work.0.send(Work { hook, queue, notice, client, trial: Some(number) });
        }
    }

    /// Whether one more body may be rendered. Of the memory each kind of queues has a part, so that receivers that hang
    /// hold up no others; one body is always let through.
    fn has_room_for_body(&self, is_shaky: usize, bytes: usize) -> bool {
        let (bodies, part) = (self.bodies[is_shaky], [2, 4][is_shaky]);
        bodies == 0 || bodies + bytes <= self.config.backlog_bytes_max / part
    }

    /// The body of a running queue takes so much from now on.
    fn settle_body(&mut self, id: QueueId, bytes: usize) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let bodies = &mut self.bodies[usize::from(queue.shaky)];
        *bodies = *bodies - queue.body_bytes + bytes;
        queue.body_bytes = bytes;
    }

    fn start(&mut self, id: QueueId, now: Instant) {
        let secure = self.queues.get(&id).is_some_and(|queue| queue.hook.target().is_secure());
        if secure && !self.has_roots {
            self.load_roots();
        }
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let Some(notice) = queue.first().cloned() else { return };
        if queue.attempts == 0 {
            queue.hook.note_triggered(now_ms());
        }
        let client = queue.client.get_or_insert_with(|| Client::new(&self.settings)).clone();
        let work = Work { hook: Arc::clone(&queue.hook), queue: id, notice, client, trial: None };
        let body_bytes_max = work.notice.body_bytes_max();
        self.busy += 1;
        self.busy_shaky += usize::from(queue.shaky);
        if let Some(load) = self.hooks.get_mut(&id.0) {
            load.running += 1;
        }
        self.set_timer(id, State::Running, now + self.config.timeout + OVERDUE);
        self.settle_body(id, body_bytes_max);
        self.make_room();
        // The send cannot fail: `self.work` holds the receiver, too.
        let _ = self.work.0.send(work);
    }

    /// Loads the certificates of the system, when they are first needed.
    fn load_roots(&mut self) {
        let (roots, errors) = system_roots();
        if roots.is_empty() {
            (self.config.report)(&Report::NoCertificates { errors: &errors });
        }
        self.settings.roots = Arc::new(roots);
        self.has_roots = true;
        // Clients made before have no roots, which posts without encryption do not need.
    }

    fn start_thread(&mut self) -> bool {
        let (work, outcomes) = (self.work.1.clone(), self.outcomes.0.clone());
        let thread = std::thread::Builder::new().name(format!("webhook-{}", self.threads));
        let spawned = thread.spawn(move || {
            work.into_iter().for_each(|work| work.run(&outcomes));
        });
        self.lacks_thread = spawned.is_err();
        match spawned {
            Ok(_) => self.threads += 1,
            Err(error) => (self.config.report)(&Report::NoThread { error: &error }),
        }
        !self.lacks_thread
    }

    /// Handles the outcome of a post: counts it, and retries or goes on.
    fn finish(&mut self, done: &Done, now: Instant) {
        self.busy -= 1;
        self.threads -= usize::from(done.thread_ends);
        if let Some(number) = done.trial {
            self.trials.end(number, &done.outcome);
            return;
        }
        let id = done.queue;
        self.settle_body(id, 0);
        if let Some(load) = self.hooks.get_mut(&id.0) {
            load.running -= 1;
        }
        self.give_up_stale(id, now);
        // A queue that is running is never dropped.
        let Some(queue) = self.queues.get_mut(&id) else { return };
        self.busy_shaky -= usize::from(queue.shaky);
        queue.note_outcome(done.outcome.failure.is_none());
        if let Some(notice) = queue.first() {
            let about = (notice.event(), notice.job());
            queue.hook.note_delivery(done.outcome.delivery(about, queue.attempts, false));
        }
        let last = queue.attempts >= self.config.attempts_max || queue.is_doomed();
        match &done.outcome.failure {
            None => {
                queue.hook.note_delivered();
                self.load.delivered.fetch_add(1, Relaxed);
                self.pop(id);
            }
            Some(reason) => {
                self.load.failed_attempts.fetch_add(1, Relaxed);
                if last && !queue.hook.is_removed() {
                    let (attempts, notice) = (queue.attempts, queue.first());
                    if let Some(notice) = notice {
                        let hook = &queue.hook;
                        (self.config.report)(&Report::Abandoned { hook, notice, attempts, reason });
                    }
                    queue.hook.note_failed(1);
                    self.load.abandoned.fetch_add(1, Relaxed);
                    self.pop(id);
                }
            }
        }
        self.go_on(id, now);
    }

    /// The first event of a queue is dealt with.
    fn pop(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        if let Some(notice) = queue.pop() {
            self.note_gone(id.0, 1, notice.bytes());
        }
    }

    /// Puts a queue into its next state after a post.
    fn go_on(&mut self, id: QueueId, now: Instant) {
        let Some(queue) = self.queues.get(&id) else { return };
        if queue.hook.is_removed() || self.stopping && (queue.is_failing() || queue.attempts > 0) {
            self.remove(id);
        } else if queue.len() == 0 {
            self.rest(id, now);
        } else if queue.attempts > 0 {
            let pause = self.config.retry_delay.saturating_mul(queue.attempts);
            self.set_timer(id, State::Pausing, now + pause);
        } else {
            self.set_ready(id);
        }
    }

    /// Drops a queue that is not running, with all that waits in it.
    fn remove(&mut self, id: QueueId) {
        let Some(queue) = self.queues.remove(&id) else { return };
        if let Some(at) = queue.timer {
            self.timers.remove(&(at, id));
        }
        self.note_gone(id.0, queue.len(), queue.bytes());
        if !queue.hook.is_removed() {
            self.load.undone.fetch_add(queue.len() as u64, Relaxed);
        }
    }

    /// From now on queues go on to their end, but for those whose last post failed.
    fn stop(&mut self) {
        if std::mem::replace(&mut self.stopping, true) {
            return;
        }
        self.trials.stop();
        // Nobody feeds it any more, but there may be events on their way.
        let left: Vec<Input> = self.inputs.try_iter().collect();
        for input in left {
            self.take_in(input);
        }
        let given_up = |queue: &EventQueue| {
            queue.state == State::Pausing || queue.is_failing() && queue.state != State::Running
        };
        let queues = self.queues.iter().filter(|(_, queue)| given_up(queue));
        let failing: Vec<QueueId> = queues.map(|(&id, _)| id).collect();
        for id in failing {
            self.remove(id);
        }
    }

    /// Shows how it stands, and says so if events have been refused.
    fn note_load(&mut self, now: Instant) {
        self.load.backlog.store(self.backlog as u64, Relaxed);
        self.load.backlog_bytes.store(self.held_bytes() as u64, Relaxed);
        self.load.threads.store(self.threads as u64, Relaxed);
        let refused = self.load.refused.load(Relaxed);
        let quiet = self.refused.1.is_none_or(|at| now.duration_since(at) >= REPORT_PAUSE);
        if refused > self.refused.0 && quiet {
            let events = refused - self.refused.0;
            (self.config.report)(&Report::Refused { events });
            self.refused = (refused, Some(now));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::target::Target;
    use super::*;
    use std::net::TcpListener;

    /// The fear: a receiver that finds a way around the limits of the client holds its thread for ever.
    #[test]
    fn a_post_that_outlives_the_limits_of_the_client_is_broken_off() {
        let (inputs, taken) = bounded(8);
        let (say, said) = unbounded();
        let config = Config {
            attempts_max: 1,
            retry_delay: Duration::ZERO,
            timeout: Duration::from_millis(100),
            threads_max: 1,
            posts_max: 1,
            backlog_max: 10,
            backlog_bytes_max: 1000,
            allow_private: true,
            lookup: None,
            report: Arc::new(move |report| say.send(format!("{report:?}")).unwrap()),
        };
        let mut dispatcher = Dispatcher::new(config, Arc::default(), taken);
        dispatcher.settings.timeout = Duration::from_mins(10);
        std::thread::spawn(|| dispatcher.run());
        // Takes connections, and never answers.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let hook = Arc::new(Hook::new(1, Target::parse(&url, true).unwrap(), None, 1));
        for _ in 0..2 {
            let notice = Notice::new(1, "e", 1, "j".into(), 1, 0, Vec::new);
            let hooks = [Arc::from([Arc::clone(&hook)]), Arc::default()];
            inputs.send(Input::Event { hooks, notice }).unwrap();
            // Half of the time that the client gives it.
            let report = said.recv_timeout(Duration::from_mins(5)).unwrap();
            assert!(report.starts_with("Abandoned"), "{report}");
        }
    }
}
