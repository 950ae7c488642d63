//! `PostgreSQL` of the system in a directory of its own, on a unix socket: alone, or with a standby that follows it. Where there
//! is none, tests of it say so and pass.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Mount, free_port, until};

/// The port in the name of the socket, where it is on no other.
const USUAL_PORT: u16 = 5432;

/// A database of a test.
pub(crate) struct Database {
    programs: PathBuf,
    /// The file system that a part of it is on. Goes before the directory, and after the processes.
    disk: Option<Mount>,
    dir: TempDir,
    data: PathBuf,
    /// The user that its processes are of; `PostgreSQL` does not run as root.
    user: Option<(u32, u32)>,
    /// A port of 127.0.0.1, if it is on one.
    port: Option<u16>,
    child: Option<Child>,
}

/// Files of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    /// The log of writes alone. Without room for it a database panics.
    WriteLog,
}

fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let packaged = versions.map(|version| version.path().join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).collect::<Vec<_>>().into_iter().chain(packaged);
    let needed = ["initdb", "postgres", "psql"];
    places.into_iter().find(|place| needed.iter().all(|name| place.join(name).is_file()))
}

/// User and group of `postgres`, as a package makes them.
fn other_user() -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.starts_with("postgres:"))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Runs a program that must succeed.
fn succeed(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

impl Database {
    /// A database that answers, or none where there is no `PostgreSQL`.
    pub(crate) fn start() -> Option<Self> {
        Some(Self::new()?.begin(&[]))
    }

    /// As `start`, on a port of 127.0.0.1 as well.
    pub(crate) fn start_on_port() -> Option<Self> {
        let mut database = Self::new()?;
        database.port = Some(free_port());
        Some(database.begin(&[]))
    }

    /// As `start`, with a part of it on a file system of so many bytes, or none where a test may not mount one.
    pub(crate) fn start_on_disk(part: Part, bytes: u64) -> Option<Self> {
        let mut database = Self::new()?;
        database.disk = Mount::new(&database.disk(), bytes);
        if database.disk.is_none() {
            eprintln!("skipped: no file system can be mounted here");
            return None;
        }
        let log = format!("--waldir={}", database.disk().join("log").display());
        match part {
            Part::All => {
                database.data = database.disk().join("data");
                Some(database.begin(&[]))
            }
            // In the smallest files: the next one is needed soon.
            Part::WriteLog => Some(database.begin(&["--wal-segsize=1", &log])),
        }
    }

    fn new() -> Option<Self> {
        let is_root = fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0);
        let user = if is_root { other_user() } else { None };
        let Some(programs) = programs().filter(|_| !is_root || user.is_some()) else {
            eprintln!("skipped: there is no PostgreSQL on this machine");
            return None;
        };
        Some(Self::of(programs, user))
    }

    fn of(programs: PathBuf, user: Option<(u32, u32)>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        if let Some((uid, gid)) = user {
            chown(dir.path(), Some(uid), Some(gid)).unwrap();
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let data = dir.path().join("data");
        Self { programs, disk: None, dir, data, user, port: None, child: None }
    }

    fn begin(mut self, options: &[&str]) -> Self {
        let mut command = self.command("initdb");
        command.args(["--no-sync", "--auth=trust", "--username=corq"]);
        command.args(["--encoding=UTF8", "--locale=C"]).args(options).arg("-D").arg(&self.data);
        succeed(&mut command);
        self.run();
        self
    }

    /// The file system of a database that was started on one.
    pub(crate) fn disk(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// A program that speaks to it.
    fn client(&self, program: &str) -> Command {
        let mut command = self.command(program);
        let port = self.port.unwrap_or(USUAL_PORT).to_string();
        command.arg("-h").arg(self.dir.path()).args(["-p", &port, "-U", "corq"]);
        command
    }

    /// Starts its processes and waits until it answers.
    pub(crate) fn run(&mut self) {
        let (listen, port) = match self.port {
            Some(port) => ("127.0.0.1", port),
            None => ("", USUAL_PORT),
        };
        let mut command = self.command("postgres");
        command.arg("-D").arg(&self.data).arg("-k").arg(self.dir.path());
        command.args(["-h", listen, "-p", &port.to_string()]);
        // Shared memory in its directory goes with that, however it ends.
        command.args(["-c", "shared_buffers=32MB", "-c", "dynamic_shared_memory_type=mmap"]);
        self.child = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        until("the database answers", || self.ask("select 1").ok());
    }

    /// Starts it again if it has given up, as a service manager does.
    pub(crate) fn keep_running(&mut self) {
        let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        if ended.is_some() {
            self.run();
        }
    }

    /// Where it is, as the settings name it.
    pub(crate) fn url(&self) -> String {
        let port = self.port.unwrap_or(USUAL_PORT);
        format!("host={} port={port} user=corq dbname=postgres", self.dir.path().display())
    }

    /// Where it and another one are. The one that takes writes is used.
    pub(crate) fn url_with(&self, other: &Self) -> String {
        let ports = [self, other].map(|it| it.port.unwrap_or(USUAL_PORT));
        format!(
            "host={},{} port={},{} user=corq dbname=postgres target_session_attrs=read-write",
            self.dir.path().display(),
            other.dir.path().display(),
            ports[0],
            ports[1],
        )
    }

    /// The port of 127.0.0.1, for a wire before it.
    pub(crate) fn port(&self) -> u16 {
        self.port.expect("it was started on a port")
    }

    /// The answer to a statement.
    pub(crate) fn ask(&self, statement: &str) -> Result<String, String> {
        let mut command = self.client("psql");
        let said = command.args(["-XAtq", "-d", "postgres", "-c", statement]).output();
        let said = said.map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if said.status.success() { Ok(text(&said.stdout)) } else { Err(text(&said.stderr)) }
    }

    /// Whether that is the answer to a statement.
    pub(crate) fn says(&self, statement: &str, answer: &str) -> bool {
        self.ask(statement).is_ok_and(|said| said == answer)
    }

    /// Changes a setting at once.
    pub(crate) fn set(&self, name: &str, value: &str) {
        self.ask(&format!("alter system set {name} = '{value}'")).unwrap();
        self.ask("select pg_reload_conf()").unwrap();
    }

    /// A copy that follows this one. With one that is synchronous, each commit here waits for it from now on.
    pub(crate) fn standby(&self, is_synchronous: bool) -> Self {
        let mut standby = Self::of(self.programs.clone(), self.user);
        let mut command = self.client("pg_basebackup");
        command.args(["--no-sync", "--checkpoint=fast", "--write-recovery-conf"]);
        succeed(command.arg("--wal-method=stream").arg("-D").arg(&standby.data));
        standby.run();
        if is_synchronous {
            self.set("synchronous_standby_names", "*");
        }
        let state = if is_synchronous { "sync" } else { "async" };
        let states = "select sync_state from pg_stat_replication where state = 'streaming'";
        until("the standby follows", || self.says(states, state).then_some(()));
        standby
    }

    /// Lets a standby receive nothing more.
    pub(crate) fn stop_receiving(&self) {
        self.set("primary_conninfo", "");
        let receivers = "select count(*) from pg_stat_wal_receiver";
        until("the standby receives nothing", || self.says(receivers, "0").then_some(()));
    }

    /// Makes a standby take writes.
    pub(crate) fn promote(&self) {
        self.ask("select pg_promote(true, 300)").unwrap();
        let follows = "select pg_is_in_recovery()";
        until("the standby takes writes", || self.says(follows, "f").then_some(()));
    }

    /// Ends each wait of a commit for the standby; answers how many. The commit stays here, and its session is warned.
    pub(crate) fn cancel_waits(&self) -> u64 {
        let cancelled = self.ask(
            "select count(pg_cancel_backend(pid)) from pg_stat_activity \
             where application_name = 'corq' and wait_event = 'SyncRep'",
        );
        cancelled.unwrap().parse().unwrap()
    }

    /// A session that has begun a transaction by these statements, and stays in it until its input ends.
    pub(crate) fn stays_in(&self, statements: &str) -> Child {
        let mut command = self.client("psql");
        command.args(["-XAtq", "-d", "postgres"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut session = command.spawn().unwrap();
        let input = session.stdin.as_mut().expect("it was piped");
        input.write_all(format!("{statements};\n").as_bytes()).unwrap();
        let idle = "select count(*) from pg_stat_activity \
                    where application_name = 'psql' and state = 'idle in transaction'";
        until("the session is in its transaction", || self.says(idle, "1").then_some(()));
        session
    }

    /// A dump of all of it, which stands still while its output is not read.
    pub(crate) fn dump(&self) -> Child {
        let mut command = self.client("pg_dump");
        command.args(["-d", "postgres"]).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// Kills the process of each connection, and with them all that it had not committed: the others start anew.
    pub(crate) fn kill_backends(&self) {
        let pids = self.ask("select pid from pg_stat_activity where application_name = 'corq'");
        for pid in pids.unwrap_or_default().lines().filter_map(|pid| pid.parse().ok()) {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }

    /// Kills all of it.
    pub(crate) fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let pid = child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        child.kill().unwrap();
        child.wait().unwrap();
        for pid in children.unwrap_or_default().split_whitespace().filter_map(|it| it.parse().ok())
        {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
            until("a process of the database is gone", || {
                (!Path::new(&format!("/proc/{pid}")).exists()).then_some(())
            });
        }
        let notes = self.data.join("postmaster.pid");
        let text = fs::read_to_string(&notes).unwrap_or_default();
        // The key and the id of memory of the machine that only an orderly end gives back.
        if let Some(id) = text.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
            let _ = Command::new("ipcrm").args(["-m", id]).output();
        }
        let _ = fs::remove_file(notes);
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.kill();
    }
}
