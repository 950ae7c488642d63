//! `Doctor`: what `corq doctor` would say of this server and its machine, as far as the server can tell by itself: nothing is
//! timed, and nothing is written.

use crate::checks::{self, Finding, machine};
use crate::protocol::reply;
use crate::server::connection::reply_writer::framed;
use crate::server::metrics::Metrics;
use crate::server::shard_mail::envelope::Origin;
use crate::server::shard_server::ShardServer;
use corq_io::machine_facts;
use corq_io::net::Connections;
use corq_io::tls::CertificateStatus;
use corq_shards::cron::zones::zone_rules;

impl ShardServer {
    /// Answers `Doctor`, once the metrics of all shards are known.
    pub(crate) fn show_findings(
        &mut self,
        conns: &mut Connections,
        origin: Origin,
        req_id: Option<&[u8]>,
        metrics: &Metrics,
        tls: Option<CertificateStatus>,
    ) {
        let findings = self.findings(metrics, tls);
        let about = &self.about.machine;
        let (count, all) = (about.len() + findings.len(), about.clone());
        self.meter.note(count);
        self.respond(conns, origin, |_, sink| {
            framed(sink, req_id, |sink| {
                let mut reply = reply::begin(sink.out, true, req_id);
                let mut data = reply.map("data");
                let findings = all.iter().chain(&findings);
                checks::write(&mut data.key("checks"), count, findings);
            });
        });
    }

    /// Findings that may change while the server runs.
    fn findings(&self, metrics: &Metrics, tls: Option<CertificateStatus>) -> Vec<Finding> {
        let mut findings = Vec::new();
        // Reads the file system once, as the log does when it makes a file.
        if let Some(path) = &self.about.data
            && let Ok(found) = machine_facts::file_system(path)
        {
            findings.extend(machine::disk(path, &found));
        }
        findings.extend(machine::clock());
        let number = |family: &str| metrics.figure(family);
        let zones = zone_rules();
        findings.push(checks::server::time_zones(zones.version(), zones.source()));
        findings.extend(checks::server::data(number));
        findings.extend(checks::server::backups(number, self.now_ms as f64 / 1000.0));
        findings.extend(checks::server::fleet(number));
        findings.extend(checks::server::client_memory(|account| metrics.fullest(account)));
        findings.extend(checks::server::complaints(number));
        findings.extend(tls.map(|tls| {
            let (expires_s, failures) = (tls.expires_s as f64, tls.failed_reloads as f64);
            checks::server::certificate(expires_s, failures, self.now_ms as f64 / 1000.0)
        }));
        findings
    }
}
