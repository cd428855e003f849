//! The page of states, printed from core: every command is run on a job in every state, and what happens is what stands
//! in the page.

mod samples;
mod printer;

pub use printer::page;
