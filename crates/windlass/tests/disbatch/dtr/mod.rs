//! `windlass dtr`, the stand-alone task runner.

mod refusal;
mod run;
