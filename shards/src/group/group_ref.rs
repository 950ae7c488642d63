//! Which group a job belongs to. A ground type.

use crate::collections::slab::NONE;

/// The index of a job's group, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupRef(u32);

impl Default for GroupRef {
    fn default() -> Self {
        Self(NONE)
    }
}

impl GroupRef {
    pub(crate) fn new(group: u32) -> Self {
        Self(group)
    }

    pub(crate) fn get(self) -> Option<u32> {
        (self.0 != NONE).then_some(self.0)
    }
}
