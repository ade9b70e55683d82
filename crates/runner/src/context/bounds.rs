//! How many contexts may exist. The rule is that of the scheduler's slots
//! (docs/decisions/003-slots.md): a shared number for all tenants, and a reserved one on top for
//! tenants that have few.

/// How many contexts may exist, idle ones included.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Contexts of all tenants.
    pub contexts_max: usize,
    pub tenant_contexts_max: usize,
    /// Additional contexts, only for tenants that have fewer than `tenant_contexts_min`.
    pub contexts_reserved: usize,
    pub tenant_contexts_min: usize,
}

/// Contexts that exist, or would.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContextCounts {
    pub(super) all: usize,
    /// Those of the tenant that needs one more.
    pub(super) own: usize,
}

impl Bounds {
    /// Whether the tenant may have one more shared context.
    pub(super) fn has_shared_room(&self, counts: ContextCounts) -> bool {
        counts.all < self.contexts_max && counts.own < self.tenant_contexts_max
    }

    /// Whether the tenant may have one more context, a reserved one if necessary.
    pub(super) fn has_room(&self, counts: ContextCounts) -> bool {
        let is_newcomer = counts.own < self.tenant_contexts_min.min(self.tenant_contexts_max);
        let with_reserved = self.contexts_max.saturating_add(self.contexts_reserved);
        self.has_shared_room(counts) || is_newcomer && counts.all < with_reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        contexts_max: 4,
        tenant_contexts_max: 3,
        contexts_reserved: 2,
        tenant_contexts_min: 1,
    };

    fn has_room(all: usize, own: usize) -> bool {
        BOUNDS.has_room(ContextCounts { all, own })
    }

    #[test]
    fn a_lone_tenant_has_the_shared_contexts_up_to_its_own_bound() {
        assert!(has_room(0, 0) && has_room(2, 2));
        assert!(!has_room(3, 3));
    }

    #[test]
    fn reserved_contexts_are_only_for_tenants_below_their_minimum() {
        assert!(has_room(4, 0) && has_room(5, 0));
        assert!(!has_room(4, 1) && !has_room(5, 1));
        assert!(!has_room(6, 0));
    }

    #[test]
    fn a_minimum_never_lifts_the_bound_of_a_tenant() {
        let bounds = Bounds { tenant_contexts_min: 9, ..BOUNDS };
        assert!(!bounds.has_room(ContextCounts { all: 4, own: 3 }));
    }
}
