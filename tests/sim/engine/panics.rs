//! A loop of the engine panics: what it serves comes late, and comes.

use super::*;

#[test]
fn alarms_are_served_after_their_loop_panicked() {
    case(QueueSettings::default(), async |rig| {
        rig.server.faults.panic_at_alarms(3);
        rig.publish(SECOND).await;

        sleep(3 * SECOND / 2).await;
        assert_eq!(rig.engine.status.stopped_loops(), ["alarms"]);
        // Pauses of one, two and four seconds.
        sleep(8 * SECOND).await;

        assert_eq!(rig.engine.status.stopped_loops(), [] as [&str; 0]);
        assert_eq!(rig.engine.status.counters.loop_failures.get(), 3);
        rig.claim().await;
    });
}
