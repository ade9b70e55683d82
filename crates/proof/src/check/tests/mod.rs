//! Every rule: stories that break it, and near misses that do not. One healthy story has
//! everything.

mod adds;
mod ends;
mod families;
mod fences;
mod followers;
mod healthy;
mod limits;
mod order;
mod owners;
mod story;
mod times;
