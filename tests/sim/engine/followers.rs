//! I-32: those who follow a job's log share what one of them reads, and each sees every event once and in order.

use std::time::Duration;

use outlast_core::state::CancelReason;
use outlast_core::{Command, Event, JobId, Outcome, QueueSettings};
use outlast_engine::Engine;
use outlast_engine::feeds::stream::{Frame, Opened};
use outlast_store::jobs::Reach;
use outlast_tests::chance::Chance;
use outlast_tests::seeds;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{MILLISECOND, Rig, SECOND, case, report, run_case};
use crate::faults::Faults;

const FOLLOWERS: usize = 10_000;
const CHANGES: u64 = 12;

fn many_deferrals() -> QueueSettings {
    QueueSettings { max_deferrals: 1_000_000, drain_timeout: SECOND, ..QueueSettings::default() }
}

#[test]
fn ten_thousand_followers_of_a_job_cost_one_read_per_change() {
    case(many_deferrals(), async |rig| {
        let id = rig.publish(Duration::ZERO).await;
        let mut readers = JoinSet::new();
        for _ in 0..FOLLOWERS {
            readers.spawn(read_to_the_end(rig.engine.clone(), Reach::Namespace(rig.namespace), id));
        }
        sleep(SECOND).await;
        assert!(rig.server.faults.log_reads() <= 2, "{} reads to begin with", rig.server.faults.log_reads());

        // One after the other, so that all have seen a change before the next one.
        let before = rig.server.faults.log_reads();
        for _ in 0..CHANGES {
            let job = rig.claim().await;
            sleep(SECOND).await;
            rig.report(&job, Outcome::Release).await;
            sleep(SECOND).await;
        }
        assert_eq!(rig.server.faults.log_reads() - before, 2 * CHANGES);

        // And as fast as the store takes them: a change may come while the one before is being read.
        let before = rig.server.faults.log_reads();
        for _ in 0..CHANGES {
            let job = rig.claim().await;
            rig.report(&job, Outcome::Release).await;
        }
        let job = rig.claim().await;
        rig.report(&job, Outcome::Ack { result: None }).await;
        let log = log_of(rig, id);
        for read in readers.join_all().await {
            assert!(read == log, "{} events instead of {}", read.len(), log.len());
        }
        let reads = rig.server.faults.log_reads() - before;
        println!("{FOLLOWERS} followers, {} changes in a row, {reads} reads", 2 * CHANGES + 2);
        assert!(reads <= 2 * (2 * CHANGES + 2), "{reads} reads");
    });
}

async fn read_to_the_end(engine: Engine, reach: Reach, id: JobId) -> Vec<Event> {
    let Ok(Some(Opened::Following(mut follower))) = engine.feeds.follow(reach, id, 0).await else {
        panic!("the job is there");
    };
    let mut read = Vec::new();
    while let Some(frame) = follower.next().await {
        if let Frame::Events(events) = frame {
            read.extend_from_slice(&events);
        }
    }
    read
}

fn log_of(rig: &Rig, id: JobId) -> Vec<Event> {
    rig.server.disk.world().row(id).expect("the job is there").events.clone()
}

/// Readers are cut in the middle of reads that others wait for, and the store refuses, delays and loses answers.
#[test]
fn followers_that_come_and_go_miss_nothing_under_faults() {
    seeds::all_hold(200, |seed| {
        let mut chance = Chance::seeded(seed);
        let faults = Faults::new(Chance::seeded(chance.below(u64::MAX)));
        faults.calm_down();
        run_case(many_deferrals(), faults, async |rig| {
            let id = rig.publish(Duration::ZERO).await;
            rig.server.faults.stir_up();
            let mut readers = JoinSet::new();
            for _ in 0..20 {
                let chance = Chance::seeded(chance.below(u64::MAX));
                readers.spawn(read_with_cuts(rig.engine.clone(), Reach::Namespace(rig.namespace), id, chance));
            }
            for _ in 0..40 {
                sleep(MILLISECOND * u32::try_from(chance.below(30)).unwrap()).await;
                if let Ok(Some(claimed)) = rig.engine.jobs.claim(rig.want(), Duration::ZERO).await
                    && let Some(job) = claimed.jobs.first()
                {
                    let _ = rig.engine.jobs.apply_one(rig.order(id, report(job, Outcome::Release))).await;
                }
            }
            rig.server.faults.calm_down();
            let cancel = Command::Cancel { reason: CancelReason::User };
            rig.engine.jobs.apply_one(rig.order(id, cancel)).await.unwrap().unwrap();
            let all = readers.join_all().await;
            let log = log_of(rig, id);
            assert!(all.iter().all(|read| *read == log), "seed {seed}");
        });
        Ok(())
    });
}

async fn read_with_cuts(engine: Engine, reach: Reach, id: JobId, mut chance: Chance) -> Vec<Event> {
    let mut read: Vec<Event> = Vec::new();
    loop {
        let after = read.len() as u64;
        let mut follower = match engine.feeds.follow(reach.clone(), id, after).await {
            Ok(Some(Opened::Following(follower))) => follower,
            Ok(Some(Opened::Finished(_))) => return read,
            Ok(Some(Opened::Beyond { last })) => panic!("event {after} was seen, and there are {last}"),
            Ok(None) => panic!("the job is there"),
            Err(_) => continue,
        };
        for _ in 0..chance.between(1, 5) {
            match timeout(MILLISECOND * u32::try_from(chance.between(1, 40)).unwrap(), follower.next()).await {
                Ok(Some(Frame::Events(events))) => read.extend_from_slice(&events),
                Ok(Some(Frame::Progress(_) | Frame::End(_))) => {}
                Ok(None) => break,
                Err(_) => {}
            }
        }
    }
}
