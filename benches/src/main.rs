//! The command `tidegate-bench`.

fn main() {}
