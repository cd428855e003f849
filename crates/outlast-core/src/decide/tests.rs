//! The state machine under test: `table` says what each command does in each state, `rules` and `budgets` the finer rules
//! one by one, `random` that the promises hold over any sequence of commands.

mod stage;
mod table;
mod rules;
mod budgets;
mod walk;
mod push;
mod work;
mod random;
