//! Attentions that multiply queries and keys with rows of tables.

use super::*;

support::dots!(exact);
