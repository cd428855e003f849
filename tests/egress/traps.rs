//! Listeners that must not be reached: they count connections, and answer so that a successful request is noticed as
//! well.

use outlast_tests::responder::{Responder, on_one_port};

use crate::scene::OK_AND_CLOSE;

pub struct Traps(pub Vec<Responder>);

impl Traps {
    /// All on one port.
    pub async fn set(hosts: &[&str]) -> Traps {
        let listeners = on_one_port(hosts).await;
        Traps(listeners.into_iter().map(|listener| Responder::answering_on(listener, OK_AND_CLOSE)).collect())
    }

    /// On the same port as somebody who may be reached, whose answer is given.
    pub async fn beside(host: &str, answer: &str, hosts: &[&str]) -> (Responder, Traps) {
        let mut listeners = on_one_port(&[&[host], hosts].concat()).await;
        let reachable = Responder::answering_on(listeners.remove(0), answer);
        let traps = listeners.into_iter().map(|listener| Responder::answering_on(listener, OK_AND_CLOSE));
        (reachable, Traps(traps.collect()))
    }

    pub fn port(&self) -> u16 {
        self.0[0].address.port()
    }

    pub fn connections(&self) -> usize {
        self.0.iter().map(|trap| trap.seen.connections()).sum()
    }
}
