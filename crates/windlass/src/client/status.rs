//! `windlass status`.

use super::http::Daemon;
use super::{Show, cell, cell_if_there, jobs};
use crate::output::{self, Table, long, number};

pub(super) async fn run(daemon: &Daemon, show: Show) -> anyhow::Result<()> {
    let status = daemon.get("/v1/status", &[]).await?;
    show.answer(&status, || {
        let journaled = status["journal"]["waiting"].as_u64().unwrap_or_default();
        let services = status["services"].as_object().into_iter().flatten();
        let mut services: Vec<String> =
            services.map(|(name, panics)| format!("{name} panicked {panics} times")).collect();
        for failing in status["services_failing"].as_array().into_iter().flatten() {
            let (name, why) = (cell(&failing["service"]), cell(&failing["why"]));
            services.push(format!("{name} has failed for {}s: {why}", failing["failing_seconds"]));
        }
        for parked in status["results_parked"].as_array().into_iter().flatten() {
            let (id, why) = (cell(&parked["id"]), cell(&parked["why"]));
            services.push(format!("the result of job {id} cannot be stored: {why}"));
        }
        let services = (!services.is_empty()).then(|| services.join(", "));
        let left = status["journals_left"].as_array().into_iter().flatten();
        let left: Vec<String> = left.map(|left| cell(&left["why"])).collect();
        let left = (!left.is_empty()).then(|| left.join("; "));
        let missing = status["layers_missing"].as_array().into_iter().flatten();
        let missing: Vec<String> = missing.map(cell).collect();
        let missing = (!missing.is_empty()).then(|| format!("missing: {}", missing.join("; ")));
        let count = |name: &str| status["daemons"][name].as_u64();
        let daemons = match (count("alive"), count("gone"), count("jobs_left")) {
            (Some(alive), Some(0), _) => alive.to_string(),
            (Some(alive), Some(gone), Some(0)) => format!("{alive}, and {gone} gone"),
            (Some(alive), Some(gone), Some(left)) => {
                format!("{alive}, and {gone} gone with {} in their journals", jobs(left))
            }
            _ => "unknown: the store does not answer".into(),
        };
        let mut shown = output::pairs(&[
            ("version", cell_if_there(&status["version"])),
            ("sysid", cell_if_there(&status["sysid"])),
            ("uptime", cell_if_there(&status["uptime"])),
            ("store", cell_if_there(&status["store"])),
            ("picking", cell_if_there(&status["picking"])),
            ("running", Some(jobs(status["running"].as_u64().unwrap_or_default()))),
            ("journal", Some(format!("{} not in the store yet", jobs(journaled)))),
            ("daemons", Some(daemons)),
            ("services", services),
            ("left behind", left),
            ("isolation", missing),
        ]);
        let counts =
            ["types", "ready", "deferred", "running", "paused", "finished", "failed", "cancelled"];
        let mut table = Table::new(&[
            long("TENANT"),
            number("TYPES"),
            number("READY"),
            number("DEFERRED"),
            number("RUNNING"),
            number("PAUSED"),
            number("FINISHED"),
            number("FAILED"),
            number("CANCELLED"),
        ]);
        for (tenant, numbers) in status["tenants"].as_object().into_iter().flatten() {
            let mut row = vec![tenant.clone()];
            row.extend(counts.iter().map(|name| cell(&numbers[name])));
            table.row(row);
        }
        if !table.is_empty() {
            shown.push('\n');
            shown.push_str(&table.render(output::width()));
        }
        shown
    })
}
