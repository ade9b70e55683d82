//! Jobs on their way in: what is taken, what is refused, and what a job looks like then.

mod add;
mod fuzz;
mod job;
mod large;
mod load;
mod option;
mod tenant;
