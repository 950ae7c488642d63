//! Who else may look at the files that the process makes.
#![allow(unsafe_code)] // The mask is set by a system call.

/// From here on, other users of the machine can neither read nor write the files that this process makes: logs and
/// copies of them hold payloads and secrets. The group keeps what the operator's own mask leaves it.
pub fn keep_others_out() {
    // SAFETY: no memory is involved.
    unsafe {
        let before = libc::umask(0o077);
        libc::umask(before | 0o007);
    }
}
