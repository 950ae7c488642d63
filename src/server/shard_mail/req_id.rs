//! The client's name of a request that is answered later.
//!
//! A ground type: it imports nothing of the server.

/// Longest name that lies in the entry itself: the text of a UUID with its head, as most clients send it.
const SHORT_BYTES_MAX: usize = 38;

/// A client's name of a request, as it came. A short one takes no memory of its own: a worker that waits for jobs sends one
/// with each pull.
#[derive(Clone, Debug)]
pub enum ReqId {
    /// The client gave none.
    None,
    /// A short one: its length, and as many of these bytes.
    Short(u8, [u8; SHORT_BYTES_MAX]),
    /// A longer one.
    Long(Box<[u8]>),
}

impl ReqId {
    /// The name, if the client gave one.
    pub fn as_deref(&self) -> Option<&[u8]> {
        match self {
            Self::None => None,
            Self::Short(length, bytes) => bytes.get(..usize::from(*length)),
            Self::Long(bytes) => Some(bytes),
        }
    }
}

impl From<Option<&[u8]>> for ReqId {
    fn from(req_id: Option<&[u8]>) -> Self {
        let Some(given) = req_id else { return Self::None };
        let mut bytes = [0; SHORT_BYTES_MAX];
        match bytes.get_mut(..given.len()) {
            Some(place) => {
                place.copy_from_slice(given);
                Self::Short(given.len() as u8, bytes)
            }
            None => Self::Long(given.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_any_length_comes_back_as_it_was_given() {
        assert_eq!(ReqId::from(None).as_deref(), None);
        for length in [0, 1, SHORT_BYTES_MAX, SHORT_BYTES_MAX + 1, 1000] {
            let name = vec![7; length];
            let kept = ReqId::from(Some(&*name));
            assert_eq!(kept.as_deref(), Some(&*name));
            assert_eq!(matches!(kept, ReqId::Long(_)), length > SHORT_BYTES_MAX);
        }
    }
}
