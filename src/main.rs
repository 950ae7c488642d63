//! The corq program.
fn main() {}
