//! Attention at the steps of a scan.

use super::*;
use support::cases::tensor;

support::attends_at_steps!(exact);
