//! The real program, started the way an operator starts it: by environment, on ports of its own,
//! its output in a file that a failing test shows.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Client, DEADLINE, Http, free_port, until};

/// Longer than any test takes.
const LONG_MS: u64 = 3_600_000;

/// In the line that ends a start.
const SERVES: &str = " serves tcp ";

/// How a server is to be started.
#[derive(Clone)]
pub(crate) struct Start {
    env: Vec<(String, String)>,
    arguments: Vec<String>,
    memory: bool,
    /// How many files it may have open.
    open_files: Option<u64>,
    program: Option<PathBuf>,
    /// Sockets that it inherits: for frames and for HTTP.
    inherited: Option<Arc<[TcpListener; 2]>>,
}

/// Hands its standard input and output on as the descriptors that a service manager hands over.
const AS_MANAGER: &str = "exec 3<&0 4<&1 0</dev/null 1>&2; \
    LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=tcp:http exec \"$@\"";

impl Start {
    /// Two shards, so that what crosses shards is tried everywhere; `CORQ_TEST_SHARDS` says another number.
    pub(crate) fn new() -> Self {
        let shards = std::env::var("CORQ_TEST_SHARDS").unwrap_or_else(|_| "2".to_owned());
        let arguments = vec!["serve".to_owned()];
        let (env, memory, open_files, program, inherited) = (Vec::new(), false, None, None, None);
        Self { env, arguments, memory, open_files, program, inherited }
            .env("HOST", "127.0.0.1")
            .env("SHARDS", shards)
            // Tests have no time to wait for schedules.
            .env("CRON_MIN_INTERVAL_MS", 1)
            // Nor for what has expired.
            .env("DLQ_EXPIRED_KEPT_MS", 50)
            // A client that stands still for a while, as on a busy machine, is not cut off for it. Tests of these say
            // how long it is.
            .env("AUTH_TIMEOUT_MS", LONG_MS)
            .env("AUTH_FAILURES_MAX", "Infinity")
            .env("FRAME_TIMEOUT_MS", LONG_MS)
            .env("HTTP_REQUEST_TIMEOUT_MS", LONG_MS)
            .env("HTTP_IDLE_TIMEOUT_MS", LONG_MS)
            .env("STREAM_KEEP_ALIVE_MS", LONG_MS)
            .env("TLS_HANDSHAKE_TIMEOUT_MS", 600_000)
            .env("SHUTDOWN_TIMEOUT_MS", 240_000)
            // The smallest: room is taken from the disk before it is needed.
            .env("SEGMENT_MB", "16")
    }

    #[allow(clippy::needless_pass_by_value)] // A text or a number, whichever the test has.
    pub(crate) fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.to_owned(), value.to_string()));
        self
    }

    /// Without a setting that tests have otherwise.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.env.retain(|(known, _)| known != name);
        self
    }

    /// No data directory at all.
    pub(crate) fn memory(mut self) -> Self {
        self.memory = true;
        self.argument("--memory")
    }

    /// Starts it with room for so many open files, sockets included.
    pub(crate) fn open_files(mut self, most: u64) -> Self {
        self.open_files = Some(most);
        self
    }

    /// Another build of the program than this test's own.
    pub(crate) fn program(mut self, path: &Path) -> Self {
        self.program = Some(path.to_path_buf());
        self
    }

    /// Takes connections from these instead of ports of its own, as from a service manager that keeps them open.
    pub(crate) fn inherits(mut self, sockets: &Arc<[TcpListener; 2]>) -> Self {
        self.inherited = Some(Arc::clone(sockets));
        self
    }

    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Starts a server on a data directory of its own and waits until it serves.
    pub(crate) fn start(self) -> Server {
        let dir = tempfile::tempdir().expect("the system has a temporary directory");
        let data = dir.path().join("data");
        self.start_on(dir, data)
    }

    /// Starts a server on a data directory that is there already, and stays.
    pub(crate) fn start_at(self, data: &Path) -> Server {
        let dir = tempfile::tempdir().expect("the system has a temporary directory");
        self.start_on(dir, data.to_path_buf())
    }

    /// Launches a server that serves once another one has ended.
    pub(crate) fn stand_by(self) -> Server {
        let dir = tempfile::tempdir().expect("the system has a temporary directory");
        let data = dir.path().join("data");
        let mut server = self.made_on(dir, data);
        server.launch();
        server
    }

    fn start_on(self, dir: TempDir, data: PathBuf) -> Server {
        let mut server = self.made_on(dir, data);
        server.start();
        server
    }

    fn made_on(self, dir: TempDir, data: PathBuf) -> Server {
        let (tcp, http) = match &self.inherited {
            None => (free_port(), free_port()),
            Some(sockets) => {
                let [tcp, http] = [0, 1].map(|at: usize| sockets[at].local_addr().unwrap().port());
                (tcp, http)
            }
        };
        Server { start: self, tcp, http, data, dir, child: None, watchdog: None, said_before: 0 }
    }

    /// Starts a server that is expected to end by itself; answers its status and its output.
    pub(crate) fn run_to_its_end(self, data: &Path) -> (ExitStatus, String) {
        let dir = tempfile::tempdir().expect("the system has a temporary directory");
        let log = dir.path().join("server.log");
        let mut child = self.spawn(free_port(), free_port(), data, &log);
        let status = wait(&mut child);
        let output = fs::read_to_string(&log).unwrap_or_default();
        match status {
            Some(status) => (status, output),
            None => panic!("the server went on running; it said:\n{output}"),
        }
    }

    /// Memory of clients of a server whose test names none: `CORQ_TEST_CLIENT_MEMORY_MB`, or more if its shards need that.
    fn client_memory_mb(&self) -> Option<u64> {
        let size: u64 = std::env::var("CORQ_TEST_CLIENT_MEMORY_MB").ok()?.parse().unwrap();
        let (_, shards) = self.env.iter().find(|(name, _)| name == "SHARDS")?;
        Some(size.max(64 * shards.parse().unwrap_or(1)))
    }

    fn spawn(&self, tcp: u16, http: u16, data: &Path, log: &Path) -> Child {
        let open = || {
            File::options()
                .create(true)
                .append(true)
                .open(log)
                .unwrap_or_else(|error| panic!("{}: {error}", log.display()))
        };
        let program = self.program.clone().unwrap_or_else(program);
        let mut command = match self.open_files {
            None => Command::new(program),
            Some(most) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", "ulimit -n \"$1\"; shift; exec \"$@\"", "sh"]);
                shell.arg(most.to_string()).arg(program);
                shell
            }
        };
        let (input, output) = match &self.inherited {
            None => (Stdio::null(), Stdio::from(open())),
            Some(sockets) => {
                let mut manager = Command::new("sh");
                manager.args(["-c", AS_MANAGER, "sh"]).arg(command.get_program());
                command = manager;
                let [tcp, http] = [0, 1].map(|at: usize| sockets[at].try_clone().unwrap());
                (OwnedFd::from(tcp).into(), OwnedFd::from(http).into())
            }
        };
        // Nothing of the developer's own environment may decide a test.
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        if !self.memory {
            command.env("DATA_PATH", data);
        }
        command
            .env("TCP_PORT", tcp.to_string())
            .env("HTTP_PORT", http.to_string())
            .envs(self.client_memory_mb().map(|size| ("CLIENT_MEMORY_MB", size.to_string())))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .args(&self.arguments)
            .current_dir(log.parent().unwrap_or(Path::new("/")))
            .stdin(input)
            .stdout(output)
            .stderr(open())
            .spawn()
            .expect("the program has been built for this test")
    }
}

/// The program built for this test, or the one that `CORQ_BIN` names where none is.
pub(crate) fn program() -> PathBuf {
    let built = option_env!("CARGO_BIN_EXE_corq-tested").map(PathBuf::from);
    built.or_else(|| std::env::var_os("CORQ_BIN").map(PathBuf::from)).expect("CORQ_BIN is set")
}

/// A running server; killed when it goes out of scope.
pub(crate) struct Server {
    start: Start,
    pub(crate) tcp: u16,
    pub(crate) http: u16,
    pub(crate) data: PathBuf,
    dir: TempDir,
    child: Option<Child>,
    watchdog: Option<Child>,
    /// How long its output was when it was launched, in bytes.
    said_before: usize,
}

impl Server {
    /// A server with the settings that most tests use.
    pub(crate) fn start_default() -> Self {
        Start::new().start()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.tcp)
    }

    /// A connection to its HTTP port.
    pub(crate) fn web(&self) -> Http {
        Http::connect(self.http)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Starts the program again on the same data directory and ports.
    pub(crate) fn start(&mut self) {
        self.launch();
        self.await_service();
    }

    /// Starts the program again, and does not wait until it serves.
    pub(crate) fn launch(&mut self) {
        assert!(self.child.is_none(), "the server is running");
        self.said_before = self.output().len();
        let log = self.log();
        let child = self.start.spawn(self.tcp, self.http, &self.data, &log);
        self.watchdog = Some(watchdog(child.id(), self.dir.path()));
        self.child = Some(child);
    }

    fn await_service(&mut self) {
        let start = Instant::now();
        while !self.serves() {
            let child = self.child.as_mut().expect("it was put there above");
            let ended = child.try_wait().ok().flatten();
            let waits = ended.is_none() && start.elapsed() < DEADLINE;
            assert!(waits, "the server does not serve ({ended:?}); it said:\n{}", self.output());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// As `start`, with a setting changed.
    pub(crate) fn start_with(&mut self, name: &str, value: impl ToString) {
        self.set(name, value);
        self.start();
    }

    /// Changes a setting for the next start.
    pub(crate) fn set(&mut self, name: &str, value: impl ToString) {
        self.start = self.start.clone().env(name, value);
    }

    /// The status with which the server has ended by itself, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// SIGKILL, and wait until the process is gone.
    pub(crate) fn kill(&mut self) {
        self.call_off_watchdog();
        if let Some(mut child) = self.child.take() {
            child.kill().expect("a child can be killed");
            child.wait().expect("a child can be waited for");
        }
    }

    /// SIGTERM; answers the status with which the server ends.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait_for_end()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().map(Pid::from_child).expect("the server is running");
        kill_process(pid, signal).expect("a child can be signalled");
    }

    /// SIGSTOP, and waits until none of its threads runs any more: the signal alone does not.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid());
        let stopped = |path: &Path| {
            let about = fs::read_to_string(path.join("stat")).unwrap_or_default();
            about.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        };
        until("all threads to stand still", || {
            let mut threads = fs::read_dir(&tasks).ok()?.flatten();
            threads.all(|thread| stopped(&thread.path())).then_some(())
        });
    }

    pub(crate) fn wait_for_end(&mut self) -> ExitStatus {
        self.call_off_watchdog();
        let mut child = self.child.take().expect("the server is running");
        match wait(&mut child) {
            Some(status) => status,
            None => panic!("the server does not end; it said:\n{}", self.output()),
        }
    }

    /// The server's output so far, over all of its starts.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Leaves its data on the disk when it goes out of scope.
    pub(crate) fn keep_data(&mut self) -> PathBuf {
        self.dir.disable_cleanup(true);
        self.data.clone()
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("server.log")
    }

    /// Whether the program has said something since its last launch: it hears signals from then on.
    pub(crate) fn has_spoken(&self) -> bool {
        self.output().len() > self.said_before
    }

    /// That it has said so, which is the last line of a start, and answers. It is not ready on a
    /// full disk, and yet it serves.
    pub(crate) fn serves(&self) -> bool {
        let asked = || get_within(Duration::from_secs(5), self.http, "/ready");
        self.says(SERVES) && asked().is_some_and(|answer| answer.starts_with("HTTP/1.1"))
    }

    /// Whether the program has said this since its last launch.
    pub(crate) fn says(&self, text: &str) -> bool {
        self.output().get(self.said_before..).is_some_and(|said| said.contains(text))
    }

    fn call_off_watchdog(&mut self) {
        if let Some(mut watchdog) = self.watchdog.take() {
            let _ = watchdog.kill();
            let _ = watchdog.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the server on port {} said:\n{}", self.tcp, self.output());
        }
        self.kill();
    }
}

/// An HTTP GET; answers everything that came back.
pub(crate) fn get(port: u16, path: &str) -> Option<String> {
    get_within(DEADLINE, port, path)
}

fn get_within(patience: Duration, port: u16, path: &str) -> Option<String> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
    socket.set_read_timeout(Some(patience)).ok()?;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Kills the server and removes its directory when this process is gone, however it went: a
/// server that tests share is never dropped, and an interrupted run drops nothing. The watchdog
/// waits on a pipe that ends with this process.
fn watchdog(pid: u32, dir: &Path) -> Child {
    Command::new("sh")
        .args(["-c", "read _; kill -9 \"$1\"; sleep 1; rm -rf \"$2\"", "watchdog"])
        .arg(pid.to_string())
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("every Linux has a shell")
}

fn wait(child: &mut Child) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < DEADLINE {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// The segments of a shard, oldest first.
pub(crate) fn segments(data: &Path, shard: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join(shard)).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        entries.filter(|path| path.extension() == Some("seg".as_ref())).collect();
    found.sort();
    found
}
