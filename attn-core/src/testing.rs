//! Shared by the unit tests.
