//! Private database servers for tests: real ones, on free loopback ports, gone with the process.
