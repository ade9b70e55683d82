//! Everything acknowledged stays, whatever dies, fills up or becomes unavailable; several daemons
//! share it.

mod accept;
mod backup;
mod backup_nth;
mod backup_refusal;
mod backup_tool;
mod chaos;
mod cluster;
mod crash;
mod daemons;
mod disk_full;
mod journal;
mod lease;
mod model;
mod postgres;
mod store_away;
mod sysid;
