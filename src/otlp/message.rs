//! A post: an `ExportTraceServiceRequest` with the server as its resource, one scope, and the spans of some steps.

use super::span::Step;
use super::wire::Message;

/// Bytes of the spans of a step, about.
const STEP_BYTES: usize = 600;

/// The server as its spans tell of it.
#[derive(Clone, Debug)]
pub struct Resource {
    /// `OTLP_SERVICE_NAME`: the operators' name for this server.
    pub service_name: String,
    /// Tells this life of the server from all others.
    pub instance_id: String,
}

impl Resource {
    /// The body of a post.
    pub fn request(&self, steps: &[Step]) -> Vec<u8> {
        let version = env!("CARGO_PKG_VERSION");
        let mut request = Message(Vec::with_capacity(steps.len() * STEP_BYTES));
        request.message(1, |spans| {
            spans.message(1, |resource| {
                resource.attribute(1, "service.name", &self.service_name);
                resource.attribute(1, "service.version", version);
                resource.attribute(1, "service.instance.id", &self.instance_id);
            });
            spans.message(2, |of_scope| {
                of_scope.message(1, |scope| {
                    scope.text(1, "corq");
                    scope.text(2, version);
                });
                for step in steps {
                    step.write(of_scope);
                }
            });
        });
        request.0
    }
}
