//! The connector against hostile URLs, name servers, certificates and responders. The assertions are about the requests
//! that the listeners saw. Nothing here leaves the machine: "public" is played by an allowed loopback address,
//! "private" by one that is not.

mod scene;
mod traps;

mod plain;
mod urls;
mod names;
mod hostile;
mod answers;
mod redirects;
mod certificates;
mod injection;
mod memory;
