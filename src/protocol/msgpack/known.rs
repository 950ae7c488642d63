//! Values of a frame that have been checked before and are stepped over without a look into them.

/// Where a value begins and ends in its frame, which is shorter than 4 GB.
pub type Span = (u32, u32);

/// The values of a frame that are known, in the order in which they begin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    frame: &'a [u8],
    values: &'a [Span],
}

impl<'a> Known<'a> {
    /// These of a frame.
    pub fn of(frame: &'a [u8], values: &'a [Span]) -> Self {
        Self { frame, values }
    }

    /// How long the value at the front of `rest` is, a rest of the frame, if it is known.
    #[inline]
    pub fn length_at(self, rest: &[u8]) -> Option<usize> {
        if self.values.is_empty() { None } else { self.find(rest) }
    }

    fn find(self, rest: &[u8]) -> Option<usize> {
        let at = (rest.as_ptr() as usize).checked_sub(self.frame.as_ptr() as usize)?;
        let place = self.values.binary_search_by_key(&at, |(start, _)| *start as usize).ok()?;
        let (start, end) = self.values[place];
        Some((end - start) as usize)
    }
}
