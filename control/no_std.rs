//! Proof that nothing below `tidegate-control` links std, for a machine without a bare target: std brings a panic handler
//! of its own, and rustc refuses a second one. `./test` compiles this file; no package contains it.
#![no_std]

extern crate tidegate_control;

#[panic_handler]
fn stop(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
