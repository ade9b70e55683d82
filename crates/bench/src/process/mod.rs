//! Parts in processes of their own, so that the processor time and the memory of each can be told
//! apart.

pub(crate) mod child;
pub(crate) mod server;
