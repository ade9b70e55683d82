//! What the check of an API key costs each request, beside the keys of many others.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;

use windlass_core::key::{NewKey, Owner, Role};
use windlass_core::store::prelude::*;
use windlass_core::{KeyText, Tenant};
use windlass_engine::metrics::Metrics;

use crate::engine::daemon;
use crate::engine::noop::NoopRunner;
use crate::report::figure::{Figure, Outcome};
use crate::scale::Scale;

const KEYS: usize = 10_000;
const TENANTS: usize = 100;
const CHECKS: u32 = 200_000;
const MICROS_MAX: f64 = 2.0;

pub(crate) fn measure(dir: &Path, _: &Scale) -> anyhow::Result<Outcome> {
    let dir = tempfile::Builder::new().prefix("key-check-").tempdir_in(dir)?;
    let runtime = daemon::runtime()?;
    let measured = runtime.block_on(checks(dir.path()));
    runtime.shutdown_background();
    let (right, wrong) = measured?;
    Ok(Outcome {
        promise: "< 2 µs a request",
        reached: format!("{right:.2} µs"),
        kept: right < MICROS_MAX,
        figures: vec![
            Figure::new("keys in the store", KEYS as f64, "keys"),
            Figure::new("check of a right key", right, "µs"),
            Figure::new("check of a key that does not exist", wrong, "µs"),
        ],
    })
}

/// Microseconds for a right and for a wrong key.
async fn checks(dir: &Path) -> anyhow::Result<(f64, f64)> {
    let store = daemon::open_store(dir, &Arc::new(Metrics::default()))?;
    let mut right = None;
    let mut puts = Vec::with_capacity(KEYS);
    for number in 0..KEYS {
        let text = KeyText::random()?;
        let tenant = Some(Tenant::new(&format!("acme{}", number % TENANTS))?);
        let owner = Owner { role: Role::Producer, tenant, name: String::new() };
        let new = NewKey { id: text.id(), digest: text.digest(), owner, lifetime: None };
        puts.push(store.key_put(new));
        right = Some(text.reveal());
    }
    try_join_all(puts).await?;
    store.close().await;
    let right = right.context("there are keys")?;
    let wrong = KeyText::random()?.reveal();
    let engine = daemon::start(dir, Arc::new(NoopRunner)).await?;
    ensure!(engine.key_check(&right).is_ok() && engine.key_check(&wrong).is_err(), "wrong checks");
    let each = |text: &str| {
        let began = Instant::now();
        for _ in 0..CHECKS {
            // Neither the check nor its answer is optimized away.
            let _ = std::hint::black_box(engine.key_check(std::hint::black_box(text)));
        }
        began.elapsed().as_secs_f64() * 1e6 / f64::from(CHECKS)
    };
    let measured = (each(&right), each(&wrong));
    engine.shutdown().await?;
    Ok(measured)
}
