//! `PostgreSQL` of the system in a directory of its own, on a unix socket. Where there is none, tests of it say so and pass.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::until;

/// A database of a test.
pub(crate) struct Database {
    programs: PathBuf,
    dir: TempDir,
    /// The user that its processes are of; `PostgreSQL` does not run as root.
    user: Option<(u32, u32)>,
    child: Option<Child>,
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

impl Database {
    /// A database that answers, or none where there is no `PostgreSQL`.
    pub(crate) fn start() -> Option<Self> {
        let is_root = fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0);
        let user = if is_root { other_user() } else { None };
        let Some(programs) = programs().filter(|_| !is_root || user.is_some()) else {
            eprintln!("skipped: there is no PostgreSQL on this machine");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        if let Some((uid, gid)) = user {
            chown(dir.path(), Some(uid), Some(gid)).unwrap();
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut database = Self { programs, dir, user, child: None };
        let data = database.data();
        let made = database
            .command("initdb")
            .args([
                "--no-sync",
                "--auth=trust",
                "--username=corq",
                "--encoding=UTF8",
                "--locale=C",
                "-D",
            ])
            .arg(&data)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        database.run();
        Some(database)
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Starts its processes and waits until it answers.
    pub(crate) fn run(&mut self) {
        let socket = self.dir.path().display().to_string();
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).args([
            "-k",
            &socket,
            "-h",
            "",
            "-c",
            "shared_buffers=32MB",
        ]);
        self.child = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        until("the database answers", || self.ask("select 1").ok());
    }

    /// Where it is, as the settings name it.
    pub(crate) fn url(&self) -> String {
        format!("host={} user=corq dbname=postgres", self.dir.path().display())
    }

    /// The answer to a statement.
    pub(crate) fn ask(&self, statement: &str) -> Result<String, String> {
        let socket = self.dir.path().display().to_string();
        let said = Command::new(self.programs.join("psql"))
            .args(["-XAtq", "-h", &socket, "-U", "corq", "-d", "postgres", "-c", statement])
            .output()
            .map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if said.status.success() { Ok(text(&said.stdout)) } else { Err(text(&said.stderr)) }
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
        let _ = fs::remove_file(self.data().join("postmaster.pid"));
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.kill();
    }
}
