//! The program under test: corq itself with an allocator that counts. A socket at `CORQ_TEST_ALLOCATIONS` tells each who connects
//! how often memory has been taken.

use corq_io::allocations::{self, CountingAllocator};
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::process::ExitCode;
use std::{env, thread};

#[path = "../src/main.rs"]
mod program;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() -> ExitCode {
    if let Some(path) = env::var_os("CORQ_TEST_ALLOCATIONS") {
        let listener = UnixListener::bind(path).expect("a place for a socket");
        thread::spawn(move || {
            for socket in listener.incoming() {
                let _ = socket.and_then(|mut socket| write!(socket, "{}", allocations::count()));
            }
        });
    }
    program::main()
}
