//! Models whose attentions read values that have a gradient.

use super::*;
use support::cases::tensor;

support::body_values!(exact);
