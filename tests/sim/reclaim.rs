//! Giving up the beginning of the log, as the server does it in its turns: in steps that may end
//! anywhere.

use super::check::Check;
use super::node::Node;
use super::settings::Flaw;
use corq_io::log::Scan;

impl Node {
    /// Hands over at most `steps` of the oldest records.
    pub fn reclaim(&mut self, steps: u64) {
        let Self { shard, book, model, .. } = self;
        for _ in 0..steps {
            let Some(oldest) = book.log.oldest() else { return };
            match book.log.scan() {
                Scan::Record(position, body) => {
                    let body = body.to_vec();
                    let needed = shard.needs(position.0, &body).unwrap();
                    if needed && !(book.flaw == Flaw::SloppyReclaim && body[0] == 1) {
                        shard.keep(position.0, &body, book).unwrap();
                    }
                }
                Scan::Reading => return,
                Scan::End => {
                    if !shard.end_keeping(oldest.end.0, book) {
                        continue;
                    }
                    let needed = shard.needed_in_span_of(oldest.start.0);
                    model.must(Check::Log, needed == 0, || {
                        format!("{needed} bytes are still needed of what goes at {}", oldest.start)
                    });
                    book.log.drop_oldest();
                    book.gone = oldest.end;
                }
                Scan::Failed(error) => {
                    model.checks.fail(Check::Log, || error.to_string());
                    return;
                }
            }
        }
    }
}
