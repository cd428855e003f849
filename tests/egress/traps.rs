//! Listeners that nobody may reach: they count connections, and answer so that whoever gets through is noticed as well.

use outlast_tests::responder::Responder;

use crate::scene::OK_AND_CLOSE;

pub struct Traps(pub Vec<Responder>);

impl Traps {
    pub async fn on_port(addresses: &[&str], port: u16) -> Traps {
        let mut traps = Vec::new();
        for address in addresses {
            traps.push(Responder::answering(&format!("{address}:{port}"), OK_AND_CLOSE).await);
        }
        Traps(traps)
    }

    /// All on one port that was free on the first of the addresses.
    pub async fn anywhere(addresses: &[&str]) -> Traps {
        let first = Responder::answering(&format!("{}:0", addresses[0]), OK_AND_CLOSE).await;
        let Traps(rest) = Traps::on_port(&addresses[1..], first.address.port()).await;
        Traps([first].into_iter().chain(rest).collect())
    }

    pub fn port(&self) -> u16 {
        self.0[0].address.port()
    }

    pub fn connections(&self) -> usize {
        self.0.iter().map(|trap| trap.seen.connections()).sum()
    }
}
