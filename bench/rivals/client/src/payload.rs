//! The payload of a job: its number and the time that it was meant to leave, in plain digits, and
//! a filler. The same bytes go to every server.

const SEQUENCE_DIGITS: usize = 10;
const SENT_DIGITS: usize = 20;
/// Bytes of the smallest payload.
pub const BYTES_MIN: usize = SEQUENCE_DIGITS + 1 + SENT_DIGITS + 1;

/// Appends a payload of `size` bytes.
pub fn write(out: &mut Vec<u8>, sequence: u32, sent_ns: u64, size: usize) {
    let start = out.len();
    out.resize(start + size, b'x');
    digits(&mut out[start..start + SEQUENCE_DIGITS], u64::from(sequence));
    out[start + SEQUENCE_DIGITS] = b' ';
    let sent = start + SEQUENCE_DIGITS + 1;
    digits(&mut out[sent..sent + SENT_DIGITS], sent_ns);
    out[sent + SENT_DIGITS] = b' ';
}

/// The number and the time of a payload.
pub fn read(bytes: &[u8]) -> Result<(u32, u64), String> {
    let strange = || format!("a strange payload: {}", crate::protocol::shown(bytes));
    if bytes.len() < BYTES_MIN || bytes[SEQUENCE_DIGITS] != b' ' || bytes[BYTES_MIN - 1] != b' ' {
        return Err(strange());
    }
    let sequence = value(&bytes[..SEQUENCE_DIGITS]).and_then(|value| value.try_into().ok());
    let sent = value(&bytes[SEQUENCE_DIGITS + 1..BYTES_MIN - 1]);
    Ok((sequence.ok_or_else(strange)?, sent.ok_or_else(strange)?))
}

fn digits(place: &mut [u8], mut value: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

fn value(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |sum, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        sum.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_comes_back_as_it_went_and_has_its_size() {
        let mut out = Vec::new();
        write(&mut out, 4_294_967_295, 1_234_567_890_123, 100);
        assert_eq!(out.len(), 100);
        assert_eq!(read(&out), Ok((4_294_967_295, 1_234_567_890_123)));
    }

    #[test]
    fn what_is_no_payload_is_refused() {
        let mut out = Vec::new();
        write(&mut out, 7, 8, 100);
        assert!(read(&out[..20]).is_err());
        out[3] = b'z';
        assert!(read(&out).is_err());
    }
}
