//! `outlast config`: the embedded configuration, to start a file from.

use crate::config::DEFAULTS;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run() -> Result<(), Failure> {
    output::print(DEFAULTS)
}
