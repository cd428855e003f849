//! Connections for their own sake: far more than the limits allow, from a dozen addresses.

use std::sync::Arc;
use std::time::Duration;

use crate::arena::{Arena, addresses};
use crate::attack::{Attack, Behaviour};

/// A whole that a dozen addresses could use up many times over.
const LIMITS: &str = "limits: {connections: 600, connections_per_address: 400}\n";

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_a_dozen_addresses_leave_room_for_another() {
    let arena = Arena::with(LIMITS).await;
    // A head that never ends; it is cut after a while and comes again.
    let behaviour = Behaviour {
        first: b"GET /healthz HTTP/1.1\r\nhost: x\r\n".to_vec().into(),
        then: Arc::from(&b"x: y\r\n"[..]),
        every: Duration::from_secs(1),
        is_silent: false,
    };
    let attack = Attack::plan("endless heads", &addresses(12), 1500, behaviour);

    let siege = arena.besiege(attack, 400).await;

    siege.assert_unnoticed();
    assert!(siege.held <= 600, "{} connections were held", siege.held);
}
