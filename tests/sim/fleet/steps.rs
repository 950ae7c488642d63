//! All that can happen next, in steps that are as large as they can be without hiding a violation.
//!
//! - A node that stalls, is cut off or dies is not chosen. One that dies and comes again does so in one step.
//! - A statement on a connection that holds is carried out when it is sent: to send it later is the same. Its answer comes at
//!   once or never, since a late one gives less time to the node that waits for it.
//! - A beat, a look or a death without an answer makes others wait longer and does no more. A claim that is carried out late
//!   takes the log from its own node only.
//! - Of all moments of a standby the last one counts. Until then a synchronous one has what is answered, and from then on
//!   nothing is.
//! - A row that a process writes to its files while it waits is not seen before it is sent or the process has ended.
//! - Between a claim and the copy of the rows no row comes: both are one step.

use super::promises::{acknowledge, excuse};
use super::reduction::reduce;
use super::rules::{Flaw, Rules};
use super::state::{Doubt, FENCE, LEASE, Life, NEW_BEAT, Node, OTHER_BYTES, ROWS, State, Watch};
use std::fmt;

/// Something that happens, to a node or to all.
#[derive(Clone, Copy)]
pub struct Step {
    pub node: Option<usize>,
    pub what: &'static str,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = self.node.map_or("", |node| ["A ", "B "][node]);
        write!(f, "{who}{}", self.what)
    }
}

/// The steps from one state.
struct Next<'a> {
    rules: &'a Rules,
    from: State,
    steps: &'a mut Vec<(Step, State)>,
}

impl Rules {
    /// Gathers what can happen next, with the states that it leads to.
    pub fn steps(&self, from: &State, steps: &mut Vec<(Step, State)>) {
        let mut next = Next { rules: self, from: *from, steps };
        next.tick();
        for of in 0..2 {
            match from.nodes[of].life {
                Life::Owner => {
                    next.beat(of);
                    next.append(of);
                    next.settle(of);
                    next.stop(of);
                }
                Life::Standby => {
                    next.look(of);
                    next.declare(of);
                    next.claim(of);
                }
                Life::Ended => {}
            }
            next.late(of);
            next.restart(of);
        }
        next.promote();
    }
}

impl Next<'_> {
    fn add(&mut self, node: impl Into<Option<usize>>, what: &'static str, mut state: State) {
        acknowledge(self.rules, &mut state);
        reduce(self.rules, &mut state);
        self.steps.push((Step { node: node.into(), what }, state));
    }

    fn tick(&mut self) {
        let mut state = self.from;
        for node in &mut state.nodes {
            let is_owner = node.life == Life::Owner;
            node.lease_ticks = if is_owner { FENCE.min(node.lease_ticks + 1) } else { 0 };
            if let Some(watch) = &mut node.watch {
                watch.ticks = LEASE.min(watch.ticks + 1);
            }
            node.asked = node.asked.map(|ticks| LEASE.min(ticks + 1));
        }
        self.add(None, "a tick passes", state);
    }

    fn beat(&mut self, of: usize) {
        let mut state = self.from;
        if state.nodes[of].beaten {
            state.nodes[of].beaten = false;
            state.nodes[of].lease_ticks = 0;
            return self.add(of, "hears that it has beaten", state);
        }
        if !state.primary.members[of].is_this_life && !self.rules.has(Flaw::BeatOfTheDead) {
            state.nodes[of].end();
            return self.add(of, "beats, was declared dead and ends", state);
        }
        let nonce = state.primary.part.fence.nonce;
        if nonce != state.nodes[of].fence.nonce && !self.rules.has(Flaw::BeatOfTheDead) {
            state.nodes[of].end();
            return self.add(of, "beats, has lost its claim and ends", state);
        }
        if !self.rules.answers(&state) {
            return;
        }
        state.primary.members[of].beat = NEW_BEAT;
        if self.rules.has(Flaw::LeaseFromAnswer) {
            state.nodes[of].beaten = true;
            return self.add(of, "beats, and waits for the answer", state);
        }
        let what = match self.from.nodes[of].lease_ticks {
            FENCE => "beats, and may speak again",
            _ => "beats",
        };
        state.nodes[of].lease_ticks = 0;
        self.add(of, what, state);
    }

    /// Looks at the owner. From here on the same beat counts.
    fn look(&mut self, of: usize) {
        let mut state = self.from;
        let node = &mut state.nodes[of];
        if state.primary.part.owner != Some(1 - of as u8) || node.watch.is_some() {
            return;
        }
        if self.rules.has(Flaw::WatchFromQuestion) && node.asked.is_none() {
            node.asked = Some(0);
            return self.add(of, "asks for the owner's beat", state);
        }
        let ticks = node.asked.take().unwrap_or(0);
        node.watch = Some(Watch { beat: state.primary.members[1 - of].beat, ticks });
        self.add(of, "sees the owner's beat", state);
    }

    fn declare(&mut self, of: usize) {
        let mut state = self.from;
        let (Some(watch), dead) = (state.nodes[of].watch, 1 - of) else { return };
        let member = &mut state.primary.members[dead];
        if !self.rules.is_over(watch.ticks)
            || watch.beat != member.beat
            || state.primary.part.owner != Some(dead as u8)
        {
            return;
        }
        member.is_this_life = false;
        member.beat = NEW_BEAT;
        state.primary.part.owner = None;
        state.primary.part.fence = self.rules.freed(state.primary.part.fence);
        state.nodes[of].watch = None;
        self.add(of, "declares the owner dead", state);
    }

    fn claim(&mut self, of: usize) {
        let mut state = self.from;
        let part = &mut state.primary.part;
        if part.owner == Some(1 - of as u8) || state.claims == self.rules.bounds.claims {
            return;
        }
        state.claims += 1;
        state.nodes[of].watch = None;
        part.fence = self.rules.claimed(part.fence, state.nodes[of].nonce);
        part.owner = Some(of as u8);
        part.claim = state.claims;
        // The rows that the database has lost are lost with the owner before, but for those of the claimer's own files.
        excuse(self.rules, &mut state, |state, place| {
            state.nodes[of].files[place] == state.acknowledged[place]
        });
        self.add(of, "claims, and hears nothing", state);
        if !self.rules.answers(&state) && !self.rules.has(Flaw::WarningIsCommit) {
            return;
        }
        state.answered = state.claims;
        let part = state.primary.part;
        let node = &mut state.nodes[of];
        (node.life, node.lease_ticks) = (Life::Owner, FENCE);
        (node.fence, node.claim) = (part.fence, part.claim);
        let what = self.restore(&mut state, of);
        self.add(of, what, state);
    }

    /// Makes the files of a node equal to the rows. They keep what they have behind the last row, if they have that.
    fn restore(&self, state: &mut State, of: usize) -> &'static str {
        let (rows, count) = (state.primary.rows, state.primary.count());
        let Node { files, stored, said, .. } = &mut state.nodes[of];
        let has_last = count.checked_sub(1).is_none_or(|last| files[last] == rows[last].content);
        let has_tail = files[count..].iter().any(|&content| content != 0);
        if !has_last && !self.rules.has(Flaw::KeepsAnyTail) || self.rules.has(Flaw::KeepsNoTail) {
            files[count..].fill(0);
        }
        for (content, row) in files.iter_mut().zip(&rows[..count]) {
            *content = row.content;
        }
        *stored = count as u8;
        if self.rules.has(Flaw::SpeaksOfTail) {
            *said = files.iter().take_while(|&&content| content != 0).count() as u8;
        }
        match (has_last, has_tail) {
            (true, true) => "claims, and keeps the tail of its files",
            (true, false) => "claims, and has the rows",
            (false, true) => "claims, cuts its files and copies the rows",
            (false, false) => "claims, and copies the rows",
        }
    }

    /// Appends the next row of the files, or a new one.
    fn append(&mut self, of: usize) {
        let mut state = self.from;
        let node = &mut state.nodes[of];
        if node.doubt != Doubt::None {
            return;
        }
        let count = node.count();
        let is_new = count == usize::from(node.stored);
        if is_new {
            if count == self.rules.bounds.rows {
                return;
            }
            node.files[count] = node.claim;
        }
        let statement = node.statement();
        if !self.rules.fits(&state, statement) {
            return self.find_out(of, state);
        }
        let mut broken = state;
        broken.nodes[of].doubt = Doubt::Unknown;
        if broken.nodes[of].late.is_none() {
            broken.nodes[of].late = Some(statement);
            self.add(of, "appends, and the connection breaks first", broken);
            broken.nodes[of].late = None;
        }
        broken.store(statement);
        self.add(of, "appends, and hears nothing or a warning", broken);
        if self.rules.answers(&state) || self.rules.has(Flaw::WarningIsCommit) {
            state.store(statement);
            state.nodes[of].stored += 1;
            self.add(of, if is_new { "appends" } else { "puts a row of its files back" }, state);
        }
    }

    /// Carries out a statement that comes late.
    fn late(&mut self, of: usize) {
        let mut state = self.from;
        let Some(late) = state.nodes[of].late.take() else { return };
        state.store(late);
        self.add(of, "has its late append carried out", state);
    }

    /// Settles an append whose outcome is unknown. The look and the write behind it are one step: a row that comes between is
    /// found when the row is sent again.
    fn settle(&mut self, of: usize) {
        let mut state = self.from;
        match state.nodes[of].doubt {
            Doubt::None => return,
            Doubt::Unknown if self.rules.has(Flaw::LooksBehindWrite) => {
                let is_newest = state.primary.part.fence == state.nodes[of].fence;
                if is_newest && self.rules.answers(&state) {
                    state.nodes[of].doubt = Doubt::Written;
                    return self.add(of, "writes, to settle what it does not know", state);
                }
            }
            Doubt::Unknown | Doubt::Written => {}
        }
        self.find_out(of, state);
    }

    /// Finds out what became of the next row of a node, which may be there.
    fn find_out(&mut self, of: usize, mut state: State) {
        let node = &mut state.nodes[of];
        let (place, files) = (usize::from(node.stored), node.files);
        if state.primary.part.fence != node.fence && !self.rules.has(Flaw::NoFence) {
            // No row is written for this, so that no standby is waited for.
            node.end();
            return self.add(of, "finds itself fenced, and ends", state);
        }
        let is_settled = node.doubt == Doubt::Written || self.rules.has(Flaw::SettlesByRead);
        if !is_settled && !self.rules.answers(&self.from) {
            node.doubt = Doubt::Unknown;
            return self.add(of, "cannot find out what became of its append", state);
        }
        node.doubt = Doubt::None;
        let rows = state.primary.rows;
        let count = state.primary.count();
        let other_bytes = self.rules.has(Flaw::OtherBytes);
        if count == place + 1 && (rows[place].content == files[place] || other_bytes) {
            node.stored += 1;
            return self.add(of, "finds that its append was stored", state);
        }
        if count > place {
            node.end();
            return self.add(of, "finds other rows at its place, and ends", state);
        }
        if count == place && count.checked_sub(1).is_none_or(|at| rows[at].content == files[at]) {
            if other_bytes {
                node.files[place] |= OTHER_BYTES;
            }
            return self.add(of, "finds that its append was not stored", state);
        }
        node.stored = count as u8;
        if self.rules.has(Flaw::PutsNothingBack) {
            node.files[count..].fill(0);
        }
        self.add(of, "finds that the database has gone back", state);
    }

    /// Ends cleanly, and gives the log back.
    fn stop(&mut self, of: usize) {
        let mut state = self.from;
        let (node, part) = (&mut state.nodes[of], &mut state.primary.part);
        if self.rules.has(Flaw::SpeaksAtEnd) && !node.ending {
            node.ending = true;
            return self.add(of, "is to end", state);
        }
        if part.owner == Some(of as u8) && part.fence.nonce == node.nonce {
            part.owner = None;
            part.fence = self.rules.freed(part.fence);
        }
        node.end();
        self.add(of, "gives the log back, and ends", state);
    }

    /// Ends without a word and begins anew. A standby that does so loses its files at most.
    fn restart(&mut self, of: usize) {
        let mut state = self.from;
        let is_bounded = state.processes == self.rules.bounds.processes;
        let Node { life, claim, files, late, .. } = state.nodes[of];
        if life == Life::Standby || is_bounded || !self.rules.answers(&state) {
            return;
        }
        state.processes += 1;
        let nonce = self.rules.nonce(state.processes);
        state.nodes[of] = Node { nonce, files, late, ..Node::default() };
        state.primary.members[of].is_this_life = true;
        state.primary.members[of].beat = NEW_BEAT;
        if let Some(standby) = &mut state.standby {
            standby.members[of].is_this_life = false;
        }
        self.add(of, "restarts with its disk", state);
        for place in state.nodes[of].count()..self.rules.bounds.rows {
            if claim > 0 {
                state.nodes[of].files[place] = claim;
                self.add(of, "restarts with its disk and rows that had to wait", state);
            }
        }
        state.nodes[of].files = [0; ROWS];
        excuse(self.rules, &mut state, |state, place| {
            state.nodes.iter().any(|node| node.files[place] == state.acknowledged[place])
        });
        self.add(of, "restarts without its disk", state);
    }

    /// Cuts the standby off, or makes it the primary, which breaks all connections.
    fn promote(&mut self) {
        let mut state = self.from;
        if state.promoted {
            return;
        }
        let Some(standby) = state.standby.take() else {
            state.standby = Some(state.primary);
            return self.add(None, "the standby receives no more", state);
        };
        state.primary = standby;
        state.promoted = true;
        for node in &mut state.nodes {
            node.late = None;
            if !self.rules.has(Flaw::WatchGoesOn) {
                node.watch = None;
            }
            node.asked = None;
            if node.doubt == Doubt::Written {
                node.doubt = Doubt::Unknown;
            }
            node.undone = node.life == Life::Owner && node.claim > standby.part.claim;
        }
        // A row that no file has is lost with its owner; one of a claim that was lost as well may be.
        let is_undone = state.answered > standby.part.claim && self.rules.excuses_undone;
        if is_undone {
            state.answered = standby.part.claim;
        }
        excuse(self.rules, &mut state, |state, place| {
            let content = state.acknowledged[place];
            !is_undone && state.nodes.iter().any(|node| node.files[place] == content)
        });
        self.add(None, "the standby is promoted", state);
    }
}
