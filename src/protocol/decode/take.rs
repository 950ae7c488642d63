//! The fields of a command by their types: each takes its value from where the pass over the map has left it. That the
//! type holds what its specification lets through is checked where the table is compiled.

use super::fields::{Aside, Fields};
use super::value::FromValue;
use crate::api::flow::FlowJob;
use crate::api::request::{Finished, Grouping};
use corq_shards::command::Stack;
use corq_shards::dead_letter::policy::{DlqPatch, StallPatch};
use corq_shards::dead_letter::reason::Cause;
use corq_shards::job::new_job::NewJob;
use corq_shards::log_record::job_change::Level;

/// Types that can be taken from the next field, wherever its value is kept.
pub(crate) trait Take<'a> {
    /// Takes the next field.
    fn take(fields: &mut Fields<'a>, aside: &mut Aside<'a>) -> Self;
}

impl<'a, T: FromValue<'a>> Take<'a> for T {
    #[inline]
    fn take(fields: &mut Fields<'a>, _: &mut Aside<'a>) -> Self {
        let (value, preset) = fields.next();
        Self::from_value(value, preset)
    }
}

/// The choices of a field in their order.
fn chosen<T: Copy, const N: usize>(fields: &mut Fields<'_>, choices: [T; N]) -> T {
    choices[fields.next_choice().min(N - 1)]
}

macro_rules! put_aside {
    ($($type:ty: $fields:ident, $aside:ident => $made:expr;)*) => {
        $(impl<'a> Take<'a> for $type {
            #[inline]
            fn take($fields: &mut Fields<'a>, $aside: &mut Aside<'a>) -> Self {
                $made
            }
        })*
    };
}

put_aside! {
    Level: fields, _aside => chosen(fields, [Level::Info, Level::Warn, Level::Error]);
    Finished: fields, _aside => chosen(fields, [Finished::Completed, Finished::Failed]);
    Cause: fields, _aside => chosen(fields, Cause::ALL);
    Grouping: fields, _aside => chosen(fields, [Grouping::Error]);
    Stack<'a>: fields, aside => { fields.next(); aside.stack };
    Vec<NewJob<'a>>: fields, aside => { fields.next(); std::mem::take(&mut aside.jobs) };
    Vec<FlowJob<'a>>: fields, aside => { fields.next(); std::mem::take(&mut aside.flow) };
    DlqPatch: fields, aside => {
        fields.next();
        aside.rare.as_deref().and_then(|rare| rare.dlq).unwrap_or_default()
    };
    StallPatch: fields, aside => {
        fields.next();
        aside.rare.as_deref().and_then(|rare| rare.stall).unwrap_or_default()
    };
}
