//! Connections over loopback, with a handler made for the tests.
