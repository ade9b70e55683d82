//! Slots for contexts: shared ones, and reserved ones for tenants that have few.

use windlass_core::runner::{Runner, Stop};
use windlass_core::{Handler, JobId, Lang, TypeKey};
use windlass_runner::Bounds;

use crate::harness::{Run, check_ended, fixture_with, handler, spec};

fn handler_of(tenant: &str, version: i64, body: &str) -> Handler {
    let key = TypeKey::new(tenant, "t").unwrap();
    Handler { id: JobId::new(version).unwrap(), key, ..handler(spec(Lang::Python, body)) }
}

fn hanging(tenant: &str) -> Handler {
    handler_of(tenant, 1, "import time; time.sleep(1000)")
}

async fn ends_well(mut run: Run) {
    check_ended(&run.ended().await.1, 200, None);
    assert_eq!(run.rest().await, []);
}

#[tokio::test]
async fn tenants_whose_contexts_hang_do_not_keep_others_out() {
    let bounds = Bounds {
        contexts_max: 2,
        tenant_contexts_max: 1,
        contexts_reserved: 1,
        tenant_contexts_min: 1,
    };
    let fixture = fixture_with(bounds);
    let mut hung = [fixture.begin_of(hanging("one")), fixture.begin_of(hanging("two"))];
    for run in &mut hung {
        run.started().await;
    }
    ends_well(fixture.begin_of(handler_of("three", 1, "return 200"))).await;
    // The idle context of a newcomer makes room for the next one.
    ends_well(fixture.begin_of(handler_of("four", 1, "return 200"))).await;
    for run in &mut hung {
        fixture.runner.stop(run.attempts[0], Stop::Cancelled);
        check_ended(&run.ended().await.1, 500, Some(Stop::Cancelled));
    }
}

#[tokio::test]
async fn a_tenant_with_only_idle_contexts_gets_a_reserved_place_in_return_for_one() {
    let bounds = Bounds {
        contexts_max: 1,
        tenant_contexts_max: 2,
        contexts_reserved: 1,
        tenant_contexts_min: 1,
    };
    let fixture = fixture_with(bounds);
    let mut hung = fixture.begin_of(hanging("one"));
    hung.started().await;
    for version in 1..=2 {
        ends_well(fixture.begin_of(handler_of("two", version, "return 200"))).await;
        assert_eq!(fixture.runner.warm(), [JobId::new(version).unwrap()]);
    }
    fixture.runner.stop(hung.attempts[0], Stop::Cancelled);
    check_ended(&hung.ended().await.1, 500, Some(Stop::Cancelled));
}

#[tokio::test]
async fn no_idle_context_ends_for_a_tenant_that_gets_no_place_by_that() {
    let bounds = Bounds {
        contexts_max: 1,
        tenant_contexts_max: 2,
        contexts_reserved: 1,
        tenant_contexts_min: 1,
    };
    let fixture = fixture_with(bounds);
    let mut hung = fixture.begin_of(hanging("one"));
    hung.started().await;
    ends_well(fixture.begin_of(handler_of("two", 7, "return 200"))).await;
    let waiting = fixture.begin_of(handler_of("one", 2, "return 200"));
    // The run gets as far as it can before this task continues.
    tokio::task::yield_now().await;
    assert_eq!(fixture.runner.warm(), [JobId::new(7).unwrap()]);
    fixture.runner.stop(hung.attempts[0], Stop::Cancelled);
    check_ended(&hung.ended().await.1, 500, Some(Stop::Cancelled));
    ends_well(waiting).await;
}

#[tokio::test]
async fn an_idle_context_ends_before_a_reserved_place_is_used() {
    let bounds = Bounds {
        contexts_max: 1,
        tenant_contexts_max: 2,
        contexts_reserved: 1,
        tenant_contexts_min: 1,
    };
    let fixture = fixture_with(bounds);
    for (tenant, version) in [("one", 1), ("two", 2), ("three", 3)] {
        ends_well(fixture.begin_of(handler_of(tenant, version, "return 200"))).await;
        assert_eq!(fixture.runner.warm(), [JobId::new(version).unwrap()]);
    }
}
