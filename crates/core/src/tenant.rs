//! What an operator sets for a tenant.

use crate::limit::{TENANT_SLOTS, WEIGHT};
use crate::name::Invalid;

/// How a tenant is treated. Where a value is absent, the configuration of each daemon applies.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TenantSettings {
    /// Share of the time of all slots, relative to other tenants, 1 to 1000; 1 when absent.
    pub weight: Option<u32>,
    /// Slots of each daemon that are kept for the tenant.
    pub slots_min: Option<u32>,
    /// Maximum number of slots of each daemon that the tenant uses at once.
    pub slots_max: Option<u32>,
}

impl TenantSettings {
    pub fn check(&self) -> Result<(), Invalid> {
        WEIGHT.check_if_set("weight", self.weight)?;
        TENANT_SLOTS.check_if_set("slots_min", self.slots_min)?;
        TENANT_SLOTS.check_if_set("slots_max", self.slots_max)?;
        match (self.slots_min, self.slots_max) {
            (Some(min), Some(max)) if min > max => {
                let reason = format!("{min} is more than slots_max, which is {max}");
                Err(Invalid::new("slots_min", reason))
            }
            _ => Ok(()),
        }
    }

    /// The settings with every number clamped to its range, for values from a store.
    pub fn clamped(self) -> TenantSettings {
        TenantSettings {
            weight: self.weight.map(|weight| WEIGHT.clamp(weight)),
            slots_min: self.slots_min.map(|slots| TENANT_SLOTS.clamp(slots)),
            slots_max: self.slots_max.map(|slots| TENANT_SLOTS.clamp(slots)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_slots_are_kept_for_a_tenant_than_it_may_use() {
        let slots = |slots_min, slots_max| {
            let settings = TenantSettings { slots_min, slots_max, ..TenantSettings::default() };
            settings.check().map_err(|invalid| invalid.field)
        };
        for (min, max) in [(None, None), (Some(3), None), (None, Some(1)), (Some(3), Some(3))] {
            assert_eq!(slots(min, max), Ok(()), "{min:?} {max:?}");
        }
        assert_eq!(slots(Some(4), Some(3)), Err("slots_min".into()));
        assert_eq!(slots(Some(0), None), Err("slots_min".into()));
        assert_eq!(slots(None, Some(0)), Err("slots_max".into()));
    }
}
