//! The corq load generator.
fn main() {}
