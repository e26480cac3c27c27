//! Models with `attend`.

use super::*;
use support::cases::tensor;

support::attends!(exact);
