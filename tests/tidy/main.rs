//! The rules of the code that no compiler checks: sizes, layers, words, manifests, documents. Each test names the files
//! that break its rule. Pages that are printed from code are compared (or, with `OUTLAST_GEN=1`, written) here as well.

mod tree;
mod files;
mod layers;
mod manifests;
mod migrations;
mod errors;
mod generated;
mod links;
mod options;
mod pages;
mod promises;
mod prose;
mod shown;
mod states;
