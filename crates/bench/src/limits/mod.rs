//! What the machine does without Windlass: a synced write, appends in groups, a bare node.

pub(crate) mod append;
pub(crate) mod disk;
pub(crate) mod pipe;
