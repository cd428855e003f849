//! What comes in from other services: is it really from them, what does it tell, and what is kept of it. Pure: no IO, and
//! time is an argument.

pub mod verify;
pub mod provider;
pub mod catalog;
mod media;
