//! A terminal with nobody in front of it: what a program does when a person is there.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::until;

/// A text that no program writes.
const MARK: &str = "<end of the program>";

/// A program on a terminal of its own.
pub(crate) struct Terminal {
    child: Child,
    keys: File,
    shown: Arc<Mutex<Vec<u8>>>,
    /// The program's side, kept open so that what it wrote last is not lost.
    inside: File,
}

impl Terminal {
    /// Starts the program on a terminal of 100 columns and 30 rows.
    pub(crate) fn start(mut command: Command) -> Self {
        let outside: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&outside).unwrap();
        unlockpt(&outside).unwrap();
        let name = ptsname(&outside, Vec::new()).unwrap();
        let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
        let inside = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let size = Winsize { ws_col: 100, ws_row: 30, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&inside, size).unwrap();
        let side = || Stdio::from(inside.try_clone().unwrap());
        let child = command
            .env("TERM", "xterm-256color")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .expect("the program has been built for this test");
        let keys = File::from(outside);
        let mut screen = keys.try_clone().unwrap();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&shown);
        // Ends when the terminal is gone.
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(bytes @ 1..) = screen.read(&mut chunk) {
                seen.lock().unwrap().extend_from_slice(&chunk[..bytes]);
            }
        });
        Self { child, keys, shown, inside }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// All that was written so far, escape sequences included.
    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// Waits until this is on the screen.
    pub(crate) fn wait_for(&self, text: &str) {
        until(&format!("{text:?} on the terminal"), || self.shown().contains(text).then_some(()));
    }

    pub(crate) fn child(&self) -> &Child {
        &self.child
    }

    /// Waits for the program's end; answers its code and all that it wrote.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let status: ExitStatus = until("the end of the program", || self.child.try_wait().unwrap());
        // Behind all that the program wrote, it says that all of it has come through.
        self.inside.write_all(MARK.as_bytes()).unwrap();
        self.wait_for(MARK);
        (status.code(), self.shown().replace(MARK, ""))
    }

    /// Whether typed lines are lines and seen, as a shell wants it.
    pub(crate) fn is_restored(&self) -> bool {
        let modes = tcgetattr(self.inside.as_fd()).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
