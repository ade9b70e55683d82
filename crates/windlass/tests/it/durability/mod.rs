//! What was acknowledged stays, whatever dies, fills up or goes away; several daemons share it.

mod chaos;
mod cluster;
mod crash;
mod disk_full;
mod journal;
mod lease;
mod model;
mod store_away;
mod sysid;
