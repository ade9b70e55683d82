//! `windlass tenant …`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Show the settings of the tenant.
    Show,
    /// Change settings of the tenant; those that are not named stay as they are.
    Set(TenantSet),
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
#[command(after_help = "\
Examples:
  windlass tenant set --tenant acme --weight 3
  windlass tenant set --tenant acme --slots-min 2 --slots-max 10
  windlass tenant set --tenant acme --weight default

All daemons follow within a second.")]
pub(crate) struct TenantSet {
    /// Share of the time of all slots relative to other tenants, 1 to 1000, or `default`.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) weight: Option<String>,
    /// Slots of each daemon that are kept for the tenant, or `default`.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) slots_min: Option<String>,
    /// Maximum number of slots of each daemon that the tenant uses at once, or `default`.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) slots_max: Option<String>,
}
