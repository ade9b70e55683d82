//! Jobs on their way in: what is accepted, what is refused, and what a job looks like.

mod add;
mod fuzz;
mod job;
mod large;
mod load;
mod option;
mod tenant;
