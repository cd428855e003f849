//! The page of states, printed from core: every command is run on a job in every state, and the result is printed
//! into the page.

mod samples;
mod printer;

pub use printer::page;
