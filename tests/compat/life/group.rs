//! Groups of jobs of that life.

use corq_shards::command::{Command, GroupLimit};
use corq_shards::group::GroupRate;
use corq_shards::job::new_job::NewJob;
use corq_shards::job::trace::{NewTrace, TraceParent};

use super::{Life, YEAR_MS};

impl Life {
    /// Sets limits of groups, with jobs in some of them, and takes some back.
    pub(super) fn groups(&mut self, round: &str) {
        let queue = self.queue(&format!("{round}.grouped"));
        for (data, group_id) in [(b"\x01", Some("all")), (b"\x02", Some("plain")), (b"\x03", None)]
        {
            self.push(&queue, NewJob { data, priority: 3, group_id, ..NewJob::default() });
        }
        let rate = GroupLimit::Rate(Some(GroupRate { jobs: 9, span_ms: 60_000 }));
        let hold = GroupLimit::Hold(YEAR_MS);
        let settings = [
            ("all", rate),
            ("all", GroupLimit::Active(Some(5))),
            ("all", GroupLimit::Weight(7)),
            ("all", GroupLimit::Paused(true)),
            ("all", hold),
            ("jobless", GroupLimit::Active(Some(1))),
            ("freed", GroupLimit::Weight(2)),
            ("freed", GroupLimit::Weight(1)),
            ("over", GroupLimit::Hold(1)),
        ];
        for (group, limit) in settings {
            self.done(&Command::LimitGroup { queue: &queue, group, limit });
        }
        self.pass(1);
        let (held, _) = self.pull(1, &queue, 60_000);
        assert_eq!(self.shard.view(self.shard.find(held).unwrap()).job.priority, 3);
        let queue = self.queue(&format!("{round}.ungrouped"));
        self.done(&Command::LimitGroup { queue: &queue, group: "gone", limit: rate });
        self.run(1, &Command::Obliterate { queue: &queue });
        self.pass(1);
        self.simple(&queue, b"\x04");
    }

    /// Jobs that belong to a trace, and one that was written again.
    pub(super) fn traces(&mut self, round: &str) {
        let queue = self.queue(&format!("{round}.traced"));
        let parent = TraceParent { trace_id: [0x4b; 16], span_id: [0xf0; 8], flags: 1 };
        for (data, state) in [(b"\x01", ""), (b"\x02", "rojo=1,congo=2")] {
            let trace = Some(Box::new(NewTrace { parent, state }));
            self.push(&queue, NewJob { data, trace, ..NewJob::default() });
        }
    }
}
