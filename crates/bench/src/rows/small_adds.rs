//! Adds of one line over many connections, compared with a server that does nothing at all.

use std::path::Path;

use crate::limits::disk::line;
use crate::load::client;
use crate::load::round::{self, Round};
use crate::process::child::Role;
use crate::process::server::PATH;
use crate::report::figure::{Figure, Outcome};
use crate::scale::Scale;

const CONNECTIONS: usize = 64;
const SHARE_MIN: f64 = 0.7;

pub(crate) fn measure(dir: &Path, scale: &Scale) -> anyhow::Result<Outcome> {
    let request = client::post(PATH, &line());
    let (mut windlass, mut empty) = (Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        empty.push(round::measure(Role::Empty, dir, CONNECTIONS, &request, scale)?);
        windlass.push(round::measure(Role::Windlass, dir, CONNECTIONS, &request, scale)?);
    }
    let (ours, theirs) = (Round::middle(&windlass), Round::middle(&empty));
    let share = ours.rate / theirs.rate;
    let mut figures = vec![
        Figure::new("Windlass", ours.rate, "POST/s"),
        Figure::new("the empty axum handler", theirs.rate, "POST/s"),
        Figure::new("Windlass beside the empty handler", share * 100.0, "%"),
        Figure::new("processor time of Windlass", ours.server_micros, "µs/POST"),
        Figure::new("processor time of the empty handler", theirs.server_micros, "µs/POST"),
        Figure::new("processor time of the client, with Windlass", ours.client_micros, "µs/POST"),
        Figure::new("the same, with the empty handler", theirs.client_micros, "µs/POST"),
    ];
    figures.extend(ours.lag_figures());
    Ok(Outcome {
        promise: "≥ 70 % of an empty axum handler",
        reached: format!("{:.0} %", share * 100.0),
        kept: share >= SHARE_MIN,
        figures,
    })
}
