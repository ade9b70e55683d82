//! `windlass types …`.

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Types {
    /// List the types of the tenant with their job counts.
    List,
    /// Stop running jobs of a type; new jobs are still accepted.
    Suspend {
        /// The type.
        #[arg(value_name = "TYPE")]
        name: String,
    },
    /// Resume a suspended type.
    Resume {
        /// The type.
        #[arg(value_name = "TYPE")]
        name: String,
    },
}
